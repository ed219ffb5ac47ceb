"""Turn a message into the fields and the body of a send request (310) or of a batch (320)."""

from collections.abc import Iterator, Sequence
from typing import Final

from orbitmq.client.core.config import ClientConfig
from orbitmq.client.core.message import Message
from orbitmq.client.core.name_rules import require_message, require_properties_size
from orbitmq.client.producer.unique_id import UniqueIdMaker
from orbitmq.clock import Clock
from orbitmq.errors import InvalidMessageError
from orbitmq.format.client_batch import OVERHEAD_BYTES, ClientMessage, encode_client_batch
from orbitmq.format.compression import FLAGS, compress
from orbitmq.message import RETRY_PREFIX, Property, SysFlag
from orbitmq.wire.codes import RequestCode

_WAIT: Final = "WAIT\x01true\x02"
_NO_WAIT: Final = "WAIT\x01false\x02"
_PREPARED: Final = SysFlag.PREPARED.value


class SendRequest:
    """A message ready to go; queue and broker name are filled in at each try."""

    __slots__ = ("body", "code", "fields", "message_id", "message_ids", "topic")

    def __init__(
        self,
        topic: str,
        code: int,
        fields: dict[str, str],
        body: bytes,
        message_id: str,
        message_ids: list[str] | None = None,
    ) -> None:
        self.topic, self.code, self.fields, self.body = topic, code, fields, body
        self.message_id, self.message_ids = message_id, message_ids


class RequestMaker:
    """Makes send requests of one producer group. Any thread may use it."""

    def __init__(self, group: str, config: ClientConfig, ids: UniqueIdMaker, clock: Clock) -> None:
        self._group, self._config, self._ids, self._clock = group, config, ids, clock
        self._queues = str(config.creation_queues)
        self._unit_mode = "true" if config.unit_name else "false"

    def single(self, message: Message) -> SendRequest:
        """Return the request for one message. InvalidMessageError: no broker would take it."""
        config = self._config
        require_message(message, config.message_bytes_max)
        message_id = self._ids.next_id()
        body, sys_flag = message.body, 0
        if len(body) >= config.compress_bytes_min:
            body = compress(body, config.compression, config.compression_level)
            sys_flag = FLAGS[config.compression]
        if message.reserved.get("TRAN_MSG") == "true":
            sys_flag |= _PREPARED
        fields = self._fields(message.topic, encode_texts(message, message_id), sys_flag)
        if message.flag:
            fields["h"] = str(message.flag)
        if message.topic.startswith(RETRY_PREFIX):
            _move_retry_counts(message, fields)
        code = RequestCode.SEND_MESSAGE_V2
        return SendRequest(message.topic, code, fields, body, message_id)

    def batch(self, messages: Sequence[Message]) -> SendRequest:
        """Return the request for several messages of one topic, which are stored together or not at all.

        The batch itself gets no id: brokers would store it with each message, as the id of all of them.
        """
        topic = self._require_batch(messages)
        message_ids = [self._ids.next_id() for _ in messages]
        body = encode_client_batch(
            ClientMessage(message.body, encode_texts(message, message_id).encode(), message.flag)
            for message, message_id in zip(messages, message_ids, strict=True)
        )
        if len(body) > self._config.message_bytes_max:
            raise InvalidMessageError(
                f"the batch takes {len(body)} bytes, allowed are {self._config.message_bytes_max}:"
                " send it in parts, see split_batch()"
            )
        wait = _WAIT if all(message.wait_stored for message in messages) else _NO_WAIT
        fields = self._fields(topic, wait, 0)
        fields["m"] = "true"
        code = RequestCode.SEND_BATCH_MESSAGE
        return SendRequest(topic, code, fields, body, message_ids[0], message_ids)

    def _require_batch(self, messages: Sequence[Message]) -> str:
        if not messages:
            raise InvalidMessageError("a batch needs at least one message")
        topic = messages[0].topic
        if topic.startswith(RETRY_PREFIX):
            raise InvalidMessageError("a batch cannot go to a retry topic: send one by one")
        for message in messages:
            require_message(message, self._config.message_bytes_max)
            if message.topic != topic:
                raise InvalidMessageError(
                    f"a batch has one topic, here are {topic} and {message.topic}: make two"
                )
            if message.delay_level or message.deliver_ms or "TRAN_MSG" in message.reserved:
                raise InvalidMessageError(
                    "a delayed or transactional message cannot be in a batch: send it alone"
                )
        return topic

    def _fields(self, topic: str, properties: str, sys_flag: int) -> dict[str, str]:
        return {
            "a": self._group,
            "b": topic,
            "c": self._config.creation_topic,
            "d": self._queues,
            "e": "0",
            "f": str(sys_flag),
            "g": str(self._clock.now_ms()),
            "h": "0",
            "i": properties,
            "j": "0",
            "k": self._unit_mode,
            "m": "false",
            "n": "",
        }


def encode_texts(message: Message, message_id: str) -> str:
    """Return the property text of a message."""
    text = f"UNIQ_KEY\x01{message_id}\x02{_WAIT if message.wait_stored else _NO_WAIT}"
    if message.tag:
        text += f"{Property.TAGS}\x01{_plain(message.tag.strip(), 'tag')}\x02"
    if message.keys:
        text += f"{Property.KEYS}\x01{_plain(' '.join(message.key_list), 'key')}\x02"
    if message.delay_level:
        text += f"{Property.DELAY}\x01{message.delay_level}\x02"
    if message.deliver_ms:
        text += f"TIMER_DELIVER_MS\x01{message.deliver_ms}\x02"
    if message.properties or message.reserved:
        both = {**message.properties, **message.reserved}
        text += "".join(f"{name}\x01{value}\x02" for name, value in both.items())
    require_properties_size(text)
    return text


def _plain(text: str, kind: str) -> str:
    if "\x01" in text or "\x02" in text:
        raise InvalidMessageError(f"{kind} {text!r}: the characters 0x01, 0x02 are not allowed")
    return text


def _move_retry_counts(message: Message, fields: dict[str, str]) -> None:
    """Say in the header how often a message of a retry topic was tried; the properties keep it too."""
    times = message.reserved.get("RECONSUME_TIME")
    if times is not None:
        fields["j"] = times
    times_max = message.reserved.get("MAX_RECONSUME_TIMES")
    if times_max is not None:
        fields["l"] = times_max


def split_batch(
    messages: Sequence[Message], bytes_max: int = 1024 * 1024
) -> Iterator[list[Message]]:
    """Yield the messages in parts that each fit a batch request of about this size, in their order."""
    part: list[Message] = []
    size = 0
    for message in messages:
        bytes_more = OVERHEAD_BYTES + len(message.body) + _properties_bytes(message)
        if part and size + bytes_more > bytes_max:
            yield part
            part, size = [], 0
        part.append(message)
        size += bytes_more
    if part:
        yield part


def _properties_bytes(message: Message) -> int:
    return len(encode_texts(message, "0" * 56).encode())
