"""One live broker for all tests of the commands that talk to a cluster."""

from collections.abc import Iterator

import pytest

from cluster_commands import Cluster
from orbitmq.testing import Broker


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with Broker(settings={"recallMessageEnable": "true"}) as broker:
        yield Cluster(broker)
