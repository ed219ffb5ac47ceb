"""What an audit is asked for, checked before Spark starts."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from orbitmq.errors import ConfigError
from orbitmq.spark.jobs.audit.readers import Subscriptions, parse_subscription
from orbitmq.spark.jobs.export.options import fail_or_skip, names_of
from orbitmq.spark.source.options import BadRecords, parse_time

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TOP: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """Which messages and groups are looked at. Immutable."""

    topics: tuple[str, ...] = ()  # all, but for those that brokers made for themselves
    groups: tuple[str, ...] = ()  # all
    since_ms: int | None = None
    until_ms: int | None = None
    subscriptions: Subscriptions = field(default_factory=dict)
    trace_topic: str = TRACE_TOPIC
    bad_records: BadRecords = BadRecords.FAIL
    top: int = TOP  # so many of the worst are named

    @classmethod
    def of(
        cls,
        *,
        topics: Sequence[str] = (),
        groups: Sequence[str] = (),
        since: str | None = None,
        until: str | None = None,
        subscriptions: Sequence[str] | Mapping[str, str] = (),
        trace_topic: str = TRACE_TOPIC,
        bad_records: str = "fail",
        top: int = TOP,
    ) -> "AuditOptions":
        """Return the options. ConfigError names the one that cannot work."""
        now = time.time_ns() // 1_000_000
        since_ms, until_ms = (
            None if text is None else parse_time(name, text, now)
            for name, text in (("since", since), ("until", until))
        )
        if since_ms is not None and until_ms is not None and until_ms < since_ms:
            raise ConfigError("until", until, f"lies before --since, {since}")
        if top < 1:
            raise ConfigError("top", top, "must be 1 or more")
        if isinstance(subscriptions, Mapping):
            subscriptions = [f"{name}={wanted}" for name, wanted in subscriptions.items()]
        return cls(
            topics=names_of(topics),
            groups=names_of(groups, "group"),
            since_ms=since_ms,
            until_ms=until_ms,
            subscriptions=dict(map(parse_subscription, subscriptions)),
            trace_topic=trace_topic.strip(),
            bad_records=fail_or_skip(bad_records),
            top=top,
        )
