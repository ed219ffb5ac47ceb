"""Open a store whose queues and index a Spark job writes: learn what is there, write nothing of it.

The rule. The job's word (`done`) holds if it was given in this store's last opening, our snapshot is
trusted, the log reaches as far as the job went, nothing before that place had to be mended, and the last
unit of each queue is in its file. Then queues and index stay as the job left them, and what it has not
dispatched yet waits for it; the log alone is recovered. Otherwise (a first start, a power cut that took
a part of the log, files removed) the store recovers as it does without a job, to the end of the log.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from orbitmq.errors import FormatError
from orbitmq.files.disk import Disk
from orbitmq.files.layout import StoreLayout
from orbitmq.files.listing import list_segments
from orbitmq.format.checkpoint import Checkpoint
from orbitmq.format.columns import ScanOptions
from orbitmq.format.handover import DispatchedOffset
from orbitmq.format.kernels import Kernels
from orbitmq.format.snapshot import Snapshot
from orbitmq.log_read import LogStop, LogView, ReadState, replay, view_files
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.queues.load import check_states
from orbitmq.store.queues.trim import correct_min
from orbitmq.store.recovery.adopt import (
    NotTrustedError,
    RecoverOptions,
    RecoveryReport,
    load_queues,
    recover_store,
)
from orbitmq.store.spark_dispatch.followed_index import FollowedIndex


@dataclass(frozen=True, slots=True)
class Followed:
    """A store as the job left it."""

    report: RecoveryReport
    dispatcher: Dispatcher  # queues and index as far as the job went
    ahead: Dispatcher  # queues to the end of the log, for the next queue offsets alone


def recover_followed(
    options: RecoverOptions,
    make_dispatcher: Callable[[bool], Dispatcher],
    checkpoint: Checkpoint | None,
    snapshot: Snapshot | None,
    done: DispatchedOffset,
) -> Followed:
    """Recover the log and learn the rest. NotTrustedError: the job's word does not hold.

    `make_dispatcher` returns a new one over followed files, with the index in sight or without.
    """
    ahead = make_dispatcher(False)
    report = recover_store(replace(options, trusted_only=True), ahead, checkpoint, snapshot)
    assert snapshot is not None or not report.end_offset
    _check_reach(report, snapshot, done)
    dispatcher = make_dispatcher(True)
    assert isinstance(dispatcher.index, FollowedIndex)
    try:
        dispatcher.index.show(done.index_name, done.index_header)
    except FormatError as error:
        raise NotTrustedError(str(error)) from error
    if snapshot is not None:
        kernels = _kernels(options, done.log_offset - snapshot.dispatched_offset)
        catch_up(dispatcher, options.layout, options.disk, kernels, options.scan, snapshot, done)
        correct_min(dispatcher.queues, report.min_offset)
        dispatcher.batch_queues.correct_min(report.min_offset)
    return Followed(report, dispatcher, ahead)


def _kernels(options: RecoverOptions, log_bytes: int) -> Kernels:
    if options.fast_kernels is None or log_bytes <= options.plain_bytes:
        return options.kernels
    return options.fast_kernels()


def _check_reach(report: RecoveryReport, snapshot: Snapshot | None, done: DispatchedOffset) -> None:
    if done.log_offset > report.end_offset:
        raise NotTrustedError("the log ends before the place up to which it was dispatched")
    if snapshot is not None and snapshot.dispatched_offset > done.log_offset:
        raise NotTrustedError("the snapshot knows more than the job")
    if any(repair.start < done.log_offset for repair in report.repairs):
        raise NotTrustedError("the log was damaged before the place up to which it was dispatched")


def catch_up(
    dispatcher: Dispatcher,
    layout: StoreLayout,
    disk: Disk,
    kernels: Kernels,
    scan: ScanOptions,
    snapshot: Snapshot,
    done: DispatchedOffset,
) -> None:
    """Bring queues from the snapshot to where the job is. NotTrustedError: their files are not there.

    The dispatcher's files must be followed ones: what lies between the two is in them already.
    """
    load_queues(dispatcher, snapshot)
    state = ReadState(snapshot.dispatched_offset)
    plain = replace(scan, check_crc=False, check_property_crc=False)
    view = _view(layout, disk, snapshot.dispatched_offset, done.log_offset)
    start, end = max(snapshot.dispatched_offset, view.min_offset), done.log_offset
    for chunk in replay(view, start, end, kernels=kernels, options=plain, state=state):
        dispatcher.apply(chunk)
    if state.stop is LogStop.BAD:
        raise NotTrustedError(f"the log holds no record at {state.at}")
    if dispatcher.ext is not None:
        dispatcher.ext.write_out()
    dispatcher.queues.write_out(thorough=True)
    dispatcher.batch_queues.write_out()
    problems = check_states(dispatcher.queues) or dispatcher.batch_queues.check_states()
    if problems:
        raise NotTrustedError(problems[0])


def _view(layout: StoreLayout, disk: Disk, start: int, end: int) -> LogView:
    """Map the segments of a part of the log. The others may just be made or deleted."""
    files = [
        file
        for file in list_segments(layout.commit_log_directories)
        if file.base_offset < end and start < file.base_offset + layout.segment_bytes
    ]
    return view_files(files, layout.segment_bytes, disk, missing_allowed=False)
