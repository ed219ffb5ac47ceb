"""`orbitmq spark dispatch`."""

import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.output import Output, bytes_text, note, print_json
from orbitmq.cli.spark.options import Conf, Master, open_session
from orbitmq.cli.store import OutputForm, Root

if TYPE_CHECKING:
    from orbitmq.spark.jobs.dispatch.job import DispatchJob, DispatchProgress

LINE_SECONDS = 5.0

Once = Annotated[
    bool, typer.Option("--once", help="Dispatch what the log holds now, then end (AvailableNow).")
]
BatchBytes = Annotated[
    int | None, typer.Option(help="So many bytes of the log at once at most; default 128 MiB.")
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(help="Where Spark keeps its notes while the job runs; default in the store."),
]


def dispatch(
    root: Root,
    once: Once = False,
    batch_bytes: BatchBytes = None,
    checkpoint: Checkpoint = None,
    master: Master = None,
    conf: Conf = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Write queues and index of a broker that was started with `--dispatch spark`, as its log grows.

    Ends with Ctrl-C, with --once, or when the broker is started with `--dispatch live`, which goes on where
    this stopped. Killed at any moment it can be started again. Lines on standard error tell how far it is.
    """
    from orbitmq.spark.jobs.dispatch.job import BATCH_BYTES, DispatchJob, DispatchOptions
    from orbitmq.store.spark_dispatch.handover import Handover
    from orbitmq.store.spark_dispatch.writer import read_settings

    read_settings(Handover(root))  # before Spark starts, which takes seconds
    options = DispatchOptions(
        once=once, batch_bytes=batch_bytes or BATCH_BYTES, checkpoint=checkpoint
    )
    session = open_session(master, conf)
    try:
        job = DispatchJob(session, root, options, show=_Lines().show)
        _stop_on_signals(job)
        progress = job.run()
    finally:
        session.stop()
    if output is Output.JSON:
        print_json(progress._asdict())
    else:
        typer.echo(_text(progress))


def _stop_on_signals(job: "DispatchJob") -> None:
    def stop(*_: object) -> None:
        note("stopping after the batch that is under way")
        job.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


class _Lines:
    """How far the job is: a line now and then, and one when it has caught up or the store's state changes."""

    def __init__(self) -> None:
        self._last: DispatchProgress | None = None
        self._at = 0.0

    def show(self, progress: "DispatchProgress") -> None:
        last, now = self._last, time.monotonic()
        changed = (
            last is None
            or last.store != progress.store
            or (last.behind_bytes > 0) != (progress.behind_bytes > 0)
        )
        moved = last is None or last.dispatched_offset != progress.dispatched_offset
        if changed or (moved and now >= self._at + LINE_SECONDS):
            self._last, self._at = progress, now
            sys.stderr.write(self._line(progress) + "\n")
            sys.stderr.flush()

    def _line(self, progress: "DispatchProgress") -> str:
        import msgspec

        if sys.stderr.isatty():
            return _text(progress)
        return msgspec.json.encode(progress._asdict()).decode()


def _text(progress: "DispatchProgress") -> str:
    return (
        f"dispatched to log offset {progress.dispatched_offset:,}, "
        f"{bytes_text(progress.behind_bytes)} behind, {progress.records:,} records in "
        f"{progress.batches:,} batches, {progress.latency_ms_p50:.0f} ms from append "
        f"(p99 {progress.latency_ms_p99:.0f} ms), store {progress.store}"
    )
