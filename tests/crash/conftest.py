"""The process that starts writers, one for all crash tests."""

from collections.abc import Iterator

import pytest

from crash.fork_server import ForkServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    server = ForkServer(tmp_path_factory.mktemp("fork_server") / "errors.txt")
    yield server
    server.close()
