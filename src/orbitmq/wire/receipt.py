"""Receipts of popped messages, and the texts with which a pop's answer tells offsets.

A receipt ("POP_CK", extraInfo) is what a consumer acknowledges a message with: eight words.

    startOffset popTime invisibleTime reviveQueue kind brokerName queueId offset

`kind` says where the message lies: 0 the topic itself, 1 and 2 the group's retry topic by its older and
its newer name. The offset texts have an item for each queue, separated by `;`.

    "0 1 5"       kind, queue id, first offset that was looked at
    "0 1 5,6,9"   kind, queue id, offsets of the messages
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from orbitmq.errors import FieldError
from orbitmq.message import RETRY_PREFIX

ORDER_QUEUE: Final = 999
"""The revive queue that ordered pops name; there is none."""
TOPIC_KIND: Final = "0"
RETRY_KIND_V1: Final = "1"
RETRY_KIND_V2: Final = "2"

_WORDS_LEAST: Final = 6
_WORDS: Final = 8
_SEPARATOR: Final = " "


class Receipt(NamedTuple):
    """Which pop a message belongs to."""

    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    kind: str
    broker: str
    queue_id: int = -1
    offset: int = -1

    @property
    def is_order(self) -> bool:
        return self.revive_queue == ORDER_QUEUE

    @property
    def text(self) -> str:
        return _SEPARATOR.join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> "Receipt":
        """Return the receipt of a text. FieldError: it is none."""
        words = text.split(_SEPARATOR)
        if len(words) < _WORDS_LEAST:
            problem = f"{text[:64]!r} is no receipt of a popped message: it has {len(words)} words"
            raise FieldError("extraInfo", problem)
        try:
            start, pop_ms, invisible_ms, revive_queue = map(_number, words[:4])
            queue_id, offset, *_ = (*map(_number, words[6:8]), -1, -1)
        except ValueError as cause:
            problem = f"{text[:64]!r} is no receipt of a popped message: {cause}"
            raise FieldError("extraInfo", problem) from cause
        kind, broker = words[4:6]
        return cls(start, pop_ms, invisible_ms, revive_queue, kind, broker, queue_id, offset)


def without_offset(text: str) -> str:
    """Return what the receipts of all messages of one pop and queue have in common.

    All of a text that is not exactly a receipt as it is handed out.
    """
    common, _, offset = text.rpartition(_SEPARATOR)
    is_whole = offset.isdecimal() and text.count(_SEPARATOR) == _WORDS - 1
    return common if is_whole else text


def retry_topic_v1(topic: str, group: str) -> str:
    """Return the topic with what a group gets again of a topic, by its older name."""
    return f"{RETRY_PREFIX}{group}_{topic}"


def retry_topic_v2(topic: str, group: str) -> str:
    """Return the same by its newer name, which can be taken apart."""
    return f"{RETRY_PREFIX}{group}+{topic}"


def real_topic(topic: str, group: str, kind: str) -> str:
    """Return where a message lies that came as of `topic`. FieldError: there is no such kind."""
    if kind == TOPIC_KIND:
        return topic
    if kind == RETRY_KIND_V1:
        return retry_topic_v1(topic, group)
    if kind == RETRY_KIND_V2:
        return retry_topic_v2(topic, group)
    raise FieldError("r", f"{kind[:64]!r} is no kind of topic: 0, 1 or 2")


def normal_topic(topic: str, group: str) -> str:
    """Return the topic that a retry topic of the group belongs to; another topic is its own."""
    for prefix in (retry_topic_v2("", group), retry_topic_v1("", group)):
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


def topic_kind(topic: str) -> str:
    """Return the kind of topic that receipts name."""
    if not topic.startswith(RETRY_PREFIX):
        return TOPIC_KIND
    return RETRY_KIND_V2 if "+" in topic else RETRY_KIND_V1


def start_item(kind: str, queue_id: int, offset: int) -> str:
    return f"{kind} {queue_id} {offset}"


def offsets_item(kind: str, queue_id: int, offsets: Sequence[int]) -> str:
    return f"{kind} {queue_id} {','.join(map(str, offsets))}"


def join_items(items: Iterable[str]) -> str:
    return ";".join(items)


def _number(word: str) -> int:
    if not word.removeprefix("-").isdecimal() or not word.isascii() or len(word) > 20:
        raise ValueError(f"{word[:24]!r} is no whole number")
    return int(word)
