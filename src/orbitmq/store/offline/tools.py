"""What the tools that change a store offline share: its settings, its lock, its parts."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from orbitmq.clock import Clock
from orbitmq.files.disk import Disk
from orbitmq.files.layout import QueueKind, StoreLayout, guess_layout
from orbitmq.files.lock import StoreLock
from orbitmq.files.positioned import FileCache
from orbitmq.format.kernels import Kernels
from orbitmq.store.config import StoreConfig
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.index.files import IndexFiles
from orbitmq.store.queues.batch_queue import BatchQueues
from orbitmq.store.queues.consume_queue import ConsumeQueues
from orbitmq.store.queues.cq_ext import ExtQueues
from orbitmq.store.queues.names import QueueNames
from orbitmq.store.spark_dispatch.handover import taken_over
from orbitmq.store.topic_types import read_topic_types


def config_of(root: Path, settings: Mapping[str, str] | None) -> StoreConfig:
    """Return the config of a store that is there: sizes from its files, the rest from `settings`."""
    layout = guess_layout(root, settings)
    given = StoreConfig.from_settings(root, settings or {})
    return StoreConfig.from_settings(
        root,
        settings or {},
        commit_log_paths=layout.commit_log_paths,
        segment_bytes=layout.segment_bytes,
        cq_file_bytes=layout.cq_file_bytes,
        ext_file_bytes=layout.ext_file_bytes,
        batch_cq_file_bytes=layout.batch_cq_file_bytes,
        index_slots=layout.index_slots,
        index_items=layout.index_items,
        enable_cq_ext=given.enable_cq_ext or layout.queue_root(QueueKind.EXT).is_dir(),
    )


@contextmanager
def locked(layout: StoreLayout, disk: Disk) -> Iterator[None]:
    """Have a store to oneself. StoreLockedError: a broker or another tool has it open."""
    with StoreLock(disk, layout.lock, abort=layout.abort), taken_over(layout.root, disk):
        yield


def make_dispatcher(
    config: StoreConfig,
    layout: StoreLayout,
    files: FileCache,
    disk: Disk,
    kernels: Kernels,
    clock: Clock,
) -> Dispatcher:
    """Return a dispatcher whose queues and index lie where `layout` says; nothing is loaded."""
    names = QueueNames(kernels)
    topics = config.layout().config("topics.json")
    return Dispatcher(
        kernels,
        ConsumeQueues(layout, files, names),
        BatchQueues(layout, files, names),
        IndexFiles(layout, files, disk, kernels, clock, enabled=config.index_enabled),
        ext=ExtQueues(layout, files, names) if config.enable_cq_ext else None,
        topic_type=read_topic_types(topics, disk),
        multi_dispatch=config.enable_multi_dispatch,
    )
