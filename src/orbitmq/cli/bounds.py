"""Bounds of a selection as people write them: a log offset or a time, told apart by their form.

text                         | means
1073741824                   | log offset: a bare number below 10^12
offset:2000000000000         | log offset, whatever its size
1794768800932                | time: a bare number from 10^12 on is epoch milliseconds
now, now-90s, now-15m,       | time before now, in seconds, minutes,
now-1h, now-7d               |   hours or days
2026-11-15T20:31[:05.123]    | ISO date and time, local unless it names a zone
2026-11-15                   | ISO date: its first moment, local
"""

import re
from datetime import datetime
from typing import NamedTuple

import typer

from orbitmq.units import HOUR_MS, MINUTE_MS, SECOND_MS

HELP = (
    "A log offset (a number below 10^12, or offset:N) or a time: epoch milliseconds,"
    " ISO, now, now-90s, now-15m, now-1h, now-7d"
)
_SMALLEST_TIME_MS = 10**12  # September 2001; as a log offset that would be 1 TB
_UNIT_MS = {"s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": 24 * HOUR_MS}
_BEFORE_NOW = re.compile(r"now(?:-(\d{1,9})([smhd]))?")


class Bound(NamedTuple):
    """Either a log offset or a store time."""

    offset: int | None = None
    ms: int | None = None


def parse_bound(text: str | None, now_ms: int) -> Bound:
    """Return what the text means; no text is no bound."""
    if text is None:
        return Bound()
    if text.startswith("offset:") and text[7:].isdecimal():
        return Bound(offset=int(text[7:]))
    if text.isdecimal():
        number = int(text)
        return Bound(offset=number) if number < _SMALLEST_TIME_MS else Bound(ms=number)
    return Bound(ms=parse_time(text, now_ms))


def parse_time(text: str, now_ms: int) -> int:
    """Return the epoch milliseconds that the text means."""
    if before := _BEFORE_NOW.fullmatch(text):
        return now_ms - (int(before[1]) * _UNIT_MS[before[2]] if before[1] else 0)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a log offset nor a time. {HELP}.") from None
    return round(moment.astimezone().timestamp() * 1000)
