"""What a start of the store has to know of rebuilt files, so that it can trust them."""

from collections.abc import Callable

from orbitmq.files.layout import StoreLayout
from orbitmq.format.cq_ext_unit import HEAD_BYTES
from orbitmq.format.snapshot import NO_EXT, QueueState
from orbitmq.format.snapshot import QueueKind as SnapshotKind
from orbitmq.spark.jobs.rebuild.plan import ext_units_per_file
from orbitmq.spark.jobs.rebuild.queue_runs import QueueResult, QueueRuns
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.index.files import FullIndex, IndexFiles
from orbitmq.store.queues.load import load_states


def load_rebuilt(
    dispatcher: Dispatcher, simple: QueueRuns, batches: QueueRuns, layout: StoreLayout
) -> None:
    """Let a dispatcher on the new files know them, as if it had written them."""
    load_states(dispatcher.queues, _states(simple, SnapshotKind.SIMPLE, lambda _: NO_EXT))
    # Here the last field is the number of units, as in BatchQueues.states.
    states = _states(batches, SnapshotKind.BATCH, lambda result: result.units)
    dispatcher.batch_queues.load_states(states)
    if dispatcher.ext is not None:
        for result in simple.queues:
            if result.ext_units:
                number = dispatcher.queues.find(result.queue.topic, result.queue.queue_id)
                dispatcher.ext.load_end(number, _ext_end(result.ext_units, layout.ext_file_bytes))
    if dispatcher.index.enabled:
        _load_index(dispatcher.index)


def _load_index(index: IndexFiles) -> None:
    """Take the index files by their headers; nobody will insert into them here."""
    files = [(name, path, index.read_header(path)) for name, path, _ in index.list_files()]
    full = [FullIndex(name, path, header) for name, path, header in files if header is not None]
    current = None
    if full and full[-1].next_item < index.layout.index_items:
        last = full.pop()
        current = index.open_file(last.name)
        current.start(last.header)
    index.reset(full, current)


def _states(
    runs: QueueRuns, kind: SnapshotKind, last: Callable[[QueueResult], int]
) -> list[QueueState]:
    return [
        QueueState(
            kind,
            result.queue.topic,
            result.queue.queue_id,
            result.min_offset,
            result.next_offset,
            result.end_log,
            last(result),
        )
        for result in runs.queues
    ]


def _ext_end(units: int, file_bytes: int) -> int:
    """Return where the next ext unit of a queue goes."""
    files, inside = divmod(units - 1, ext_units_per_file(file_bytes))
    return files * file_bytes + (inside + 1) * HEAD_BYTES
