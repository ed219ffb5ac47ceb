"""OrbitMQ: a RocketMQ-compatible message log in Python.

from orbitmq import Consumer, Message, Producer      a client of any RocketMQ cluster
from orbitmq.store import MessageStore               a log in this process, without a broker
from orbitmq.broker import Broker                    a broker in this process
from orbitmq.spark import session                    the log as a Spark table
from orbitmq.testing import Broker                   a broker for a test
"""

from orbitmq.lazy import TYPE_CHECKING, lazy_exports

if TYPE_CHECKING:
    from orbitmq.client import Consumer, Message, Producer

__version__ = "0.1.0"

__all__ = ["Consumer", "Message", "Producer", "__version__"]

__getattr__ = lazy_exports(
    __name__, dict.fromkeys(("Consumer", "Message", "Producer"), "orbitmq.client")
)
