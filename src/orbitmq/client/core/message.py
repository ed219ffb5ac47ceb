"""Message: what is sent. ReceivedMessage: what comes back, decoded from stored records."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from orbitmq.errors import ConfigError, FormatError
from orbitmq.format.client_batch import decode_client_batch
from orbitmq.format.compression import decompress
from orbitmq.format.properties import decode_properties
from orbitmq.format.record import Record, decode_record
from orbitmq.message import Property, SysFlag
from orbitmq.wire.bodies.message_queue import MessageQueue

_log = logging.getLogger(__name__)

_INNER_BATCH: Final = SysFlag.INNER_BATCH.value | SysFlag.NEED_UNWRAP.value


@dataclass(slots=True)
class Message:
    """What to send.

    `keys` are found again by `orbitmq message query --key`; `tag` is what consumers filter by.
    `delay_level` is one of the broker's 18 levels (1s 5s 10s 30s 1m 2m ...). Any other delay, up to the
    broker's limit of 3 days: `delay_ms`, or `deliver_ms`, the epoch milliseconds of its delivery.
    """

    topic: str
    body: bytes
    tag: str = ""
    keys: Sequence[str] | str = ()
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    delay_level: int = 0
    deliver_ms: int = 0
    delay_ms: int = 0
    wait_stored: bool = True
    reserved: dict[str, str] = field(default_factory=dict, repr=False)
    """Properties to which RocketMQ itself gives a meaning; not looked at."""

    @property
    def is_delayed(self) -> bool:
        return bool(self.delay_level or self.deliver_ms or self.delay_ms)

    @property
    def key_list(self) -> list[str]:
        return self.keys.split() if isinstance(self.keys, str) else list(self.keys)


@dataclass(slots=True)
class ReceivedMessage:
    """A message as a broker stored it; the body is unpacked."""

    topic: str
    body: bytes
    broker_name: str
    queue_id: int
    queue_offset: int
    log_offset: int
    properties: dict[str, str]
    born_ms: int
    store_ms: int
    born_host: str
    store_host: str
    offset_id: str
    reconsume_times: int = 0
    flag: int = 0
    sys_flag: int = 0
    prepared_offset: int = 0
    stored_bytes: int = 0

    @property
    def message_id(self) -> str:
        """The producer's id of the message; where it gave none, the broker's."""
        return self.properties.get(Property.UNIQ_KEY) or self.offset_id

    @property
    def tag(self) -> str:
        return self.properties.get(Property.TAGS, "")

    @property
    def keys(self) -> list[str]:
        return self.properties.get(Property.KEYS, "").split()

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


def decode_messages(body: bytes, broker_name: str = "") -> list[ReceivedMessage]:
    """Return the messages in the body of a pull or query answer. FormatError: it is broken.

    An inner batch becomes its messages. A body that cannot be unpacked stays as it is stored, and
    keeps the bit that says so.
    """
    messages: list[ReceivedMessage] = []
    position = 0
    while position < len(body):
        record = decode_record(body, position)
        position += record.size
        messages += unwrap(received(record, broker_name))
    return messages


def received(record: Record, broker_name: str = "") -> ReceivedMessage:
    """Return the message of a record."""
    body, sys_flag = record.body, record.sys_flag
    if sys_flag & SysFlag.COMPRESSED.value:
        body, sys_flag = _unpacked(record)
    return ReceivedMessage(
        record.topic,
        body,
        broker_name,
        record.queue_id,
        record.queue_offset,
        record.log_offset,
        decode_properties(record.properties),
        record.born_ms,
        record.store_ms,
        record.born_host.text(),
        record.store_host.text(),
        record.offset_id,
        record.reconsume_times,
        record.flag,
        sys_flag,
        record.prepared_offset,
        record.size,
    )


def _unpacked(record: Record) -> tuple[bytes, int]:
    try:
        unpacked = decompress(record.body, record.sys_flag)
    except (FormatError, ConfigError) as cause:
        # Dropping it, or failing the whole answer, would lose messages; the reader can see the bit.
        _log.warning("message %s of topic %s: %s", record.offset_id, record.topic, cause)
        return record.body, record.sys_flag
    return unpacked, record.sys_flag & ~SysFlag.COMPRESSED.value


def unwrap(message: ReceivedMessage) -> Iterator[ReceivedMessage]:
    """Yield the messages of an inner batch, or the message itself where it is none."""
    if message.sys_flag & _INNER_BATCH != _INNER_BATCH:
        yield message
        return
    for index, inner in enumerate(decode_client_batch(message.body)):
        yield replace(
            message,
            body=inner.body,
            properties=decode_properties(inner.properties),
            flag=inner.flag,
            queue_offset=message.queue_offset + index,
        )
