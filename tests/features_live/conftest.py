"""A live broker for each test, and the commands that operators use on it."""

from collections.abc import Iterator

import pytest

from cluster_commands import Cluster
from orbitmq.testing import Broker


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Broker() as broker:
        yield Cluster(broker)
