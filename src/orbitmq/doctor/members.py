"""Members of groups: stuck ones, pulls at the wrong offset, subscriptions that differ or match nothing."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from orbitmq.doctor.report import Finding, Severity, share
from orbitmq.format.java_hash import java_hash

SUBJECT = "members"
TAG: Final = "TAG"
_LIKE_SQL: Final = re.compile(
    r"[<>=]|(?<!\|)\|(?!\|)|,|\b(and|or|between|is null|in \()", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a member wants of a topic."""

    expression: str
    kind: str = TAG


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldQueue:
    """What a member holds of one queue, beside what the broker knows."""

    queue: str
    cached: int
    pulled_ms: int
    consumed_ms: int
    lag: int
    in_flight: int
    locked: bool = True


@dataclass(frozen=True, slots=True)
class FreeQueue:
    """A queue with messages for the group that none of its members holds."""

    queue: str
    lag: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member of a group."""

    client_id: str
    wanted: Mapping[str, Wanted]  # by topic, retry topics aside
    held: Sequence[HeldQueue] = ()
    orderly: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The tags of the last messages of a topic; None: a message without one."""

    topic: str
    tags: Sequence[str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """One group that is online."""

    group: str
    members: Sequence[Member]
    now_ms: int
    stuck_ms: int
    filters_sql: bool  # the brokers evaluate SQL92
    samples: Sequence[Sample] = field(default_factory=tuple)
    free: Sequence[FreeQueue] = ()
    known: Mapping[str, Wanted] = field(
        default_factory=dict
    )  # what the broker holds for all members


def examine(facts: GroupFacts, show_members: str, show_progress: str) -> Iterator[Finding]:
    """Yield what is wrong with the members of a group."""
    yield from _different(facts, show_members)
    yield from _wrong_kind(facts, show_members)
    yield from _unmatched(facts, show_members)
    for member in facts.members:
        for held in member.held:
            yield from _stuck(facts, member, held, show_progress)
    for one in facts.free:
        yield _free(facts, one, show_progress)


def _different(facts: GroupFacts, command: str) -> Iterator[Finding]:
    topics = sorted({topic for member in facts.members for topic in member.wanted})
    for topic in topics:
        kinds: dict[Wanted | None, list[str]] = {}
        for member in facts.members:
            kinds.setdefault(member.wanted.get(topic), []).append(member.client_id)
        if len(kinds) < 2:
            continue
        texts = [
            f"{' '.join(ids)}: {'nothing' if one is None else f'{one.kind} {one.expression}'}"
            for one, ids in kinds.items()
        ]
        yield Finding(
            severity=Severity.CRITICAL,
            subject=SUBJECT,
            what="members of one group have different subscriptions",
            where=f"group {facts.group}, {topic}",
            numbers={"members": len(facts.members), "subscriptions": len(kinds)},
            meaning="a broker knows one per group, the newest: each member misses what only the other wants"
            f" ({'; '.join(texts)}). Give all members the same, or another group",
            command=command,
        )


def _wrong_kind(facts: GroupFacts, command: str) -> Iterator[Finding]:
    for topic, one in _wanted(facts):
        if one.kind != TAG and not facts.filters_sql:
            what = f"a filter of type {one.kind} on a broker that filters tags only"
            meaning = (
                "every pull is refused: nothing is delivered. Use tags, or a broker with SQL92"
            )
        elif one.kind == TAG and _LIKE_SQL.search(one.expression):
            what = "a tag expression that looks like another type"
            meaning = f"{one.expression!r} is taken for names of tags; several are written A || B"
        else:
            continue
        yield Finding(
            severity=Severity.CRITICAL,
            subject=SUBJECT,
            what=what,
            where=f"group {facts.group}, {topic}",
            numbers={"expression": one.expression, "type": one.kind},
            meaning=meaning,
            command=command,
        )


def _unmatched(facts: GroupFacts, command: str) -> Iterator[Finding]:
    samples = {sample.topic: sample.tags for sample in facts.samples}
    for topic, one in _wanted(facts):
        tags = {tag.strip() for tag in one.expression.split("||") if tag.strip()}
        seen = samples.get(topic, ())
        if one.kind != TAG or not tags or "*" in tags or not seen:
            continue
        hashes = {java_hash(tag) for tag in tags}
        on_server = sum(tag is not None and java_hash(tag) in hashes for tag in seen)
        on_client = sum(tag in tags for tag in seen)
        if on_client and on_client == on_server:
            continue
        what = "none of the last messages has a tag that the group wants"
        meaning = "the filter takes nothing: look at the tags of messages and of the expression"
        if on_server > on_client:
            what = "tags with the same hash: the broker sends what the client throws away"
            meaning = f"{share(on_server - on_client, on_server):g} % of what is sent is not wanted"
        yield Finding(
            severity=Severity.WARNING if not on_client else Severity.NOTE,
            subject=SUBJECT,
            what=what,
            where=f"group {facts.group}, {topic}",
            numbers={"last": len(seen), "match_on_server": on_server, "match_on_client": on_client},
            meaning=meaning,
            command=command,
        )


def _wanted(facts: GroupFacts) -> list[tuple[str, Wanted]]:
    tables = (facts.known, *(member.wanted for member in facts.members))
    found = {(topic, one) for wanted in tables for topic, one in wanted.items()}
    return sorted(found, key=lambda pair: (pair[0], pair[1].kind, pair[1].expression))


def _stuck(facts: GroupFacts, member: Member, held: HeldQueue, command: str) -> Iterator[Finding]:
    idle_ms, unpulled_ms = facts.now_ms - held.consumed_ms, facts.now_ms - held.pulled_ms
    if held.cached and idle_ms > facts.stuck_ms:
        since, what = held.consumed_ms, "a member is stuck: it holds messages and finishes none"
        meaning = "its handler waits or loops; nothing behind these messages is delivered"
    elif held.lag and member.orderly and not held.locked:
        since, what = held.pulled_ms, "a member waits for the lock of its queue"
        meaning = "another member had it and is gone or slow; locks end after a minute"
    elif held.lag and not held.cached and held.in_flight >= held.lag and idle_ms > facts.stuck_ms:
        since, what = held.consumed_ms, "a pull waits at the wrong offset"
        meaning = "the member waits behind messages that the group has not acknowledged: it has skipped them"
    elif held.lag and unpulled_ms > facts.stuck_ms:
        since, what = held.pulled_ms, "a member is stuck: it does not pull"
        meaning = "it has the queue and does not ask for messages; it may be paused or full"
    else:
        return
    yield Finding(
        severity=Severity.CRITICAL,
        subject=SUBJECT,
        what=what,
        where=f"group {facts.group}, {member.client_id}, {held.queue}",
        since_ms=since,
        numbers={"lag": held.lag, "held": held.cached, "in_flight": held.in_flight},
        meaning=meaning,
        command=command,
    )


def _free(facts: GroupFacts, one: FreeQueue, command: str) -> Finding:
    meaning = "members see different lists of members or queues, or a rebalance is under way"
    if any(member.orderly for member in facts.members):
        meaning = (
            "a member waits for its lock: another client had it and is gone or slow; locks end after"
            " a minute"
        )
    return Finding(
        severity=Severity.WARNING,
        subject=SUBJECT,
        what="messages wait in a queue that no member has",
        where=f"group {facts.group}, {one.queue}",
        numbers={"lag": one.lag, "members": len(facts.members)},
        meaning=meaning,
        command=command,
    )
