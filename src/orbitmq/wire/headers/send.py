"""Headers of sending: requests 10 (full field names), 310 and 320 (one letter each), and their answer."""

from collections.abc import Mapping
from dataclasses import field
from typing import Final, Self

from orbitmq.message import Property
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.header import Header

LETTERS: Final = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
    "bname": "n",
}
"""Full field name -> the letter that stands for it."""

BROKER_PROPERTIES: Final = frozenset(
    (Property.REGION, Property.TRACE_ON, Property.CLUSTER, Property.POP_CK, Property.TRANSACTION)
)
"""Properties of a message that the broker sets itself, drops or looks at."""


class SendHeader(Header):
    """Where a message goes and everything of it but its body."""

    topic: str
    queue_id: int  # negative: the broker chooses
    sys_flag: int
    born_timestamp: int
    flag: int
    producer_group: str | None = None  # RocketMQ too takes messages without
    default_topic: str | None = None  # template from which an unknown topic is made
    default_topic_queue_nums: int | None = None
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool = False
    max_reconsume_times: int | None = None
    batch: bool = False  # the body is a client batch
    bname: str | None = None  # name of the broker

    @classmethod
    def read_any(cls, code: int, fields: Mapping[str, str] | None) -> Self:
        """Return the header of a request with this code: 10 has full names, 310 and 320 letters."""
        if code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE):
            return cls.read(fields)
        return cls.read(fields, LETTERS)


class SendAnswer(Header):
    """Where a message went. Clients need ids and offsets with each of the codes 0, 10, 11 and 12.

    In the order in which RocketMQ writes them.
    """

    queue_id: int
    transaction_id: str | None = None  # UNIQ_KEY of the message
    msg_id: str  # offset id; of a batch all, separated by commas
    trace_on: bool | None = field(default=None, metadata={"wire": "TRACE_ON"})
    region: str | None = field(default=None, metadata={"wire": "MSG_REGION"})
    queue_offset: int  # of a batch: the first
    batch_uniq_id: str | None = None  # of a batch that is kept as one record
    recall_handle: str | None = None
