"""Illegal offsets: groups that stand below the first message of a queue, or above its last one."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from orbitmq.doctor.report import Finding, Severity

SUBJECT = "offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """Where a group stands in one queue, and what the queue has."""

    group: str
    topic: str
    queue: str  # for people: "queue 3", "broker-a queue 3"
    queue_id: int
    offset: int
    min_offset: int
    max_offset: int
    since_ms: int | None = None


def examine(offsets: Iterable[GroupOffset], advise: Callable[..., str]) -> Iterator[Finding]:
    """Yield a finding for each illegal offset; `advise` makes a command of the cluster."""
    for one in offsets:
        if one.offset < one.min_offset:
            yield _below(one, advise)
        elif one.offset > one.max_offset:
            yield _above(one, advise)


def _below(one: GroupOffset, advise: Callable[..., str]) -> Finding:
    lost = one.min_offset - one.offset
    return Finding(
        severity=Severity.WARNING,
        subject=SUBJECT,
        what="illegal offset: the group stands below the first message that is left",
        where=_where(one),
        since_ms=one.since_ms,
        numbers={"offset": one.offset, "min_offset": one.min_offset, "deleted_unread": lost},
        meaning=f"{lost} messages were deleted before the group read them; its next pull is told so",
        command=_reset(one, "earliest", advise),
    )


def _above(one: GroupOffset, advise: Callable[..., str]) -> Finding:
    ahead = one.offset - one.max_offset
    return Finding(
        severity=Severity.CRITICAL,
        subject=SUBJECT,
        what="illegal offset: the group stands above the last message",
        where=_where(one),
        since_ms=one.since_ms,
        numbers={"offset": one.offset, "max_offset": one.max_offset, "ahead": ahead},
        meaning="new messages are not delivered before the queue has grown past that offset, or a"
        " consumer starts anew",
        command=_reset(one, "latest", advise),
    )


def _where(one: GroupOffset) -> str:
    return f"group {one.group}, {one.topic}, {one.queue}"


def _reset(one: GroupOffset, to: str, advise: Callable[..., str]) -> str:
    return advise("group", "reset", one.group, one.topic, "--to", to, "--queue", one.queue_id)
