"""Open the files of a store: lock, recover, join the parts, leave the abort file."""

import logging
import os

from orbitmq.files.lock import StoreLock
from orbitmq.files.positioned import FileCache
from orbitmq.files.replace import make_durable_directory, write_durably
from orbitmq.store.assembly import Dependencies, Opening, StoreParts, closed_on_error
from orbitmq.store.config import StoreConfig
from orbitmq.store.cut import finish_cut
from orbitmq.store.spark_dispatch.handover import Handover

_log = logging.getLogger(__name__)


def open_parts(deps: Dependencies) -> StoreParts:
    """Open a store's files and recover. On an error everything is closed again and the lock is free."""
    layout, disk = deps.layout, deps.disk
    _warn_of_unused_pool(deps.config)
    make_durable_directory(disk, layout.root)
    lock = StoreLock(disk, layout.lock, abort=layout.abort).acquire()
    handover = Handover(layout.root, disk, deps.clock)
    try:
        finish_cut(layout, disk, deps.clock)
        if deps.config.follows_spark:
            # Here, not above: few stores are followed, and it brings along a good deal.
            from orbitmq.store.spark_dispatch.opening import FollowedOpening

            parts = FollowedOpening(deps, lock, handover).run()
        else:
            parts = _open_live(deps, lock, handover)
        # The mark of a running store, durable before anything else is written.
        write_durably(disk, layout.abort, str(os.getpid()).encode())
        disk.sync_directory(layout.root)
    except BaseException:
        lock.release()
        raise
    return parts


def _open_live(deps: Dependencies, lock: StoreLock, handover: Handover) -> StoreParts:
    with closed_on_error(FileCache(deps.disk)) as files:
        opening = Opening(deps, lock, files)
        if handover.settings() is None:
            return opening.run()
        # A job may be at work: wait for its batch, then take its work over.
        with handover.writing():
            parts = opening.run()
            handover.withdraw()
        return parts


def _warn_of_unused_pool(config: StoreConfig) -> None:
    if config.transient_pool and not config.uses_pool:
        objection = config.pool_objection
        _log.warning("transientStorePoolEnable: the store runs without the pool: %s", objection)
