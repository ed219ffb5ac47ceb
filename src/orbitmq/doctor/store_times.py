"""Clocks: messages whose store time is ahead of now."""

from collections.abc import Iterator
from typing import Final

from orbitmq.doctor.report import Finding, Severity
from orbitmq.units import SECOND_MS

SUBJECT = "clock"
AHEAD_MAX_MS: Final = 5 * SECOND_MS
"""So much two machines may differ."""


def examine(where: str, last_ms: int, now_ms: int, command: str) -> Iterator[Finding]:
    """Yield that the newest message was stored in the future."""
    ahead_ms = last_ms - now_ms
    if ahead_ms <= AHEAD_MAX_MS:
        return
    yield Finding(
        severity=Severity.WARNING,
        subject=SUBJECT,
        what="messages were stored in the future",
        where=where,
        numbers={"ahead_ms": ahead_ms, "last_store_ms": last_ms},
        meaning="the clock of the broker was or is ahead, or this one is behind: searches by time, delays"
        " and `--from now` do not see what they should",
        command=command,
    )
