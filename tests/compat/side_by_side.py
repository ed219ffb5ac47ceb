"""Scenarios that run many at a time: they wait for clients and servers far longer than they work."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final

import pytest

AT_ONCE: Final = 8

Outcome = Callable[[], None]


@contextmanager
def begun(runs: Mapping[str, Callable[[], None]]) -> Iterator[Mapping[str, Outcome]]:
    """Begin all runs, in their order; yield for each what waits for its end and raises its error."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {name: pool.submit(run) for name, run in runs.items()}
        try:
            yield {name: future.result for name, future in futures.items()}
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def begun_tests(
    request: pytest.FixtureRequest, test: Callable[..., None], play: Callable[..., None]
) -> Iterator[Mapping[str, Outcome]]:
    """Begin what a parametrised test stands for, as often as the run selects it; yield outcomes by node id.

    `play` gets the parameters of each.
    """
    runs = {
        item.nodeid: partial(play, **item.callspec.params)
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.obj is test
    }
    with begun(runs) as started:
        yield started
