"""Fixtures of the compatibility tests: servers and clients for all tests of this folder."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from compat.client_kinds import Clients
from compat.clusters import Clusters, clusters_below

HERE = Path(__file__).parent
RUNNING = ExitStack()
"""What is shared by all tests of this folder. An idle broker of RocketMQ takes a seventh of a core."""


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    with RUNNING:
        yield RUNNING.enter_context(clusters_below(tmp_path_factory.mktemp("clusters")))


@pytest.fixture(scope="session")
def clients(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Clients:
    """The client programs; they end before the servers that they may still be on."""
    started = Clients(tmp_path_factory.mktemp("clients"))
    RUNNING.callback(started.end)
    return started


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """End what is shared with the last test of this folder: this process may go on with others."""
    result = yield
    if nextitem is not None and not nextitem.path.is_relative_to(HERE):
        RUNNING.close()
    return result
