"""Put a dispatcher together: queues of all kinds and the index, over the same files."""

from collections.abc import Callable

from orbitmq.clock import Clock
from orbitmq.files.disk import Disk
from orbitmq.files.layout import StoreLayout
from orbitmq.files.positioned import FileCache
from orbitmq.format.kernels import Kernels
from orbitmq.store.config import StoreConfig
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.index.files import IndexFiles
from orbitmq.store.queues.batch_queue import BatchQueues
from orbitmq.store.queues.consume_queue import ConsumeQueues
from orbitmq.store.queues.cq_ext import ExtQueues
from orbitmq.store.queues.names import QueueNames
from orbitmq.store.topic_types import TopicTypes, read_topic_types


def make_dispatcher(
    config: StoreConfig,
    layout: StoreLayout,
    files: FileCache,
    disk: Disk,
    kernels: Kernels,
    clock: Clock,
    *,
    topic_types: TopicTypes | None = None,
    index: IndexFiles | None = None,
    make: Callable[..., Dispatcher] = Dispatcher,
) -> Dispatcher:
    """Return a dispatcher whose queues and index lie where `layout` says; nothing is loaded.

    Without `topic_types` the store's own table of topics tells the kind of each queue.
    """
    names = QueueNames(kernels)
    return make(
        kernels,
        ConsumeQueues(layout, files, names),
        BatchQueues(layout, files, names),
        index
        or IndexFiles(
            layout,
            files,
            disk,
            kernels,
            clock,
            enabled=config.index_enabled,
            roll_ms=config.index_roll_ms,
            files_max=config.index_files_max,
        ),
        ext=ExtQueues(layout, files, names) if config.enable_cq_ext else None,
        topic_type=topic_types or read_topic_types(config.layout().config("topics.json"), disk),
        multi_dispatch=config.enable_multi_dispatch,
    )
