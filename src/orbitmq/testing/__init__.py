"""For tests: a broker that starts in one, a clock that a test owns, disks that fail or lose power.

from orbitmq.testing import Broker
"""

from typing import Any


def __getattr__(name: str) -> Any:
    # A test that only wants the fake clock should not import the broker.
    if name == "Broker":
        from orbitmq.testing.broker import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
