"""What a start of the store has to know of rebuilt files, so that it can trust them."""

from orbitmq.files.layout import StoreLayout
from orbitmq.format.cq_ext_unit import HEAD_BYTES
from orbitmq.format.snapshot import NO_EXT, QueueState
from orbitmq.format.snapshot import QueueKind as SnapshotKind
from orbitmq.spark.jobs.queue_runs import QueueResult, QueueRuns
from orbitmq.spark.jobs.rebuild_plan import ext_units_per_file
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.index.index_load import load_index_files
from orbitmq.store.queues.queue_load import load_states


def load_rebuilt(
    dispatcher: Dispatcher, simple: QueueRuns, batches: QueueRuns, layout: StoreLayout
) -> None:
    """Let a dispatcher on the new files know them, as if it had written them."""
    load_states(dispatcher.queues, [_simple_state(result) for result in simple.queues])
    dispatcher.batch_queues.load_states([_batch_state(result) for result in batches.queues])
    if dispatcher.ext is not None:
        for result in simple.queues:
            if result.ext_units:
                number = dispatcher.queues.find(result.queue.topic, result.queue.queue_id)
                dispatcher.ext.load_end(number, _ext_end(result.ext_units, layout.ext_file_bytes))
    if dispatcher.index.enabled:
        load_index_files(dispatcher.index, read_only=True)


def _simple_state(result: QueueResult) -> QueueState:
    return QueueState(
        SnapshotKind.SIMPLE,
        result.queue.topic,
        result.queue.queue_id,
        result.min_offset,
        result.next_offset,
        result.end_log,
        NO_EXT,
    )


def _batch_state(result: QueueResult) -> QueueState:
    # Here the last field is the number of units, as in BatchQueues.states.
    return QueueState(
        SnapshotKind.BATCH,
        result.queue.topic,
        result.queue.queue_id,
        result.min_offset,
        result.next_offset,
        result.end_log,
        result.units,
    )


def _ext_end(units: int, file_bytes: int) -> int:
    """Return where the next ext unit of a queue goes."""
    files, inside = divmod(units - 1, ext_units_per_file(file_bytes))
    return files * file_bytes + (inside + 1) * HEAD_BYTES
