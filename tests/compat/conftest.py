"""Fixtures of the compatibility tests: servers and clients that live as long as the test run."""

from collections.abc import Iterator

import pytest

from compat.client_kinds import Clients
from compat.clusters import Clusters, clusters_below


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    with clusters_below(tmp_path_factory.mktemp("clusters")) as started:
        yield started


@pytest.fixture(scope="session")
def clients(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """The client programs; they end before the servers that they may still be on."""
    started = Clients(tmp_path_factory.mktemp("clients"))
    yield started
    started.end()
