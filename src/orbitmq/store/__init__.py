"""The live engine: commit log, consume queues, index, flush, recovery and cleaning. No sockets.

`MessageStore` joins everything of one store directory. `offline` has tools that need no engine.
"""

from typing import TYPE_CHECKING

from orbitmq.lazy import lazy_exports

if TYPE_CHECKING:
    from orbitmq.message import AppendRequest, AppendResult, AppendStatus, GetStatus
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.reads.get_result import GetResult
    from orbitmq.store.store import MessageStore

__all__ = [
    "AppendRequest",
    "AppendResult",
    "AppendStatus",
    "GetResult",
    "GetStatus",
    "MessageStore",
    "StoreConfig",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "AppendRequest": "orbitmq.message",
        "AppendResult": "orbitmq.message",
        "AppendStatus": "orbitmq.message",
        "GetResult": "orbitmq.store.reads.get_result",
        "GetStatus": "orbitmq.message",
        "MessageStore": "orbitmq.store.store",
        "StoreConfig": "orbitmq.store.config",
    },
)
