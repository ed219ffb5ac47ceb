"""How long Spark jobs show how far they are: a bar on a terminal, JSON lines elsewhere.

The lines go to standard error, so that standard output holds the result alone:
{"stage":"scan","bytes":1048576,"total_bytes":4194304,"records":1024,"bytes_per_second":...,"records_per_second":...,
"seconds":...,"seconds_left":...,"finished":false}
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from orbitmq.cli.output import bytes_text

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from orbitmq.spark.context import Spark
    from orbitmq.spark.progress import JobProgress, StageProgress

LINE_SECONDS: Final = 5.0


@contextmanager
def shown_progress(spark: "Spark") -> Iterator["JobProgress"]:
    """Give a job its progress, shown as fits where standard error goes. Ctrl-C in it cancels the job."""
    from orbitmq.spark.progress import JobProgress

    form: ProgressBar | ProgressLines = ProgressBar() if sys.stderr.isatty() else ProgressLines()
    try:
        with JobProgress(spark, show=form.show) as progress:
            yield progress
    finally:
        form.close()


class ProgressLines:
    """One line when a stage starts, one when it ends, and one every few seconds between."""

    def __init__(self) -> None:
        self._stage = ""
        self._next = 0.0

    def show(self, progress: "StageProgress") -> None:
        now = time.monotonic()
        if progress.stage == self._stage and not progress.finished and now < self._next:
            return
        self._stage, self._next = progress.stage, now + LINE_SECONDS
        sys.stderr.write(json_line(progress) + "\n")
        sys.stderr.flush()

    def close(self) -> None:
        """Nothing stays open."""


def json_line(progress: "StageProgress") -> str:
    import msgspec

    left = progress.seconds_left
    line = progress._asdict() | {
        "seconds": round(progress.seconds, 3),
        "bytes_per_second": round(progress.bytes_per_second),
        "records_per_second": round(progress.records_per_second),
        "seconds_left": None if left is None else round(left, 1),
    }
    return msgspec.json.encode(line).decode()


class ProgressBar:
    """A bar per stage with bytes, records, rate and time left."""

    def __init__(self) -> None:
        self._bars: Progress | None = None
        self._stages: dict[str, TaskID] = {}

    def show(self, progress: "StageProgress") -> None:
        bars = self._bars or self._start()
        stage = self._stages.get(progress.stage)
        total = progress.total_bytes or None
        if stage is None:
            stage = bars.add_task(progress.stage, total=total, note="")
            self._stages[progress.stage] = stage
        done = progress.bytes
        if progress.finished and total is None:  # a bar without an end must not go on moving
            total = done = 1
        elif progress.finished:
            done = progress.total_bytes
        bars.update(stage, completed=done, total=total, note=note_text(progress))

    def _start(self) -> "Progress":
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=Console(stderr=True),
        )
        bars.start()
        self._bars = bars
        return bars

    def close(self) -> None:
        if self._bars is not None:
            self._bars.stop()


def note_text(progress: "StageProgress") -> str:
    done = bytes_text(progress.bytes)
    if progress.total_bytes:
        done += f" of {bytes_text(progress.total_bytes)}"
    rate = bytes_text(round(progress.bytes_per_second))
    return f"{done}, {progress.records:,} records, {rate}/s"
