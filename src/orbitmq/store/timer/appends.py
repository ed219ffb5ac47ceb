"""Appending what is due: which refusals are final, and which only mean later."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from orbitmq.message import AppendRequest, AppendStatus

if TYPE_CHECKING:
    from orbitmq.store.store import MessageStore

_log = logging.getLogger(__name__)

_HOPELESS: Final = frozenset((AppendStatus.MESSAGE_ILLEGAL, AppendStatus.PROPERTIES_SIZE_EXCEEDED))


def append_due(store: "MessageStore", requests: Sequence[AppendRequest]) -> list[bool]:
    """Append all in this order; tell of each whether it is done with: stored, or never to be.

    RocketMQ gives up after three tries; here a message waits until the store takes it.
    """
    done = []
    for request, result in zip(requests, store.append_many_nowait(requests), strict=True):
        if result.status in _HOPELESS:
            _log.error("topic %s: a timer message is passed over: %s", request.topic, result.reason)
        elif not result.status.stored:
            _log.warning("topic %s: timer messages wait: %s", request.topic, result.reason)
        done.append(result.status.stored or result.status in _HOPELESS)
    return done
