"""The class data sharing archive of RocketMQ's servers: one file, with which they start sooner.

Most of the start of a server is finding, reading and checking classes, the same ones each time. A broker that
runs is asked once to write down what it has loaded (jcmd, Java 17 or newer); the file is kept beside the
class path that it belongs to. Java compares it with itself and the jars, and does without where they changed.
"""

import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Final

from compat.maven import CACHE
from compat.server_process import ServerProcess

RECORD: Final = "-XX:+RecordDynamicDumpInfo"
RECORDING: Final = ("-XX:+IgnoreUnrecognizedVMOptions", RECORD)  # an older Java archives nothing
QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""An archive that does not fit any more is no use, but no news either."""
DUMP_SECONDS_MAX: Final = 120

Starts = Callable[[Path], AbstractContextManager[ServerProcess]]
"""Runs, below a directory, a broker that was started with the options `RECORDING`."""


def archive_options(jars: str, start: Starts) -> tuple[str, ...]:
    """Return the options with which a process of this class path uses the archive, if there is one."""
    archive = _made(jars, start)
    return (f"-XX:SharedArchiveFile={archive}", *QUIET) if archive else ()


@cache
def _made(jars: str, start: Starts) -> Path | None:
    """Return the archive, which is made if need be; None where this Java cannot."""
    java, jcmd = shutil.which("java"), shutil.which("jcmd")
    if java is None or jcmd is None:
        return None
    executable = Path(java).resolve()
    made_from = f"{executable} {executable.stat().st_mtime_ns} {jars}"
    archive = CACHE / f"servers-{hashlib.sha256(made_from.encode()).hexdigest()[:12]}.jsa"
    # Several servers may start at once; one of them makes it.
    with (CACHE / "archive.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(archive, jcmd, start)
    return archive if archive.stat().st_size else None


def _make(archive: Path, jcmd: str, start: Starts) -> None:
    """Write the archive; an empty file where this Java cannot, so that it is not tried again."""
    with tempfile.TemporaryDirectory(prefix="archive-", dir=CACHE) as place:
        fresh = Path(place) / "classes.jsa"
        with start(Path(place)) as broker:
            assert broker.process is not None
            command = [jcmd, str(broker.process.pid), "VM.cds", "dynamic_dump", str(fresh)]
            subprocess.run(command, capture_output=True, check=False, timeout=DUMP_SECONDS_MAX)
        if not fresh.exists():
            fresh.touch()
        fresh.replace(archive)
