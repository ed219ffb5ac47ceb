"""The tables of a report, made of what all tasks have counted together."""

from collections.abc import Iterable
from typing import TypeVar

from orbitmq.spark.jobs.audit.copies import badness
from orbitmq.spark.jobs.audit.facts import Amount, Returned, ScanFacts, Unread, add, least
from orbitmq.spark.jobs.audit.histogram import Bar, Histogram
from orbitmq.spark.jobs.audit.readers import Reader
from orbitmq.spark.jobs.audit.report import (
    AT_MOST,
    DEAD_LETTER,
    EXACT,
    RETRY,
    Asked,
    AuditReport,
    DuplicateRow,
    GroupRow,
    HourRow,
    LagRow,
    Read,
    ReturnedRow,
    TagRow,
    TopicRow,
    TraceGroupRow,
    TraceTopicRow,
    TrafficRow,
    UnconsumedRow,
)
from orbitmq.spark.jobs.audit.scan import Found
from orbitmq.spark.jobs.audit.sources import Look
from orbitmq.spark.jobs.audit.traces import oldest
from orbitmq.wire.bodies.message_queue import MessageQueue

Key = TypeVar("Key")


def report_of(asked: Asked, looked: Look, found: Found, top: int) -> AuditReport:
    """Return the report."""
    scan, trace = found.scan, found.trace
    read = Read(
        scan.read.messages,
        scan.read.records,
        scan.read.bytes,
        scan.bad_places + looked.gaps,
        trace.records,
        trace.unmatched,
    )
    lag = _lag(looked, scan)
    traced = {name for name, one in trace.topics.items() if one.traced}
    unconsumed = (one for name in traced for one in trace.unconsumed.get(name, ()))
    return AuditReport(
        asked,
        read,
        topics=_topics(scan),
        traffic=_traffic(scan),
        tags=_tags(scan),
        hours=_hours(scan),
        sizes=_bars(scan.sizes.values()),
        latencies=_bars(scan.latencies.values()),
        duplicates=_duplicates(found),
        offenders=sorted(found.copies.worst, key=lambda one: (one.by == "key", *badness(one))),
        lag=lag,
        groups=_groups(lag, scan),
        returned=_returned(scan),
        trace_topics=_trace_topics(found, traced),
        trace_groups=_trace_groups(found),
        unconsumed=[UnconsumedRow(*one) for one in oldest(top, unconsumed)],
    )


# --- traffic ---


def _summed(found: Iterable[tuple[Key, Amount]]) -> dict[Key, Amount]:
    sums: dict[Key, Amount] = {}
    for key, amount in found:
        sums.setdefault(key, Amount()).merge(amount)
    return sums


def _topics(scan: ScanFacts) -> list[TopicRow]:
    sums = _summed((topic, amount) for (topic, _, _), amount in scan.traffic.items())
    return [
        TopicRow(
            topic,
            amount.messages,
            amount.records,
            amount.bytes,
            scan.sizes[topic].spread(),
            scan.latencies[topic].spread(),
            scan.waited[topic],
            scan.many_tags.get(topic, 0),
        )
        for topic, amount in sorted(sums.items(), key=lambda one: (-one[1].messages, one[0]))
    ]


def _traffic(scan: ScanFacts) -> list[TrafficRow]:
    return [
        TrafficRow(topic, tag, hour, amount.messages, amount.records, amount.bytes)
        for (topic, tag, hour), amount in sorted(
            scan.traffic.items(), key=lambda one: (one[0][0], one[0][2] or 0, one[0][1] or "")
        )
    ]


def _tags(scan: ScanFacts) -> list[TagRow]:
    sums = _summed(((topic, tag), amount) for (topic, tag, _), amount in scan.traffic.items())
    order = sorted(sums.items(), key=lambda one: (one[0][0], -one[1].messages, one[0][1] or ""))
    return [TagRow(topic, tag, one.messages, one.bytes) for (topic, tag), one in order]


def _hours(scan: ScanFacts) -> list[HourRow]:
    sums = _summed(((topic, hour), amount) for (topic, _, hour), amount in scan.traffic.items())
    order = sorted(sums.items(), key=lambda one: (one[0][0], one[0][1] or 0))
    return [HourRow(topic, hour, one.messages, one.bytes) for (topic, hour), one in order]


def _bars(found: Iterable[Histogram]) -> list[Bar]:
    whole = Histogram()
    for one in found:
        whole.merge(one)
    return whole.bars()


def _duplicates(found: Found) -> list[DuplicateRow]:
    return [
        DuplicateRow(topic, by, one.distinct, one.repeated, one.surplus, one.batched)
        for (topic, by), one in sorted(found.copies.counts.items())
    ]


# --- groups ---


def _lag(looked: Look, scan: ScanFacts) -> list[LagRow]:
    seen: dict[str, dict[tuple[str, int], int]] = {}
    for (topic, broker, queue_id), span in scan.queues.items():
        seen.setdefault(topic, {})[broker, queue_id] = span.end
    rows = [
        _lag_row(looked, scan, topic, reader, queue, seen.get(topic, {}).get(queue))
        for topic, readers in looked.readers.items()
        for reader in readers
        for queue in {*reader.offsets, *seen.get(topic, ())}
    ]
    return sorted(rows, key=lambda row: row[:4])


def _lag_row(
    looked: Look,
    scan: ScanFacts,
    topic: str,
    reader: Reader,
    queue: tuple[str, int],
    seen_end: int | None,
) -> LagRow:
    offset, wanted = reader.offsets.get(queue, 0), reader.wanted
    end = looked.ends.get(MessageQueue(topic, *queue), seen_end)
    unread = scan.unread.get((reader.group, topic, *queue), Unread())
    return LagRow(
        reader.group,
        topic,
        *queue,
        offset,
        end,
        max((end or 0) - offset, 0),
        unread.messages,
        EXACT if wanted is not None or not unread.messages else AT_MOST,
        unread.oldest_ms,
        wanted.text if wanted is not None else None,
        wanted.known if wanted is not None else "",
    )


def _groups(lag: list[LagRow], scan: ScanFacts) -> list[GroupRow]:
    returned: dict[tuple[str, bool], Returned] = {}
    for key, one in scan.returned.items():
        add(returned, (key.group, key.dead), Returned(one.messages, 0, one.oldest_ms, None))
    names = {row.group for row in lag} | {group for group, _ in returned}
    return [
        _group(name, [row for row in lag if row.group == name], returned) for name in sorted(names)
    ]


def _group(name: str, lag: list[LagRow], returned: dict[tuple[str, bool], Returned]) -> GroupRow:
    retries, dead = (returned.get((name, kind), Returned()) for kind in (False, True))
    oldest_ms: int | None = None
    for row in lag:
        oldest_ms = least(oldest_ms, row.oldest_ms)
    return GroupRow(
        name,
        sum(row.lag for row in lag),
        AT_MOST if any(row.lag_is == AT_MOST for row in lag) else EXACT,
        sum(row.behind for row in lag),
        oldest_ms,
        retries.messages,
        dead.messages,
        dead.oldest_ms,
    )


def _returned(scan: ScanFacts) -> list[ReturnedRow]:
    order = sorted(
        scan.returned.items(),
        key=lambda one: (one[0].group, one[0].dead, one[0].origin or "", one[0].times),
    )
    return [
        ReturnedRow(
            key.group,
            DEAD_LETTER if key.dead else RETRY,
            key.origin,
            key.times,
            one.messages,
            one.bytes,
            one.oldest_ms,
            one.newest_ms,
        )
        for key, one in order
    ]


# --- trace ---


def _trace_topics(found: Found, traced: set[str]) -> list[TraceTopicRow]:
    return [
        TraceTopicRow(
            name,
            one.messages,
            one.traced,
            one.sent,
            one.failed_sends,
            one.consumed,
            one.failed,
            one.never_consumed,
            one.send_cost.spread(),
        )
        for name, one in sorted(found.trace.topics.items())
        if name in traced
    ]


def _trace_groups(found: Found) -> list[TraceGroupRow]:
    return [
        TraceGroupRow(
            group,
            topic,
            one.messages,
            one.consumed,
            one.attempts,
            one.failed_attempts,
            one.unfinished,
            one.latency.spread(),
            one.cost.spread(),
        )
        for (group, topic), one in sorted(found.trace.groups.items())
    ]
