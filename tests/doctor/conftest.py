"""What the doctor's tests ask for by name."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_commands import Cluster
from doctor.doctor_command import Doctor
from doctor.live_cluster import ClusterDoctor
from doctor.planted_store import Planted
from orbitmq.testing import Broker


@pytest.fixture
def doctor() -> Doctor:
    return Doctor()


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    return Planted(tmp_path)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Broker() as broker:
        yield Cluster(broker)


@pytest.fixture
def ask(cluster: Cluster) -> ClusterDoctor:
    return ClusterDoctor(cluster.namesrv)
