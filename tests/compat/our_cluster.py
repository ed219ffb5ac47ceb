"""OrbitMQ's name server and broker as real processes: the same interface as `java_cluster`."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from command import ORBITMQ
from compat.java_cluster import QUICK_CHECKS, broker_settings, running, write_settings
from compat.server_process import ServerProcess, answers, free_port, is_registered

SMALL_BROKER: Final = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": "120000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "mappedFileSizeTimerLog": str(1 << 20),
    "diskMaxUsedSpaceRatio": "95",
    **QUICK_CHECKS,
}


@contextmanager
def our_namesrv(directory: Path, *, name: str = "our-namesrv") -> Iterator[ServerProcess]:
    """Run `orbitmq namesrv run` on a free port."""
    port = free_port()
    command = [str(ORBITMQ), "namesrv", "run", "--host", "127.0.0.1", "--port", str(port)]
    address = f"127.0.0.1:{port}"
    root = directory / name
    server = ServerProcess(name, command, port, root, lambda: answers(address))
    server.environment = {"HOME": str(root)}  # where it keeps kvConfig.json
    with running(server, graceful=True):
        yield server


@contextmanager
def our_broker(
    directory: Path,
    *,
    namesrv: str,
    name: str = "broker-a",
    settings: Mapping[str, str] | None = None,
    root: Path | None = None,
    port: int | None = None,
) -> Iterator[ServerProcess]:
    """Run `orbitmq broker run` with a RocketMQ broker.conf; it is registered when the body starts.

    `root` is where it has its store and its logs, `port` where it listens: for a broker that takes the
    place of another.
    """
    root, port = root or directory / f"our-{name}", port or free_port()
    given = {**broker_settings(root, port, namesrv, name), **SMALL_BROKER, **(settings or {})}
    config = write_settings(root / "broker.conf", given)
    command = [str(ORBITMQ), "broker", "run", "--config", str(config)]
    address = f"127.0.0.1:{port}"
    server = ServerProcess(name, command, port, root, lambda: is_registered(address, namesrv))
    with running(server, graceful=True):
        yield server
