"""Columns of timer messages, many at once: what their records say, and which queues they wait for.

A record is simple if nothing about it needs a second look: version 1, IPv4 hosts, an ordinary message when
it is due, with a time, a topic of ASCII and a queue that are written as we write them. The kernels know only
these, and stop at the first that is none; the rules for all others are in `store/timer/waiting.py`.
"""

from typing import Final

import numpy as np

from orbitmq.message import PROPERTIES_BYTES_MAX, Property

WAITING: Final = np.dtype(
    [
        ("at", "i8"),  # of the record
        ("body_at", "i8"),
        ("body_length", "i8"),
        ("properties_at", "i8"),
        ("properties_length", "i8"),
        ("topic_at", "i8"),  # of the topic that it waits for
        ("topic_length", "i8"),
        ("topic_hash", "i8"),
        ("key_at", "i8"),  # its unique key, which a recall names; both numbers 0: it has none
        ("key_length", "i8"),
        ("queue_id", "i8"),
        ("slot_ms", "i8"),
        ("cancels", "i8"),  # 1: it cancels another message
        ("enqueue_ms", "i8"),
        ("queue", "i8"),  # number of its queue among those that were found
        ("bytes", "i8"),  # of the record that is delivered
    ]
)
"""One timer message. Positions count from the start of the data."""

WAITED_FOR: Final = np.dtype(
    [
        ("topic_at", "i8"),
        ("topic_length", "i8"),
        ("queue_id", "i8"),
        ("messages", "i8"),
        ("cancels", "i8"),  # so many of them cancel others
        ("next_offset", "i8"),  # queue offset of the next message; set by the caller
    ]
)
"""A queue that messages wait for."""

SLOT_DIGITS_MAX: Final = 18
QUEUE_DIGITS_MAX: Final = 9
ENQUEUED_TEXT: Final = f"{Property.TIMER_ENQUEUE_MS}\x01".encode()
DELIVERED_TEXT: Final = f"\x02{Property.TIMER_DEQUEUE_MS}\x01".encode()
STAMPS_BYTES_MAX: Final = len(ENQUEUED_TEXT) + len(DELIVERED_TEXT) + 2 * 19 + 1
WAITING_PROPERTIES_MAX: Final = PROPERTIES_BYTES_MAX - STAMPS_BYTES_MAX
ODD_WORDS: Final = (b"INNER_", Property.TIMER_ENQUEUE_MS.encode())
"""Nowhere in the properties of a simple record: what only an inner batch has, and one that was rolled."""

# Sends (`wire.fast`)

TIMED: Final = (Property.TIMER_DELIVER_MS, Property.TIMER_DELAY_MS, Property.TIMER_DELAY_SEC)
"""Properties that say when a message is due. One that kernels take from a send has one of them at most."""
SLOT_DIGITS: Final = 13
SLOT_MS_MIN, SLOT_MS_MAX = 10 ** (SLOT_DIGITS - 1), 10**SLOT_DIGITS - 1
"""Times of slots in which such a message can wait: all from 2001 to 2286."""
