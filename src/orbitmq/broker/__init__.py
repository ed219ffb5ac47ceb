"""A live broker: requests of clients and tools answered from a message store.

`broker.py` joins it, `router.py` finds the processor of a request. `processors/` has one for each
conversation, `tables/` what the broker knows, `sends/` the rules of a send, `delivery/` what reaches
consumers later.
"""

from typing import TYPE_CHECKING

from orbitmq.lazy import lazy_exports

if TYPE_CHECKING:
    from orbitmq.broker.broker import Broker
    from orbitmq.broker.config import BrokerConfig

__all__ = ["Broker", "BrokerConfig"]

__getattr__ = lazy_exports(
    __name__, {"Broker": "orbitmq.broker.broker", "BrokerConfig": "orbitmq.broker.config"}
)
