"""Parts of a store put together without the store, for tests of one part."""

import time
from collections.abc import Callable
from pathlib import Path

from orbitmq.clock import Clock
from orbitmq.files.disk import Disk
from orbitmq.format.columns import ScanOptions
from orbitmq.format.kernels import plain
from orbitmq.format.record import Record, decode_record
from orbitmq.store.config import StoreConfig
from orbitmq.store.flags import RunningFlags
from orbitmq.store.log.append_rules import AppendRules
from orbitmq.store.log.commit_log import CommitLog
from orbitmq.store.log.flush import LogFlusher
from orbitmq.store.log.segment_list import SegmentList
from orbitmq.store.statistics import Counters
from orbitmq.store.topic_types import TopicTypes, all_simple
from orbitmq.testing.fake_clock import FakeClock

SMALL_SEGMENT = 4096


def until(condition: Callable[[], object], seconds: float = 30) -> None:
    """Wait for what another thread does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.001)


def small_config(root: Path, **changes: object) -> StoreConfig:
    return StoreConfig(**{"root": root, "segment_bytes": SMALL_SEGMENT, **changes})


class LogParts:
    """A commit log with its flusher, without threads."""

    def __init__(
        self,
        config: StoreConfig,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        topic_types: TopicTypes = all_simple,
        end_offset: int = 0,
    ) -> None:
        self.config = config
        self.disk = disk or Disk()
        self.clock = clock or FakeClock()
        self.flags, self.counters = RunningFlags(), Counters()
        self.segments = SegmentList(config.layout(), disk=self.disk, clock=self.clock)
        self.segments.load()
        self.log = CommitLog(
            config,
            self.segments,
            AppendRules(config, topic_types),
            clock=self.clock,
            kernels=plain(),
            flags=self.flags,
            counters=self.counters,
        )
        self.log.resume(end_offset)
        self.flusher = LogFlusher(
            self.log, flags=self.flags, counters=self.counters, clock=self.clock
        )

    def records(self) -> list[Record]:
        """Decode every record of the log, in order."""
        found: list[Record] = []
        for base, array, start, end in self.log.iter_ranges(0, self.log.readable_end):
            rows = plain().scan(array, start, end, base, ScanOptions(check_crc=True)).rows
            found += [decode_record(array.data, int(row["log_offset"]) - base) for row in rows]
        return found

    def close(self) -> None:
        self.log.close()

    def __enter__(self) -> "LogParts":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
