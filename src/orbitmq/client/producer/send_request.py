"""Turn a message into a send request (310) or messages into a batch (320), and a request into its frame.

Of a frame of JSON hardly anything changes from message to message of a topic: it is made from a
template that was cut out of a whole frame. `RequestMaker.fields` says what a frame consists of; a
template follows from it, and binary or signed requests are encoded from it.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from orbitmq.client.core.config import ClientConfig
from orbitmq.client.core.message import Message
from orbitmq.client.core.name_rules import require_message, require_properties_size
from orbitmq.clock import Clock
from orbitmq.errors import InvalidMessageError
from orbitmq.format.client_batch import OVERHEAD_BYTES, ClientMessage, encode_client_batch
from orbitmq.format.compression import FLAGS, compress
from orbitmq.format.message_id import UniqueIds
from orbitmq.message import RETRY_PREFIX, Property, SysFlag
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.frame import PREFIX, PREFIX_BYTES, encode_prefix
from orbitmq.wire.headers.send import LETTERS

_WAIT: Final = "WAIT\x01true\x02"
_NO_WAIT: Final = "WAIT\x01false\x02"
_TAGS: Final = f"{Property.TAGS}\x01"
_KEYS: Final = f"{Property.KEYS}\x01"
_PREPARED: Final = SysFlag.PREPARED.value
_SINGLE: Final = RequestCode.SEND_MESSAGE_V2

_GROUP: Final = LETTERS["producerGroup"]
_TOPIC: Final = LETTERS["topic"]
_CREATION_TOPIC: Final = LETTERS["defaultTopic"]
_CREATION_QUEUES: Final = LETTERS["defaultTopicQueueNums"]
_QUEUE_ID: Final = LETTERS["queueId"]
_SYS_FLAG: Final = LETTERS["sysFlag"]
_BORN_MS: Final = LETTERS["bornTimestamp"]
_FLAG: Final = LETTERS["flag"]
_PROPERTIES: Final = LETTERS["properties"]
_RECONSUMED: Final = LETTERS["reconsumeTimes"]
_UNIT_MODE: Final = LETTERS["unitMode"]
_RECONSUMED_MAX: Final = LETTERS["maxReconsumeTimes"]
_BATCH: Final = LETTERS["batch"]
_BROKER: Final = LETTERS["bname"]

_TEMPLATES_MAX: Final = 10_000
_OPAQUE_MARK: Final = 1_987_654_321
_MARKS: Final = {
    _QUEUE_ID: "\x00queue",
    _SYS_FLAG: "\x00sys-flag",
    _BORN_MS: "\x00born",
    _FLAG: "\x00flag",
    _PROPERTIES: "\x00properties",
}
"""What a template has where messages differ, in the order of a frame; no name has such a character."""

_encode_text: Final = msgspec.json.Encoder().encode
_pack: Final = PREFIX.pack


class SendRequest:
    """A message ready to go; queue and broker are chosen at each try."""

    __slots__ = (
        "body",
        "born_ms",
        "code",
        "flag",
        "message_id",
        "message_ids",
        "properties",
        "retry_fields",
        "sys_flag",
        "topic",
    )

    def __init__(
        self, topic: str, code: int, body: bytes, properties: str, message_id: str, born_ms: int
    ) -> None:
        self.topic, self.code, self.body, self.properties = topic, code, body, properties
        self.message_id, self.born_ms = message_id, born_ms
        self.sys_flag = self.flag = 0
        self.message_ids: list[str] | None = None
        self.retry_fields: dict[str, str] | None = None


class RequestMaker:
    """Makes send requests of one producer group. Any thread may use it."""

    def __init__(self, group: str, config: ClientConfig, ids: UniqueIds, clock: Clock) -> None:
        self._group, self._config, self._ids, self._clock = group, config, ids, clock
        self._unit_mode = "true" if config.unit_name else "false"
        self._templates: dict[tuple[int, str, str], bytes] = {}

    def single(self, message: Message) -> SendRequest:
        """Return the request for one message. InvalidMessageError: no broker would take it."""
        config = self._config
        body, topic = message.body, message.topic
        require_message(message, config.message_bytes_max)
        message_id = self._ids.next_id()
        sys_flag = 0
        if len(body) >= config.compress_bytes_min:
            body = compress(body, config.compression, config.compression_level)
            sys_flag = FLAGS[config.compression]
        if message.reserved and message.reserved.get("TRAN_MSG") == "true":
            sys_flag |= _PREPARED
        properties = encode_texts(message, message_id)
        born_ms = self._clock.now_ms()
        request = SendRequest(topic, _SINGLE, body, properties, message_id, born_ms)
        request.sys_flag, request.flag = sys_flag, message.flag
        if topic.startswith(RETRY_PREFIX):
            request.retry_fields = _retry_fields(message)
        return request

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
        code, born_ms = RequestCode.SEND_BATCH_MESSAGE, self._clock.now_ms()
        request = SendRequest(topic, code, body, wait, message_ids[0], born_ms)
        request.message_ids = message_ids
        return request

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
            if message.is_delayed or "TRAN_MSG" in message.reserved:
                raise InvalidMessageError(
                    "a delayed or transactional message cannot be in a batch: send it alone"
                )
        return topic

    def fields(self, request: SendRequest, queue: MessageQueue) -> dict[str, str]:
        """Return the fields of a request to this queue, in the order in which Java sends them."""
        fields = {
            _GROUP: self._group,
            _TOPIC: request.topic,
            _CREATION_TOPIC: self._config.creation_topic,
            _CREATION_QUEUES: str(self._config.creation_queues),
            _QUEUE_ID: str(queue.queue_id),
            _SYS_FLAG: str(request.sys_flag),
            _BORN_MS: str(request.born_ms),
            _FLAG: str(request.flag),
            _PROPERTIES: request.properties,
            _RECONSUMED: "0",
            _UNIT_MODE: self._unit_mode,
            _BATCH: "true" if request.message_ids is not None else "false",
            _BROKER: queue.broker_name,
        }
        if request.retry_fields:
            fields.update(request.retry_fields)
        return fields

    def frame(self, request: SendRequest, queue: MessageQueue, opaque: int) -> bytes:
        """Return the frame of a request to this queue, with its header as JSON and not signed."""
        if request.retry_fields:
            command = Command(request.code, self.fields(request, queue), opaque=opaque)
            return encode_prefix(command, len(request.body)) + request.body
        key = (request.code, request.topic, queue.broker_name)
        template = self._templates.get(key)
        if template is None:
            template = self._new_template(key, request, queue)
        header = template % (
            queue.queue_id,
            request.sys_flag,
            request.born_ms,
            request.flag,
            _encode_text(request.properties),
            opaque,
        )
        size, body = len(header), request.body
        return b"".join((_pack(4 + size + len(body), size), header, body))

    def _new_template(
        self, key: tuple[int, str, str], request: SendRequest, queue: MessageQueue
    ) -> bytes:
        fields = {**self.fields(request, queue), **_MARKS}
        whole = encode_prefix(Command(request.code, fields, opaque=_OPAQUE_MARK), 0)[PREFIX_BYTES:]
        template = whole.replace(b"%", b"%%")
        for letter, mark in _MARKS.items():
            text = b"%b" if letter == _PROPERTIES else b'"%d"'
            template = template.replace(_encode_text(mark), text, 1)
        template = template.replace(b"%d" % _OPAQUE_MARK, b"%d", 1)
        if len(self._templates) >= _TEMPLATES_MAX:
            self._templates.clear()
        self._templates[key] = template
        return template


def encode_texts(message: Message, message_id: str) -> str:
    """Return the property text of a message."""
    text = f"UNIQ_KEY\x01{message_id}\x02{_WAIT if message.wait_stored else _NO_WAIT}"
    if message.tag:
        text += f"{_TAGS}{_plain(message.tag.strip(), 'tag')}\x02"
    if message.keys:
        text += f"{_KEYS}{_plain(' '.join(message.key_list), 'key')}\x02"
    if message.delay_level:
        text += f"{Property.DELAY}\x01{message.delay_level}\x02"
    if message.deliver_ms:
        text += f"{Property.TIMER_DELIVER_MS}\x01{message.deliver_ms}\x02"
    if message.delay_ms:
        text += f"{Property.TIMER_DELAY_MS}\x01{message.delay_ms}\x02"
    if message.properties or message.reserved:
        both = {**message.properties, **message.reserved}
        text += "".join(f"{name}\x01{value}\x02" for name, value in both.items())
    require_properties_size(text)
    return text


def _plain(text: str, kind: str) -> str:
    if "\x01" in text or "\x02" in text:
        raise InvalidMessageError(f"{kind} {text!r}: the characters 0x01, 0x02 are not allowed")
    return text


def _retry_fields(message: Message) -> dict[str, str] | None:
    """Return how often a message of a retry topic was tried; the properties keep it too."""
    given = {
        _RECONSUMED: message.reserved.get("RECONSUME_TIME"),
        _RECONSUMED_MAX: message.reserved.get("MAX_RECONSUME_TIMES"),
    }
    return {letter: text for letter, text in given.items() if text is not None} or None


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
