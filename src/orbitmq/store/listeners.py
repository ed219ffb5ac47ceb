"""Tell others what has happened in the store, whatever they make of it."""

import logging
from collections.abc import Callable, Iterable
from typing import ParamSpec

_log = logging.getLogger(__name__)

P = ParamSpec("P")


def tell(listeners: Iterable[Callable[P, object]], *args: P.args, **kwargs: P.kwargs) -> None:
    """Call each listener. Its exceptions are its own bugs: they are logged and stop nobody.

    A broker's event loop that was closed a moment ago must not look like a broken store.
    """
    for listener in listeners:
        try:
            listener(*args, **kwargs)
        except Exception:
            _log.exception("a listener failed: %r", listener)
