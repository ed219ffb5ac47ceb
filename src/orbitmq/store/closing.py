"""Close a store in order, and say so if that was not possible.

Order: appends, background rounds, flush of the log, dispatch, flush of queues and index with snapshot and
checkpoint, preallocated segments and mappings, then the abort file - only if all of that succeeded.
"""

import logging
from collections.abc import Callable
from typing import Final

from orbitmq.errors import StoreError, StoreFailedError
from orbitmq.store.assembly import Dependencies, StoreParts
from orbitmq.store.background import Background
from orbitmq.units import SECOND_MS

_log = logging.getLogger(__name__)

DISPATCH_MS: Final = 60 * SECOND_MS
"""How long the rest of the log may take to be dispatched."""


class Closing:
    """The steps of a close; a step that fails does not keep the next ones from freeing resources."""

    def __init__(self, deps: Dependencies, parts: StoreParts, background: Background) -> None:
        self._deps, self._parts, self._background = deps, parts, background
        self._failure: StoreError | None = parts.flags.failure

    def run(self) -> None:
        parts = self._parts
        parts.log.appender.close()
        self._background.stop()
        self._try(parts.flusher.finish)
        self._try(self._finish_dispatch)
        if self._failure is None:
            self._try(self._flush_queues)
        for close in (parts.log.close, parts.dispatcher.index.close, parts.files.close):
            self._try(close)
        if self._failure is None:
            self._try(self._remove_abort)
        parts.lock.release()
        if self._failure is not None:
            raise StoreFailedError(
                self._failure.path,
                f"the store was not closed in order ({self._failure.what})",
                "Its abort file stays, and the next start recovers. Look at the disk first.",
            ) from self._failure

    def _finish_dispatch(self) -> None:
        dispatch = self._parts.dispatch
        if dispatch.stop(DISPATCH_MS):
            return
        dispatch.dispatch_now()
        if dispatch.behind_bytes:
            step = "Open it again: recovery dispatches the rest."
            what = f"{dispatch.behind_bytes} bytes of the log are not dispatched"
            raise StoreError(self._deps.layout.root, what, step)

    def _flush_queues(self) -> None:
        parts = self._parts
        parts.checkpoint.update(physic_ms=parts.flusher.flushed_store_ms or parts.log.last_store_ms)
        parts.queue_flusher.close()

    def _remove_abort(self) -> None:
        disk, layout = self._deps.disk, self._deps.layout
        disk.remove(layout.abort)
        disk.sync_directory(layout.root)

    def _try(self, step: Callable[[], object]) -> None:
        try:
            step()
        except StoreError as error:
            _log.warning("%s: close: %s", self._deps.layout.root, error)
            self._failure = self._failure or error
