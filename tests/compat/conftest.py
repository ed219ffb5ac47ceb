"""Fixtures of the compatibility tests: clusters that live as long as the test run."""

from collections.abc import Iterator

import pytest

from compat.clusters import Clusters, clusters_below


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    with clusters_below(tmp_path_factory.mktemp("clusters")) as started:
        yield started
