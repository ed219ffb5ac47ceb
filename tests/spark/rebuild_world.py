"""Stores for tests of `orbitmq spark rebuild`, and what must be equal afterwards."""

import pickle
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from compat.message_kinds import single_messages
from compat.our_store import Written, append_every_kind, small_config, write_topics
from orbitmq.spark.jobs.rebuild.job import RebuildOptions, RebuildReport, rebuild
from orbitmq.store.config import StoreConfig
from orbitmq.store.offline.rebuild import rebuild_store
from orbitmq.store.store import MessageStore

FAMILIES = ("consumequeue", "consumequeue_ext", "batchconsumequeue")
PARTS = (*FAMILIES, "index")
SMALL_SETTINGS = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "mapperFileSizeBatchConsumeQueue": "920",
    "maxHashSlotNum": "500",
    "maxIndexNum": "400",
}


def files_below(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def made_files(root: Path) -> dict[str, dict[str, bytes]]:
    """Return what a rebuild makes; index files by their order, for their names tell when they were made."""
    found = {part: files_below(root / part) for part in FAMILIES}
    index = files_below(root / "index").values()
    return {**found, "index": {str(number): data for number, data in enumerate(index)}}


def leftovers(root: Path) -> list[str]:
    """Return what a rebuild must not leave behind."""
    return [
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.name.startswith((".part-", "orbitmq.rebuild")) or path.name.endswith(".tmp")
    ]


def write_our_store(root: Path, count: int = 600) -> StoreConfig:
    """Write a store of ours with every kind of message and many rolls of everything."""
    config = small_config(root)
    write_topics(root)
    with MessageStore.open(config, background=False) as store:
        append_every_kind(store, config, count, 5, Written())
        for request in single_messages(200, 6):
            store.append(request)
        store.wait_dispatched(timeout=30)
    return config


def copy_of(root: Path, target: Path) -> Path:
    shutil.copytree(root, target)
    return target


def offline_files(
    root: Path, settings: Mapping[str, str], scratch: Path
) -> dict[str, dict[str, bytes]]:
    """Return what `orbitmq store rebuild` makes of a copy of this store."""
    copy = copy_of(root, scratch)
    rebuild_store(copy, settings)
    return made_files(copy)


class InProcessSpark:
    """Runs the tasks of a job here, one after another, each pickled as if it travelled.

    For tests of what the driver does with their results, thousands of times; the real Spark is in others.
    """

    defaultParallelism = 2  # noqa: N815  (Spark's name)

    def __init__(self, directory: Path | None = None) -> None:
        self.sparkContext = self
        self._directory = directory or Path.cwd()  # where tasks run

    def parallelize(self, tasks: Iterable[Any], slices: int) -> "_Tasks":
        return _Tasks([[task] for task in tasks], self._directory)

    def accumulator(self, value: int) -> "_Sum":
        return _Sum(value)


class _Sum:
    def __init__(self, value: int) -> None:
        self.value = value

    def add(self, value: int) -> None:
        self.value += value


class _Tasks:
    def __init__(
        self,
        partitions: list[list[Any]],
        directory: Path,
        work: Callable[..., Iterator[Any]] | None = None,
    ) -> None:
        self._partitions = partitions
        self._directory = directory
        self._work = work

    def mapPartitionsWithIndex(self, work: Callable[..., Iterator[Any]]) -> "_Tasks":
        return _Tasks(self._partitions, self._directory, work)

    def partitionBy(self, count: int, place: Callable[[Any], int]) -> "_Tasks":
        partitions: list[list[Any]] = [[] for _ in range(count)]
        for key, value in self.collect():
            partitions[place(key) % count].append((key, value))
        return _Tasks(partitions, self._directory)

    def collect(self) -> list[Any]:
        found: list[Any] = []
        sent = cloudpickle.dumps(self._work)  # once, as Spark does; each task has a copy of its own
        with chdir(self._directory):
            for number, partition in enumerate(self._partitions):
                work = pickle.loads(sent)
                found += pickle.loads(pickle.dumps(list(work(number, iter(partition)))))
        return found


def rebuild_here(
    root: Path, settings: Mapping[str, str], options: RebuildOptions | None = None
) -> RebuildReport:
    """Rebuild without Spark."""
    spark: Any = InProcessSpark()
    return rebuild(spark, root, settings, options)
