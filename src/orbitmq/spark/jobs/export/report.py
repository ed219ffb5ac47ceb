"""What an export did, in figures."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from orbitmq.spark.jobs.export.facts import TaskFacts
from orbitmq.spark.jobs.export.notes import LakeFile
from orbitmq.spark.remote.address import Address


@dataclass(slots=True)
class TopicReport:
    """What an export did for one topic."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    misfits: int = 0  # rows of the table `~dlq`


@dataclass(slots=True, kw_only=True)
class ExportReport:
    """What an export did, or (dry run) would do."""

    dry_run: bool
    to: Path | Address
    format: str
    commit: int  # the number of the last one; 0: there is none
    rows: int = 0
    files: int = 0
    bytes: int = 0
    read_bytes: int = 0
    end_offset: int = -1
    finished: int = 0  # files of a commit that another run had begun
    left_out: int = 0
    misfits: int = 0
    bad_places: int = 0
    topics: dict[str, TopicReport] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, files: Sequence[LakeFile]) -> None:
        """Count files that became part of the lake."""
        for file in files:
            topic = self.topics.setdefault(file.topic, TopicReport())
            topic.files += 1
            topic.bytes += file.bytes
            if file.dlq:
                topic.misfits += file.rows
            else:
                topic.rows += file.rows
        self.rows += sum(file.rows for file in files if not file.dlq)
        self.misfits += sum(file.rows for file in files if file.dlq)
        self.files += len(files)
        self.bytes += sum(file.bytes for file in files)

    def add_facts(self, facts: Sequence[TaskFacts]) -> None:
        """Count what tasks have met."""
        self.left_out = sum(one.left_out for one in facts)
        self.bad_places = sum(one.bad_places for one in facts)
        if not self.dry_run:
            return  # files tell
        for one in facts:
            for topic, count in one.rows.items():
                self.topics.setdefault(topic, TopicReport()).rows += count
                self.rows += count

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Note how long a stage takes."""
        start = time.monotonic()
        yield
        self.seconds[stage] = time.monotonic() - start
