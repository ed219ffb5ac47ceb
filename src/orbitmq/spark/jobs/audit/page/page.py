"""A report as one page of HTML: tables and charts, readable in light and dark, on a screen and on paper.

The page holds everything that it shows; its policy forbids it to load anything or to run anything. All names
in it (of topics, tags, groups, keys) came from peers and are escaped where they are put in.
"""

from collections.abc import Callable, Iterable
from html import escape
from typing import TYPE_CHECKING, Final

from orbitmq.spark.jobs.audit.histogram import Bar
from orbitmq.spark.jobs.audit.page.charts import (
    COLOURS,
    Column,
    NamedBar,
    Series,
    clean,
    column_chart,
    named_chart,
    number,
    short_time,
    time_chart,
    utc_text,
)
from orbitmq.spark.jobs.audit.page.parts import (
    SPREAD,
    age,
    chart,
    places,
    section,
    spread,
    table,
    time,
)
from orbitmq.spark.jobs.audit.page.style import STYLE
from orbitmq.units import bytes_text

if TYPE_CHECKING:
    from orbitmq.spark.jobs.audit.report import AuditReport

TAGS_MAX: Final = 25
GROUPS_MAX: Final = 25
"""Bars of groups in one chart."""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_OTHERS: Final = "other topics"


def page(report: "AuditReport") -> str:
    """Return the page."""
    title = f"Audit of {report.asked.source}"
    sections = (
        _traffic(report),
        _sizes(report),
        _latency(report),
        _duplicates(report),
        _lag(report),
        _returned(report),
        _trace(report),
    )
    body = "".join(section for section in sections if section)
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{clean(title)}</title><style>{STYLE}</style></head><body><main>"
        f"<header><h1>{clean(title)}</h1>{_subtitle(report)}{_tiles(report)}</header>"
        f"{body}{_footer(report)}</main></body></html>\n"
    )


def framed(report: "AuditReport") -> str:
    """Return the page for a notebook, in a frame, so that its style and the notebook's do not meet."""
    style = "width:100%;height:80vh;border:0"
    return f'<iframe sandbox srcdoc="{escape(page(report))}" style="{style}"></iframe>'


# --- the head ---


def _subtitle(report: "AuditReport") -> str:
    asked = report.asked
    bounds = [
        f"{word} {utc_text(ms, '%Y-%m-%d %H:%M:%S')}"
        for word, ms in (("since", asked.since_ms), ("until", asked.until_ms))
        if ms is not None
    ]
    parts = [
        "Messages stored " + " ".join(bounds) if bounds else "All messages that are there",
        f"made {utc_text(asked.made_ms, '%Y-%m-%d %H:%M:%S')}",
        "times in UTC",
    ]
    parts += [f"topics: {', '.join(asked.topics)}"] if asked.topics else []
    parts += [f"groups: {', '.join(asked.groups)}"] if asked.groups else []
    return f'<p class="sub">{" · ".join(map(clean, parts))}</p>'


def _tiles(report: "AuditReport") -> str:
    ids = sum(one.surplus for one in report.duplicates if one.by == "id")
    lag = sum(one.lag for one in report.groups)
    sign = "≤ " if any(one.lag_is != "exact" for one in report.groups) else ""
    tiles = [
        (number(sum(one.messages for one in report.topics)), "messages"),
        (bytes_text(sum(one.bytes for one in report.topics)), "in the log"),
        (number(len(report.topics)), "topics"),
        (number(ids), "surplus by id"),
        (sign + number(lag), "lag of all groups"),
        (number(sum(one.dead_letters for one in report.groups)), "dead letters"),
    ]
    if report.trace_topics:
        never = sum(one.never_consumed for one in report.trace_topics)
        tiles.append((number(never), "not consumed (trace)"))
    found = "".join(
        f"<div><b>{clean(one)}</b><span>{clean(what)}</span></div>" for one, what in tiles
    )
    return f'<div class="tiles">{found}</div>'


def _footer(report: "AuditReport") -> str:
    read = report.read
    text = f"Read: {number(read.records)} records, {bytes_text(read.bytes)}."
    if read.bad_places:
        text += f" {number(read.bad_places)} places of the log hold no record and were passed over."
    text += " Percentiles are exact below 128, else at most 1.6 % too high."
    return f"<footer><p>{clean(text)}</p></footer>"


# --- messages ---


def _traffic(report: "AuditReport") -> str:
    if not report.topics:
        return section("Traffic", "There is no message.")
    series = _series(report)
    drawn = time_chart(series, "messages by time and topic")
    legend = "".join(
        f'<li><i class="c{one.colour}"></i>{clean(one.name)}</li>' for one in series if one.counts
    )
    note = f"Messages by {drawn.unit}, by the time at which they were stored."
    if drawn.left_out:
        note += f" {number(drawn.left_out)} messages with times far before are not drawn."
    whole = sum(one.messages for one in report.topics)
    rows = (
        (
            one.topic,
            one.messages,
            f"{100 * one.messages / whole:.1f} %",
            one.records,
            bytes_text(one.bytes),
        )
        for one in report.topics
    )
    tags = sorted(report.tags, key=lambda one: (-one.messages, one.topic, one.tag or ""))
    has_tags = any(one.tag is not None for one in tags)
    return section(
        "Traffic",
        note,
        chart(drawn.svg, f'<ul class="legend">{legend}</ul>'),
        '<div class="pair"><div>',
        table(("topic", "messages", "share", "records", "bytes"), rows, "Topics"),
        "</div><div>",
        table(
            ("topic", "tag", "messages", "bytes"),
            ((one.topic, one.tag, one.messages, bytes_text(one.bytes)) for one in tags if has_tags),
            "Tags",
            TAGS_MAX,
        ),
        "</div></div>",
    )


def _series(report: "AuditReport") -> list[Series]:
    """Return the largest topics with a colour of their own, and all others as one."""
    names = [one.topic for one in report.topics]
    own = names if len(names) <= COLOURS else names[: COLOURS - 1]
    found = {name: Series(name, colour, {}) for colour, name in enumerate(own)}
    others = Series(_OTHERS, COLOURS - 1, {})
    for row in report.hours:
        if row.hour_ms is not None:
            counts = found.get(row.topic, others).counts
            counts[row.hour_ms] = counts.get(row.hour_ms, 0) + row.messages
    return [*found.values(), others]


def _columns(bars: Iterable[Bar], unit: str, label: Callable[[int], str]) -> list[Column]:
    """Return the bars of a histogram with their bounds: whole numbers from `low` up to `high` - 1."""
    return [
        Column(
            label(one.low),
            f"{number(one.low)} to {number(one.high - 1)} {unit}",
            one.values,
        )
        for one in bars
    ]


def _short_bytes(count: int) -> str:
    return bytes_text(count).replace(".0 ", " ")


def _sizes(report: "AuditReport") -> str:
    if not report.sizes:
        return ""
    rows = ((one.topic, one.size.least, *spread(one.size)) for one in report.topics)
    return section(
        "Sizes",
        "Bytes of a record: message, properties and what a broker adds. A bar begins at the size below it.",
        chart(column_chart(_columns(report.sizes, "B", _short_bytes), "records by size")),
        table(("topic", "min", *SPREAD), rows),
    )


def _latency(report: "AuditReport") -> str:
    if not report.latencies and not any(one.waited for one in report.topics):
        return ""
    rows = (
        (one.topic, *spread(one.latency), one.latency.early, one.waited) for one in report.topics
    )
    return section(
        "From born to stored",
        "Milliseconds between a producer's clock and its broker's. Early: stored before they were born, so"
        " the clocks disagree. Waited: delayed or of a transaction; neither is counted.",
        chart(column_chart(_columns(report.latencies, "ms", short_time), "messages by latency")),
        table(("topic", *SPREAD, "early", "waited"), rows),
    )


def _duplicates(report: "AuditReport") -> str:
    rows = [
        (one.topic, one.by, one.distinct, one.repeated, one.surplus, one.batched)
        for one in report.duplicates
        if one.surplus or one.batched
    ]
    if not rows:
        return section("Duplicates", "No id and no key stands in more than one message of a topic.")
    worst = (
        (
            one.topic,
            one.by,
            one.value,
            one.copies,
            places(one.places),
            time(one.places[0].store_ms),
        )
        for one in report.offenders
    )
    return section(
        "Duplicates",
        "Within a topic. By id: a producer sent a message again. By key: what the sender calls the same."
        " Retries of groups do not count, nor messages that have their id from their batch.",
        table(("topic", "by", "distinct", "repeated", "surplus", "id of a batch"), rows),
        table(
            ("topic", "by", "value", "messages", "first places (queue:offset)", "first stored"),
            worst,
            "Worst of them",
        ),
    )


# --- groups ---


def _lag(report: "AuditReport") -> str:
    if not report.groups:
        return ""
    made = report.asked.made_ms
    most = sorted(report.groups, key=lambda one: (-one.lag, one.group))[:GROUPS_MAX]
    bars = [
        NamedBar(one.group, one.lag, ("" if one.lag_is == "exact" else "≤ ") + number(one.lag))
        for one in most
        if one.lag
    ]
    groups = (
        (
            one.group,
            one.lag,
            one.lag_is,
            one.behind,
            age(one.oldest_ms, made),
            one.retries,
            one.dead_letters,
        )
        for one in report.groups
    )
    queues = (
        (
            *(
                one.group,
                one.topic,
                one.broker or None,
                one.queue_id,
                one.consumer_offset,
                one.end_offset,
            ),
            *(one.lag, one.lag_is, one.subscription or "not known", one.known or None),
        )
        for one in report.lag
        if one.behind
    )
    return section(
        "Lag",
        "Messages that are there, that a group has not read and that its subscription wants. At most: nobody"
        " says what the group filters, so all of them are counted.",
        chart(named_chart(bars, "lag by group")),
        table(("group", "lag", "is", "behind", "oldest unread", "retries", "dead letters"), groups),
        table(
            (
                *("group", "topic", "broker", "queue", "offset", "end"),
                *("lag", "is", "subscription", "known from"),
            ),
            queues,
            "Queues with something behind the group",
        ),
    )


def _returned(report: "AuditReport") -> str:
    if not report.returned:
        return ""
    made = report.asked.made_ms
    rows = (
        (
            *(one.group, one.kind, one.origin, one.tries, one.messages, bytes_text(one.bytes)),
            *(age(one.oldest_ms, made), time(one.newest_ms)),
        )
        for one in report.returned
    )
    return section(
        "Retries and dead letters",
        "Messages that a group did not manage, by the topic that they came from and the number of tries.",
        table(
            ("group", "kind", "from topic", "tries", "messages", "bytes", "oldest, age", "newest"),
            rows,
        ),
    )


# --- trace ---


def _trace(report: "AuditReport") -> str:
    if not report.trace_topics:
        return ""
    topics = (
        (
            *(one.topic, one.messages, one.traced, one.sent, one.failed_sends),
            *(one.consumed, one.failed, one.never_consumed, one.send_cost.p50, one.send_cost.p99),
        )
        for one in report.trace_topics
    )
    groups = (
        (
            *(one.group, one.topic, one.messages, one.consumed, one.attempts, one.failed_attempts),
            *(one.unfinished, one.latency.p50, one.latency.p99, one.latency.most),
            *(one.cost.p50, one.cost.p99, one.cost.most),
        )
        for one in report.trace_groups
    )
    left = (
        (one.topic, one.message_id, places([one.place]), time(one.place.store_ms))
        for one in report.unconsumed
    )
    return section(
        "Trace",
        "What clients wrote down about the messages above. Latency: from stored to the begin of a group's"
        " first attempt. Cost: of a send, or of an attempt. Milliseconds.",
        table(
            (
                *("topic", "messages", "traced", "sent", "failed sends", "consumed", "failed"),
                *("never consumed", "send p50", "send p99"),
            ),
            topics,
            "Topics",
        ),
        table(
            (
                *("group", "topic", "messages", "consumed", "attempts", "failed", "unfinished"),
                *("latency p50", "p99", "max", "cost p50", "p99", "max"),
            ),
            groups,
            "Groups",
        ),
        table(
            ("topic", "id", "place (queue:offset)", "stored"), left, "Never consumed, oldest first"
        ),
    )
