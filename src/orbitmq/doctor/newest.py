"""The newest messages are not seen: late dispatch, queues that nobody may read, topics without a route."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orbitmq.doctor.report import Finding, Numbers, Severity
from orbitmq.units import MiB

SUBJECT = "newest messages"
BEHIND_MAX_BYTES: Final = 64 * MiB
"""So much may wait for dispatch while it moves on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchLag:
    """What is in the log and in no queue. `standing`: it does not get less."""

    where: str
    behind_bytes: int
    standing: bool
    messages: int | None = None
    since_ms: int | None = None
    by_spark: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenQueues:
    """Messages in queues from `read_queues` on."""

    topic: str
    where: str
    read_queues: int
    queue_ids: list[int]
    messages: int


def examine_lag(lag: DispatchLag, command: str) -> Iterator[Finding]:
    """Yield that dispatch stands still, or is far behind."""
    if not lag.behind_bytes or not (lag.standing or lag.behind_bytes > BEHIND_MAX_BYTES):
        return
    numbers: Numbers = {"behind_bytes": lag.behind_bytes}
    if lag.messages is not None:
        numbers["messages"] = lag.messages
    who = "the Spark job that dispatches" if lag.by_spark else "dispatch"
    yield Finding(
        severity=Severity.CRITICAL,
        subject=SUBJECT,
        what=f"{who} {'stands still' if lag.standing else 'is far behind'}",
        where=lag.where,
        since_ms=lag.since_ms,
        numbers=numbers,
        meaning="the newest messages are in the log and in no queue: no consumer can read them yet",
        command=command,
    )


def examine_hidden(hidden: HiddenQueues, command: str) -> Finding:
    """Return that messages lie where no consumer may read."""
    ids = " ".join(map(str, hidden.queue_ids))
    return Finding(
        severity=Severity.CRITICAL,
        subject=SUBJECT,
        what="messages lie in queues that consumers may not read",
        where=f"{hidden.where}{hidden.topic}, queues {ids}",
        numbers={"messages": hidden.messages, "read_queues": hidden.read_queues},
        meaning=f"producers send to more queues than the {hidden.read_queues} that are read",
        command=command,
    )


def no_route(topic: str, where: str, command: str) -> Finding:
    """Return that nobody can find a topic."""
    return Finding(
        severity=Severity.CRITICAL,
        subject=SUBJECT,
        what="the topic has no route",
        where=f"{where}{topic}",
        meaning="no name server tells who serves it: producers and consumers cannot use it",
        command=command,
    )


def unknown_topic(topic: str, messages: int, command: str) -> Finding:
    """Return that a store has messages of a topic that its broker does not know."""
    return Finding(
        severity=Severity.CRITICAL,
        subject=SUBJECT,
        what="the store has messages of a topic that is not in config/topics.json",
        where=topic,
        numbers={"messages": messages},
        meaning="the broker does not tell name servers of it: it has no route, nobody can read it",
        command=command,
    )
