"""Units behind the end of their queue, left by a crash: the record they point to did not survive."""

from orbitmq.errors import WrongFileError
from orbitmq.files.layout import QueueKind
from orbitmq.format.segment_name import segment_name
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.queues.consume_queue import ConsumeQueues
from orbitmq.store.queues.trim import cut_behind_end
from orbitmq.store.queues.unit_files import list_bases


def cut_stale_units(dispatcher: Dispatcher) -> int:
    """Cut what the files of all queues hold behind each queue's end; return how many simple units.

    Left there, they would come to light when the queue has grown up to them, or when a Java broker
    opens the store: it believes the files.
    """
    queues, batch_queues = dispatcher.queues, dispatcher.batch_queues
    if dispatcher.ext is not None:
        dispatcher.ext.cut_behind_ends()
    queues.write_out(thorough=True)
    batch_queues.write_out()
    for number in batch_queues.numbers():
        batch_queues.cut_files(number, batch_queues.unit_range(number)[1])
    _remove_unknown(queues)
    return sum(cut_behind_end(queues, number) for number in queues.numbers())


def _remove_unknown(queues: ConsumeQueues) -> None:
    """Remove files of queues that began after the snapshot, and of which no record survived."""
    layout, names = queues.layout, queues.names
    for kind in (QueueKind.SIMPLE, QueueKind.BATCH, QueueKind.EXT):
        for queue in layout.list_queues(kind, on_problem=_pass_over):
            if names.find(queue.topic, queue.queue_id) < 0:
                directory = layout.queue_directory(kind, queue.topic, queue.queue_id)
                for base in reversed(list_bases(str(directory))):
                    queues.files.remove(directory / segment_name(base))


def _pass_over(_: WrongFileError) -> None:
    """What is no file of a queue is not ours to remove."""
