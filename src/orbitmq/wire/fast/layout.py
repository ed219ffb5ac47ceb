"""What a set of kernels of sends is, and what they exchange: rows of sends and queues, parts of an answer."""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.format.waiting import SLOT_DIGITS
from orbitmq.message import TOPIC_BYTES_MAX, Property
from orbitmq.wire.headers.send import LETTERS

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Table = npt.NDArray[np.void]  # of SEND or QUEUE

SEND: Final = np.dtype(
    [
        ("topic_at", "i8"),
        ("topic_length", "i8"),
        ("properties_at", "i8"),  # in the text, not in the data
        ("properties_length", "i8"),
        ("key_at", "i8"),  # in the text
        ("key_length", "i8"),
        ("body_at", "i8"),
        ("body_length", "i8"),
        ("language_at", "i8"),
        ("language_length", "i8"),
        ("born_ms", "i8"),
        ("log_offset", "i8"),  # of the first message; written by `write_sends`
        ("queue_offset", "i8"),
        ("queue_id", "i8"),
        ("sys_flag", "i8"),
        ("flag", "i8"),
        ("reconsume_times", "i8"),
        ("opaque", "i8"),
        ("version", "i8"),
        ("queue", "i8"),  # number of its queue among those of the run
        ("messages", "i8"),
        ("bytes", "i8"),  # of its records
        ("batch", "i8"),  # 1: the body is a client batch
        ("oneway", "i8"),
        ("timed", "i8"),  # which of TIMED says when it is due, counted from 1; 0: none
        ("time", "i8"),  # what that says
        ("slot_ms", "i8"),  # where in the timer wheel it waits; set by the caller, 0: nowhere
    ]
)
"""One send. Positions count from the start of the data, unless said otherwise."""

QUEUE: Final = np.dtype(
    [
        ("topic_at", "i8"),
        ("topic_length", "i8"),
        ("queue_id", "i8"),
        ("messages", "i8"),
        ("bytes", "i8"),  # of their records
        ("next_offset", "i8"),  # queue offset of the next message; set by the caller
        ("waiting", "i8"),  # so many of the messages wait for their time before they go there
    ]
)
"""A queue that sends of a run go to."""

REQUIRED: Final = ("topic", "queueId", "sysFlag", "bornTimestamp", "flag", "properties")
"""Fields that every ordinary send has, by their whole names."""
NUMBERS: Final = (
    *("queueId", "sysFlag", "bornTimestamp", "flag", "reconsumeTimes"),
    *("defaultTopicQueueNums", "maxReconsumeTimes"),
)
"""Fields that must be numbers, not negative, where they are given."""
assert {*REQUIRED, *NUMBERS} <= LETTERS.keys()

NAMES_MAX: Final = 64
"""A send with more properties goes the general way."""

TIME_DIGITS_MAX: Final = 15
MOVED: Final = (Property.REAL_TOPIC, Property.REAL_QUEUE_ID)
"""What the store writes into a message that waits; one that says it itself goes the general way."""
BEFORE_SLOT: Final = f"{Property.TIMER_OUT_MS}\x01".encode()
BEFORE_REAL_TOPIC: Final = f"\x02{Property.REAL_TOPIC}\x01".encode()
BEFORE_REAL_QUEUE: Final = f"\x02{Property.REAL_QUEUE_ID}\x01".encode()
MOVED_BYTES: Final = (
    len(BEFORE_SLOT) + SLOT_DIGITS + len(BEFORE_REAL_TOPIC) + len(BEFORE_REAL_QUEUE) + 1
)
"""Of what is added to the properties of a message that waits, but for topic and queue."""

# The parts of an answer between its values, in the order in which they stand in it.
BEFORE_QUEUE_ID, BEFORE_KEY, BEFORE_ID, ID_START, BEFORE_OFFSET, BEFORE_OPAQUE, LAST = range(7)
# Before the queue offset, if there is a recall handle; the beginning of that, and the broker in it.
BEFORE_HANDLE, BEHIND_HANDLE, HANDLE_START, HANDLE_BROKER = range(7, 11)
PARTS: Final = 11
ANSWER_BYTES_MAX: Final = 3 * 20 + 16  # of the values of one answer, but for its key and handle
HANDLE_TEXT_MAX: Final = TOPIC_BYTES_MAX + SLOT_DIGITS + 2  # but for key, start and broker


class SendKernels(NamedTuple):
    """One set of kernels. `plain` tells what each takes and does; both sets take the same, by position."""

    name: str  # "plain" or "compiled"
    find_sends: Callable[..., tuple[int, ...]]
    write_sends: Callable[..., int]
    publish_records: Callable[..., None]
    write_answers: Callable[..., int]
