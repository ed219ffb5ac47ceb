"""Fixtures for pytest; installed with the package, so that a test only has to name them.

def test_orders(orbitmq_broker):
    with Producer(orbitmq_broker.namesrv, "test") as producer:
        producer.send(Message("Orders", b"hello"))

Every pytest run of an environment with OrbitMQ loads this module, so it imports nothing but pytest.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from orbitmq.testing.broker import Broker


@pytest.fixture
def orbitmq_broker() -> "Iterator[Broker]":
    """A broker with its name server and an empty store, for this test alone."""
    from orbitmq.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def orbitmq_session_broker() -> "Iterator[Broker]":
    """A broker for the whole run: the tests share its topics and groups, so they choose their own."""
    from orbitmq.testing.broker import Broker

    with Broker() as broker:
        yield broker
