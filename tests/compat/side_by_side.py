"""Scenarios that run many at a time: they wait for clients and servers far longer than they work."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

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
