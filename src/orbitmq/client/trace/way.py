"""The way of a message: what the records of all trace messages about it say together, in order of time.

what is known                          | the step
Pub                                    | sent: by whom, to which broker, how long that took
SubBefore and SubAfter, one request id | consumed: by which group, the how manieth try, what the handler said
SubBefore alone                        | consumed, end unknown: it runs, or its client went away
SubAfter alone                         | consumed; when it began follows from how long it took
EndTransaction, Recall                 | transaction, recalled
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from orbitmq.client.core.message import ReceivedMessage
from orbitmq.client.trace.records import ConsumeCode, TraceKind, TraceRecord, decode_records

SENT: Final = "sent"
CONSUMED: Final = "consumed"
TRANSACTION: Final = "transaction"
RECALLED: Final = "recalled"

_STEPS: Final = {
    TraceKind.PUB: SENT,
    TraceKind.SUB_BEFORE: CONSUMED,
    TraceKind.SUB_AFTER: CONSUMED,
    TraceKind.END_TRANSACTION: TRANSACTION,
    TraceKind.RECALL: RECALLED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """One thing that happened to a message."""

    what: str
    time_ms: int
    group: str
    client: str  # the host that wrote the trace
    attempt: int | None = None  # of a consumption: 0 is the first
    cost_ms: int | None = None
    result: str = ""
    broker: str = ""  # the address that took the message
    message_kind: str = ""
    offset_id: str = ""


@dataclass(slots=True)
class MessageWay:
    """A message and all that is known of its way."""

    message_id: str
    topic: str = ""
    tag: str = ""
    keys: list[str] = field(default_factory=list)
    steps: list[TraceStep] = field(default_factory=list)


Seen = tuple[TraceRecord, str]
"""A record, and the host that wrote it."""


def seen_records(messages: Iterable[ReceivedMessage]) -> list[Seen]:
    """Return the records of trace messages, each once: a repeated send leaves two of them."""
    found = (
        (record, message.born_host.rpartition(":")[0])
        for message in messages
        for record in decode_records(message.body)
    )
    return list(dict.fromkeys(found))


def ways(seen: Iterable[Seen]) -> list[MessageWay]:
    """Return the way of each message that these records speak of."""
    by_id: dict[str, list[Seen]] = {}
    for one in seen:
        by_id.setdefault(one[0].message_id, []).append(one)
    found = [_way(message_id, records) for message_id, records in by_id.items()]
    return sorted(found, key=lambda way: (way.steps[0].time_ms, way.message_id))


def _way(message_id: str, seen: list[Seen]) -> MessageWay:
    way = MessageWay(message_id)
    for record, _ in seen:
        way.topic, way.tag = way.topic or record.topic, way.tag or record.tag or ""
        way.keys = way.keys or record.key_list
    steps = [_step(*one) for one in seen if one[0].kind not in _CONSUMING]
    way.steps = sorted([*steps, *_consumptions(seen)], key=lambda step: step.time_ms)
    return way


_CONSUMING: Final = (TraceKind.SUB_BEFORE, TraceKind.SUB_AFTER)


def _step(record: TraceRecord, client: str) -> TraceStep:
    step = TraceStep(
        what=_STEPS[record.kind],
        time_ms=record.time_ms,
        group=record.group,
        client=client,
        result="ok" if record.success else "not stored safely",
        broker=record.store_host,
        message_kind=record.message_kind.name.lower(),
        offset_id=record.offset_id,
    )
    if record.kind is TraceKind.PUB:
        return replace(step, cost_ms=record.cost_ms)
    if record.kind is TraceKind.END_TRANSACTION:
        checked = " after a check" if record.from_check else ""
        return replace(step, result=_state(record.state) + checked)
    return replace(step, message_kind="", result="ok" if record.success else "failed")


def _state(state: str) -> str:
    known = {"COMMIT_MESSAGE": "commit", "ROLLBACK_MESSAGE": "rollback", "UNKNOW": "unknown"}
    return known.get(state, state)


def _consumptions(seen: list[Seen]) -> Iterator[TraceStep]:
    """Yield what groups did, each call of a handler once."""
    begun = {r.request_id: (r, host) for r, host in seen if r.kind is TraceKind.SUB_BEFORE}
    for after, host in seen:
        if after.kind is not TraceKind.SUB_AFTER:
            continue
        before, _ = begun.pop(after.request_id, (None, ""))
        yield TraceStep(
            what=CONSUMED,
            time_ms=before.time_ms if before else max(after.time_ms - after.cost_ms, 0),
            group=after.group or (before.group if before else ""),
            client=host,
            attempt=before.retry_times if before else None,
            cost_ms=after.cost_ms,
            result=_result(after),
        )
    for before, host in begun.values():
        yield TraceStep(
            what=CONSUMED,
            time_ms=before.time_ms,
            group=before.group,
            client=host,
            attempt=before.retry_times,
            result="end unknown",
        )


def _result(after: TraceRecord) -> str:
    if after.success:
        return "ok, too late" if after.code is ConsumeCode.TIME_OUT else "ok"
    told = {ConsumeCode.EXCEPTION: "exception", ConsumeCode.TIME_OUT: "failed, too late"}
    return told.get(after.code, "failed")
