"""A stand-in for the Spark job that dispatches for a store: the same writer, without Spark; and comparing."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Self

from orbitmq.files.disk import Disk
from orbitmq.format.kernels import plain
from orbitmq.log_read import open_log, replay
from orbitmq.store.config import DispatchMode, StoreConfig
from orbitmq.store.spark_dispatch.writer import DispatchWriter
from orbitmq.store.store import MessageStore
from orbitmq.testing.fake_clock import FakeClock

FILLED = ("consumequeue", "consumequeue_ext", "batchconsumequeue", "index")
"""The directories that dispatch fills."""


class StandInJob:
    """Dispatches whatever the store shows, when it is told to."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.writer = DispatchWriter(root, plain(), disk=disk)

    def round(self) -> None:
        """Dispatch everything that the store shows now."""
        shown = self.writer.handover.readable_offset()
        assert shown is not None
        with open_log(self.writer.layout, Disk()) as view:
            options, start = self.writer.scan_options, self.writer.offset
            chunks = replay(view, start, shown.log_offset, kernels=plain(), options=options)
            self.writer.write(list(chunks), shown.log_offset)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.writer.close()


def dispatch_by_job(store: MessageStore) -> None:
    """Let a new job dispatch all of a store that has no threads, and the store take it over."""
    store.tick()
    with StandInJob(store.config.root) as job:
        job.round()
    store.tick()


def filled_files(root: Path) -> dict[str, bytes]:
    """Return all that dispatch has filled; index files by number, since their names are times."""
    found: dict[str, bytes] = {}
    for name in FILLED:
        files = sorted(path for path in (root / name).rglob("*") if path.is_file())
        for number, path in enumerate(files):
            key = f"index/{number}" if name == "index" else str(path.relative_to(root))
            found[key] = path.read_bytes()
    return found


def live_files(
    config: StoreConfig, fill: Callable[[MessageStore], None], place: Path, clock: FakeClock
) -> dict[str, bytes]:
    """Return what live dispatch makes of the same appends, in a store of its own."""
    live = replace(config, root=place, dispatch=DispatchMode.LIVE)
    with MessageStore.open(live, background=False, clock=clock) as store:
        fill(store)
    return filled_files(place)


def live_files_of_log(config: StoreConfig, place: Path) -> dict[str, bytes]:
    """Return what live dispatch makes of the log of a store that is closed, in a copy of it."""
    shutil.copytree(config.root / "commitlog", place / "commitlog")
    if (config.root / "config").exists():
        shutil.copytree(config.root / "config", place / "config")
    live = replace(config, root=place, dispatch=DispatchMode.LIVE)
    MessageStore.open(live, background=False).close()
    return filled_files(place)
