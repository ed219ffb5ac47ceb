"""What is checked before a message may enter the commit log, and in which form it enters.

The order is RocketMQ's, so that a message with two faults gets the same status from both:

step | check                                                        | status
   1 | store closed, replica, not writable                          | SERVICE_NOT_AVAILABLE (commit log)
   2 | topic too long, or not usable as a directory                 | MESSAGE_ILLEGAL
   3 | no body                                                      | MESSAGE_ILLEGAL
   4 | append lock held too long                                    | OS_PAGE_CACHE_BUSY (commit log)
   5 | INNER_NUM without the inner-batch flag, flag without BatchCQ | MESSAGE_ILLEGAL
   6 | rewriting of delayed messages; timer messages                | WHEEL_TIMER_NOT_ENABLE
     | delivery time that is no number, or too far away             | WHEEL_TIMER_MSG_ILLEGAL
     | too many messages for the same moment                        | WHEEL_TIMER_FLOW_CONTROL
   7 | size of the properties                                       | PROPERTIES_SIZE_EXCEEDED
   7 | size of body and record                                      | MESSAGE_ILLEGAL
   8 | no segment to write to                                       | CREATE_MAPPED_FILE_FAILED (commit log)
"""

import re
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

import numpy as np

from orbitmq.files.listing import topic_name_problem
from orbitmq.format.columns import Ints
from orbitmq.format.ordinary import ZEROS_MAX, has_zeros
from orbitmq.format.properties import decode_properties, encode_properties, find_property
from orbitmq.format.property_crc import CRC_TAIL_BYTES, ready_for_crc
from orbitmq.format.record import MAGIC_V1, MAGIC_V2
from orbitmq.format.waiting import SLOT_MS_MAX, SLOT_MS_MIN, TIMED
from orbitmq.message import (
    LMQ_PREFIX,
    PROPERTIES_BYTES_MAX,
    PROPERTY_SEPARATOR,
    RETRY_PREFIX,
    RETRY_TOPIC_BYTES_MAX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TOPIC_BYTES_MAX,
    AppendRequest,
    AppendResult,
    AppendStatus,
    Property,
    QueueType,
    SysFlag,
)
from orbitmq.store.config import StoreConfig
from orbitmq.store.topic_types import TopicTypes

RECORD_EXTRA_BYTES: Final = 64 * 1024  # a record may exceed maxMessageSize by this much
RECORD_FIXED_BYTES: Final = (
    91  # version 1, both hosts IPv4; one more for version 2, 12 per IPv6 host
)

_END: Final = PROPERTY_SEPARATOR.encode()

_TIMER_PROPERTIES: Final = (
    Property.TIMER_DELAY_SEC,
    Property.TIMER_DELAY_MS,
    Property.TIMER_DELIVER_MS,
)
_TIMER_UNIT_MS: Final = {Property.TIMER_DELAY_SEC: 1000, Property.TIMER_DELAY_MS: 1}
_BY_TIME: Final = 1 + TIMED.index(Property.TIMER_DELIVER_MS)
_UNITS_MS: Final = np.array([0, *(_TIMER_UNIT_MS.get(name, 1) for name in TIMED)])
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,15}")
_DELAYED_TYPES: Final = (0, SysFlag.COMMIT)  # transaction types that reach consumers
_NO_OFFSET_TYPES: Final = (SysFlag.PREPARED, SysFlag.ROLLBACK)
_SYSTEM_PREFIX: Final = "rmq_sys_"


class TimerGate(Protocol):
    """What the rules ask of the timer wheel."""

    def now_ms(self) -> int:
        """Return the time by which delays count."""

    def is_full(self, slot_ms: int) -> bool:
        """Tell whether too many messages wait for this time."""

    def have_room(self, slots: Ints) -> bool:
        """Tell whether none of these slots has as many messages as it may have."""


class TopicForm(NamedTuple):
    """A topic as records hold it."""

    tail: bytes  # length field and name
    magic: int
    fixed_bytes: int  # of a record without body and properties, both hosts IPv4


class Prepared(NamedTuple):
    """A message that passed the checks; only offsets and store time are missing."""

    request: AppendRequest  # after rewriting
    topic: TopicForm
    sys_flag: int  # host bits set
    properties: bytes  # without INNER_BASE, INNER_MULTI_QUEUE_OFFSET and the property CRC
    advance: int  # how far the queue offset advances; 0: the record has none
    inner_batch: bool = False
    light_queues: tuple[tuple[str, int], ...] = ()


def closed(properties: bytes) -> bytes:
    """Return the same properties, with 0x02 at the end if that was a zero byte.

    A record of ours that ends with a zero byte was torn by a power cut (`torn_records`).
    """
    return properties + _END if properties.endswith(b"\0") else properties


def refuse(status: AppendStatus, reason: str) -> AppendResult:
    return AppendResult(status, reason=reason)


def illegal(reason: str) -> AppendResult:
    return AppendResult(AppendStatus.MESSAGE_ILLEGAL, reason=reason)


class AppendRules:
    """Checks and rewrites requests. Any thread may use it."""

    def __init__(self, config: StoreConfig, topic_types: TopicTypes) -> None:
        self._config = config
        self._topic_types = topic_types
        self.timer: TimerGate | None = None
        """None: this store takes no timer messages."""

    def use(self, config: StoreConfig) -> None:
        """Follow these settings from the next request on."""
        self._config = config

    def topic_form(self, topic: str) -> TopicForm | AppendResult:
        """Return how records name this topic, or why it is refused."""
        problem = topic_name_problem(topic)
        if problem is not None:
            return illegal(problem)
        name = topic.encode()
        if len(name) > TOPIC_BYTES_MAX and not topic.startswith(RETRY_PREFIX):
            return illegal(f"the topic has {len(name)} bytes, the limit is {TOPIC_BYTES_MAX}")
        if len(name) > RETRY_TOPIC_BYTES_MAX:
            return illegal(f"the topic has {len(name)} bytes, the limit is {RETRY_TOPIC_BYTES_MAX}")
        if len(name) <= TOPIC_BYTES_MAX:
            return TopicForm(bytes((len(name),)) + name, MAGIC_V1, RECORD_FIXED_BYTES + len(name))
        if not self._config.auto_version:
            return illegal("a topic this long needs autoMessageVersionOnTopicLen")
        tail = len(name).to_bytes(2, "big") + name
        return TopicForm(tail, MAGIC_V2, RECORD_FIXED_BYTES + 1 + len(name))

    def prepare(self, request: AppendRequest) -> Prepared | AppendResult:
        """Return the message in the form in which it enters the log, or why it is refused."""
        form = self.topic_form(request.topic)
        if isinstance(form, AppendResult):
            return form
        body: object = request.body
        if body is None:
            return illegal("the message has no body")
        if request.queue_id < 0:
            return illegal(f"queue id {request.queue_id} is negative")
        inner = bool(request.sys_flag & SysFlag.INNER_BATCH)
        refusal = self._check_inner_batch(request, inner=inner)
        if refusal is not None:
            return refusal
        rewritten = self._rewrite(request)
        if isinstance(rewritten, AppendResult):
            return rewritten
        if rewritten.topic != request.topic:
            if inner:
                return illegal("an inner batch cannot be delayed")
            form = self.topic_form(rewritten.topic)
            if isinstance(form, AppendResult):
                return form
        return self._measure(rewritten, form, inner=inner)

    def _check_inner_batch(self, request: AppendRequest, *, inner: bool) -> AppendResult | None:
        if not inner:
            if find_property(request.properties, Property.INNER_NUM) is not None:
                return illegal("property INNER_NUM without the inner-batch flag")
            return None
        if self._topic_types(request.topic) is not QueueType.BATCH:
            return illegal(f"an inner batch needs a topic with queue.type=BatchCQ: {request.topic}")
        text = find_property(request.properties, Property.INNER_NUM)
        if text is not None and (not text.isdecimal() or not 1 <= int(text) <= 32767):
            return illegal(f"INNER_NUM is {text!r}, which is no count of messages")
        return None

    def _rewrite(self, request: AppendRequest) -> AppendRequest | AppendResult:
        raw = request.properties
        if request.due or (b"DELAY\x01" not in raw and b"TIMER_" not in raw):
            return request
        properties = decode_properties(raw)
        level = _delay_level(request, properties)
        if level > 0:
            kept = {k: v for k, v in properties.items() if k not in _TIMER_PROPERTIES}
            return _scheduled(request, kept, min(level, self._config.delay_level_max))
        if request.sys_flag & SysFlag.TRANSACTION in _NO_OFFSET_TYPES:
            return request
        timed = next((name for name in _TIMER_PROPERTIES if name in properties), None)
        if timed is None or request.topic == TIMER_TOPIC or Property.TIMER_OUT_MS in properties:
            return request
        if self.timer is None:
            reason = (
                f"the message asks for a delivery time ({timed}), and this store has no timer wheel"
            )
            return refuse(AppendStatus.WHEEL_TIMER_NOT_ENABLE, reason)
        return self._timed(request, properties, timed, self.timer)

    def _timed(
        self, request: AppendRequest, properties: dict[str, str], timed: str, timer: TimerGate
    ) -> AppendRequest | AppendResult:
        """Return a message as it waits for its time; as it is, if that has come."""
        text, now_ms = properties[timed], timer.now_ms()
        if not _NUMBER.fullmatch(text):
            return _untimely(f"{timed} is {text!r}, which is no time")
        unit_ms = _TIMER_UNIT_MS.get(timed)
        deliver_ms = int(text) if unit_ms is None else now_ms + int(text) * unit_ms
        if deliver_ms <= now_ms:
            if Property.TIMER_CANCELS in properties:
                return _untimely("the message that it cancels is due")
            return request
        if deliver_ms - now_ms > self._config.timer_delay_max_ms:
            limit = self._config.timer_delay_max_ms // 1000
            return _untimely(f"{timed} is more than {limit} s ahead (timerMaxDelaySec)")
        # A slot holds what is due after it begins and until it ends, so that nothing comes early.
        precision_ms = self._config.timer_precision_ms
        slot_ms = (deliver_ms - 1) // precision_ms * precision_ms
        if timer.is_full(slot_ms):
            reason = f"{self._config.timer_slot_count_max} messages wait for that moment"
            return refuse(AppendStatus.WHEEL_TIMER_FLOW_CONTROL, reason)
        request.slot_ms = slot_ms
        return _moved(request, {**properties, Property.TIMER_OUT_MS: str(slot_ms)}, TIMER_TOPIC, 0)

    def slots(self, timed: Ints, times: Ints) -> Ints | None:
        """Return where messages wait of which `timed` (numbers in TIMED, from 1) and `times` say the time.

        As `_timed` would; None: one of them does not wait, is refused, or needs a closer look.
        """
        timer, precision_ms = self.timer, self._config.timer_precision_ms
        if timer is None:
            return None
        now_ms = timer.now_ms()
        deliver_ms = times * _UNITS_MS[timed] + np.where(timed == _BY_TIME, 0, now_ms)
        ahead_ms = deliver_ms - now_ms
        if ahead_ms.min() <= 0 or ahead_ms.max() > self._config.timer_delay_max_ms:
            return None
        slots: Ints = (deliver_ms - 1) // precision_ms * precision_ms
        if slots.min() < SLOT_MS_MIN or slots.max() > SLOT_MS_MAX or not timer.have_room(slots):
            return None
        return slots

    def _measure(
        self, request: AppendRequest, form: TopicForm, *, inner: bool
    ) -> Prepared | AppendResult:
        config = self._config
        properties = request.properties
        if config.property_crc:
            properties = ready_for_crc(properties)
        properties = closed(properties)
        if has_zeros(properties):
            return illegal(f"the properties have more than {ZEROS_MAX} zero bytes in a row")
        light_queues = self._light_queues(request)
        reserved = CRC_TAIL_BYTES if config.property_crc else 0
        if len(properties) + reserved > PROPERTIES_BYTES_MAX:
            reason = (
                f"the properties have {len(properties)} bytes, the limit is {PROPERTIES_BYTES_MAX}"
            )
            return refuse(AppendStatus.PROPERTIES_SIZE_EXCEEDED, reason)
        if len(request.body) > config.message_bytes_max:
            return illegal(
                f"the body has {len(request.body)} bytes, maxMessageSize is {config.message_bytes_max}"
            )
        sys_flag, host_bytes = self._host_bits(request)
        size = form.fixed_bytes + host_bytes + len(request.body) + len(properties) + reserved
        limit = config.message_bytes_max + (0 if light_queues else RECORD_EXTRA_BYTES)
        if size > limit:
            return illegal(f"the record would have {size} bytes, the limit is {limit}")
        advance = self._offset_count(request, inner=inner)
        return Prepared(request, form, sys_flag, properties, advance, inner, light_queues)

    def _host_bits(self, request: AppendRequest) -> tuple[int, int]:
        store_host = request.store_host or self._config.store_host
        sys_flag = request.sys_flag & ~(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
        extra = 0
        if len(request.born_host.address) == 16:
            sys_flag, extra = sys_flag | SysFlag.BORN_HOST_V6, extra + 12
        if len(store_host.address) == 16:
            sys_flag, extra = sys_flag | SysFlag.STORE_HOST_V6, extra + 12
        return int(sys_flag), extra

    def _offset_count(self, request: AppendRequest, *, inner: bool) -> int:
        if request.sys_flag & SysFlag.TRANSACTION in _NO_OFFSET_TYPES:
            return 0
        if not inner:
            return 1
        return int(find_property(request.properties, Property.INNER_NUM) or 1)

    def _light_queues(self, request: AppendRequest) -> tuple[tuple[str, int], ...]:
        """Return the further queues that this message goes to (RocketMQ: LMQ)."""
        if not (self._config.enable_lmq and self._config.enable_multi_dispatch):
            return ()
        topic = request.topic
        if topic.startswith((RETRY_PREFIX, _SYSTEM_PREFIX)) or topic == SCHEDULE_TOPIC:
            return ()
        names = find_property(request.properties, Property.MULTI_DISPATCH)
        if not names:
            return ()
        return tuple(
            (name, 0 if name.startswith(LMQ_PREFIX) else request.queue_id)
            for name in names.split(",")
        )


def _delay_level(request: AppendRequest, properties: dict[str, str]) -> int:
    """Return the delay level that the message asks for; 0: none."""
    if request.sys_flag & SysFlag.TRANSACTION not in _DELAYED_TYPES:
        return 0
    try:
        return int(properties.get(Property.DELAY, "0"))
    except ValueError:
        return 0  # Java refuses such a request earlier; for the store it is no delay


def _scheduled(request: AppendRequest, properties: dict[str, str], level: int) -> AppendRequest:
    """Return a delayed message as it goes into the schedule topic, which has one queue per level.

    DELAY in the record says the level that counts, not the one that was asked for: delivery reads it there.
    """
    return _moved(request, {**properties, Property.DELAY: str(level)}, SCHEDULE_TOPIC, level - 1)


def _moved(
    request: AppendRequest, properties: dict[str, str], topic: str, queue_id: int
) -> AppendRequest:
    """Return a message as it goes into a topic where it waits, with where it belongs."""
    changed = {
        **properties,
        Property.REAL_TOPIC: request.topic,
        Property.REAL_QUEUE_ID: str(request.queue_id),
    }
    return replace(request, topic=topic, queue_id=queue_id, properties=encode_properties(changed))


def _untimely(reason: str) -> AppendResult:
    return refuse(AppendStatus.WHEEL_TIMER_MSG_ILLEGAL, reason)
