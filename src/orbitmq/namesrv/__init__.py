"""The name server: it knows which broker serves which topic, and tells everybody who asks."""

from typing import TYPE_CHECKING

from orbitmq.lazy import lazy_exports

if TYPE_CHECKING:
    from orbitmq.namesrv.config import NamesrvConfig
    from orbitmq.namesrv.server import NameServer

__all__ = ["NameServer", "NamesrvConfig"]

__getattr__ = lazy_exports(
    __name__,
    {"NameServer": "orbitmq.namesrv.server", "NamesrvConfig": "orbitmq.namesrv.config"},
)
