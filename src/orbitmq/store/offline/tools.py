"""What the tools that change a store offline share: its settings, its lock."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from orbitmq.files.disk import Disk
from orbitmq.files.layout import QueueKind, StoreLayout, guess_layout
from orbitmq.files.lock import StoreLock
from orbitmq.store.config import StoreConfig
from orbitmq.store.spark_dispatch.handover import taken_over


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
