"""Where figures come from: processor, memory, kernel, and the disk under a directory."""

import os
import platform
from pathlib import Path
from typing import Final

from orbitmq.units import GiB

_MOUNTS: Final = Path("/proc/self/mountinfo")
_BLOCK_DEVICES: Final = Path("/sys/dev/block")


def machine_facts(directory: Path) -> dict[str, object]:
    """Return what a reader of figures wants to know about this machine and the disk of a directory."""
    device, file_system = mount_of(directory)
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "cpu": _cpu_model(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GiB, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "file_system": file_system,
        "disk": disk_kind(device),
        "read_ahead_kib": read_ahead_kib(device),
    }


def mount_of(directory: Path) -> tuple[str, str]:
    """Return device number ("253:0") and type of the file system that a directory is on."""
    wanted = directory.stat().st_dev
    number = f"{os.major(wanted)}:{os.minor(wanted)}"
    try:
        lines = _MOUNTS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return number, "unknown"
    for line in lines:
        before, _, after = line.partition(" - ")
        if before.split()[2] == number:
            return number, after.split()[0]
    return number, "unknown"


def disk_kind(device: str) -> str:
    """Return what kind of disk a device number stands for: virtual, solid state, rotating."""
    queue = _queue_of(device)
    if queue is None:
        return "none (memory or network)"
    name = queue.parent.name
    if name.startswith(("vd", "xvd")):
        return f"virtual ({name})"
    rotating = (queue / "rotational").read_text(encoding="ascii").strip() == "1"
    return f"{'rotating' if rotating else 'solid state'} ({name})"


def read_ahead_kib(device: str) -> int | None:
    """Return how far the system reads ahead on a disk; None if it is none."""
    queue = _queue_of(device)
    if queue is None:
        return None
    return int((queue / "read_ahead_kb").read_text(encoding="ascii"))


def _queue_of(device: str) -> Path | None:
    """Return where the kernel tells about a disk; that of a partition is told by the disk that it is on."""
    place = (_BLOCK_DEVICES / device).resolve()
    found = (up / "queue" for up in (place, place.parent) if (up / "queue").is_dir())
    return next(found, None)


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.machine()
