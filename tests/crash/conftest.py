"""What the crash tests share: the process that starts writers, and the seed of all chance."""

import os
from collections.abc import Iterator

import pytest

from crash.fork_server import ForkServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    server = ForkServer(tmp_path_factory.mktemp("fork_server") / "errors.txt")
    yield server
    server.close()


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> str:
    """Return what all random choices of a test come from; a failure shows how to repeat them."""
    seed = os.environ.get("ORBITMQ_CRASH_SEED", "0")
    print(f"again: ORBITMQ_CRASH_SEED={seed} pytest '{request.node.nodeid}'")  # noqa: T201
    return f"{seed} {request.node.name}"
