"""An audit as people read it on a terminal: a table for each question, empty ones left out."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

from orbitmq.cli.output import bytes_text, note, print_table, time_text

if TYPE_CHECKING:
    from orbitmq.spark.jobs.audit.histogram import Spread
    from orbitmq.spark.jobs.audit.report import AuditReport

ROWS_MAX: Final = 40
"""Of a table; JSON has all of them."""


def print_audit(report: "AuditReport") -> None:
    asked, read = report.asked, report.read
    times = [f"since {time_text(asked.since_ms)}"] if asked.since_ms is not None else []
    times += [f"until {time_text(asked.until_ms)}"] if asked.until_ms is not None else []
    what = f"{read.messages:,} messages in {read.records:,} records ({bytes_text(read.bytes)})"
    typer.echo(f"{asked.source}: read {what}{', messages ' if times else ''}{' '.join(times)}")
    _topics(report)
    _hours(report)
    _duplicates(report)
    _groups(report)
    _trace(report)
    if read.bad_places:
        note(f"{read.bad_places:,} places of the log hold no record: passed over")


def _show(
    title: str, columns: Sequence[str], found: Sequence[Any], row: Callable[[Any], Sequence[object]]
) -> None:
    """Print a table, if there is anything in it, and say what was left out."""
    if not found:
        return
    print_table(columns, [row(one) for one in found[:ROWS_MAX]], title=title)
    if len(found) > ROWS_MAX:
        note(f"{title}: {len(found) - ROWS_MAX:,} more rows; --output json has all")


def _spread(spread: "Spread") -> str:
    if spread.most is None:
        return ""
    shares = "/".join(str(one) for one in (spread.p50, spread.p90, spread.p99, spread.p999))
    return f"{shares} (max {spread.most})"


def _ago(ms: int | None) -> str:
    return "" if ms is None else time_text(ms)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""


def _topics(report: "AuditReport") -> None:
    _show(
        "topics (percentiles 50/90/99/99.9)",
        ["topic", "messages", "bytes", "size, bytes", "born to stored, ms", "early", "waited"],
        report.topics,
        lambda one: (
            *(one.topic, one.messages, bytes_text(one.bytes), _spread(one.size)),
            *(_spread(one.latency), one.latency.early, one.waited),
        ),
    )
    _show(
        "tags",
        ["topic", "tag", "messages", "bytes"],
        report.tags,
        lambda one: (one.topic, one.tag, one.messages, bytes_text(one.bytes)),
    )


def _hours(report: "AuditReport") -> None:
    sums: dict[int | None, list[int]] = {}
    for one in report.hours:
        counts = sums.setdefault(one.hour_ms, [0, 0])
        counts[0] += one.messages
        counts[1] += one.bytes
    # The newest hours say most where not all can be shown.
    rows = sorted(sums.items(), key=lambda one: -(one[0] or 0))
    _show(
        "hours, newest first",
        ["hour", "messages", "bytes"],
        rows,
        lambda one: (_ago(one[0]) or "-", one[1][0], bytes_text(one[1][1])),
    )


def _duplicates(report: "AuditReport") -> None:
    _show(
        "duplicates",
        ["topic", "by", "distinct", "repeated", "surplus messages", "of a batch"],
        [one for one in report.duplicates if one.surplus or one.batched],
        lambda one: (one.topic, one.by, one.distinct, one.repeated, one.surplus, one.batched),
    )
    _show(
        "worst duplicates",
        ["topic", "by", "value", "messages", "where (queue:offset)"],
        report.offenders,
        lambda one: (one.topic, one.by, one.value, one.copies, _places(one.places)),
    )


def _places(places: Iterable[Any]) -> str:
    texts = (f"{one.broker} {one.queue_id}:{one.queue_offset}".strip() for one in places)
    return ", ".join(texts)


def _groups(report: "AuditReport") -> None:
    _show(
        "groups",
        ["group", "lag", "is", "oldest unread", "retries", "dead letters", "oldest dead letter"],
        report.groups,
        lambda one: (
            *(one.group, one.lag, one.lag_is, _ago(one.oldest_ms)),
            *(one.retries, one.dead_letters, _ago(one.oldest_dead_ms)),
        ),
    )
    _show(
        "lag by queue",
        ["group", "topic", "broker", "queue", "offset", "end", "lag", "is", "wants", "known from"],
        [one for one in report.lag if one.behind],
        lambda one: (
            *(one.group, one.topic, one.broker, one.queue_id, one.consumer_offset),
            *(one.end_offset, one.lag, one.lag_is, one.subscription or "?", one.known or "-"),
        ),
    )
    _show(
        "retries and dead letters",
        ["group", "kind", "from topic", "tries", "messages", "oldest", "newest"],
        report.returned,
        lambda one: (
            *(one.group, one.kind, one.origin, one.tries, one.messages),
            *(_ago(one.oldest_ms), _ago(one.newest_ms)),
        ),
    )
    if any(one.lag_is != "exact" for one in report.groups):
        note('"at most": nobody says what the group filters; --subscription GROUP:TOPIC=EXPR does')


def _trace(report: "AuditReport") -> None:
    _show(
        "trace by topic",
        [
            *("topic", "messages", "traced", "sent", "failed sends", "consumed", "failed"),
            *("never consumed", "share"),
        ],
        report.trace_topics,
        lambda one: (
            *(one.topic, one.messages, one.traced, one.sent, one.failed_sends, one.consumed),
            *(one.failed, one.never_consumed, _percent(one.never_consumed, one.messages)),
        ),
    )
    _show(
        "trace by group (percentiles 50/90/99/99.9)",
        [
            *("group", "topic", "messages", "consumed", "attempts", "failed", "unfinished"),
            *("stored to begun, ms", "handler, ms"),
        ],
        report.trace_groups,
        lambda one: (
            *(one.group, one.topic, one.messages, one.consumed, one.attempts),
            *(one.failed_attempts, one.unfinished, _spread(one.latency), _spread(one.cost)),
        ),
    )
    _show(
        "never consumed, oldest first",
        ["topic", "id", "stored", "where (queue:offset)"],
        report.unconsumed,
        lambda one: (one.topic, one.message_id, _ago(one.place.store_ms), _places([one.place])),
    )
