"""Charts as SVG text: bars by time, bars of a histogram, bars of names. No script, no file, nothing to load.

Colours are variables of the page's style, so that a chart follows light, dark and print. Each bar has a
title, which browsers show under the pointer.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final, NamedTuple

from orbitmq.units import HOUR_MS

COLOURS: Final = 8
"""The page defines --c0 to --c7; the last one is for what has no colour of its own."""
BARS_MAX: Final = 400

_WIDTH: Final = 960
_LEFT: Final = 64  # room for numbers beside the chart
_BOTTOM: Final = 34
_BAR_MAX: Final = 96  # a single bar would be as wide as the page
_TOP: Final = 10
_DAY_MS: Final = 24 * HOUR_MS
_UNITS: Final = (
    (HOUR_MS, "hour"),
    (6 * HOUR_MS, "6 hours"),
    (_DAY_MS, "day"),
    (7 * _DAY_MS, "week"),
)
_LONGEST: Final = (28 * _DAY_MS, "4 weeks")


class Series(NamedTuple):
    """Counts of one name by hour."""

    name: str
    colour: int
    counts: dict[int, int]  # by the first millisecond of the hour


class TimeChart(NamedTuple):
    """A chart, and what has to be said beside it."""

    svg: str
    unit: str  # "hour", "day"
    left_out: int  # counts of times that are too far away to be shown


def clean(text: str) -> str:
    """Return a text that can stand anywhere in a page: names come from peers, which may send anything."""
    shown = "".join(sign if sign.isprintable() else "�" for sign in text)
    return escape(shown, quote=True)


def number(count: float) -> str:
    return f"{count:,.0f}"


def short_number(count: float) -> str:
    """Return a number for an axis: 12k, 3.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g}{letter}"
    return f"{count:.3g}"


def short_time(ms: float) -> str:
    """Return milliseconds for an axis: 512 ms, 8.2 s, 4.4 min."""
    for size, unit in ((3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if ms >= size:
            return f"{ms / size:.2g} {unit}"
    return f"{ms:.0f} ms"


def utc_text(ms: int, form: str = "%Y-%m-%d %H:%M") -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime(form)
    except (OverflowError, ValueError, OSError):
        return str(ms)


def _nice_step(most: float) -> float:
    """Return a step of 1, 2 or 5 times a power of ten that gives up to five lines."""
    step = 1.0
    while True:
        for factor in (1, 2, 5):
            if most <= factor * step * 5:
                return factor * step
        step *= 10


def _svg(height: int, label: str, parts: Sequence[str]) -> str:
    head = f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{clean(label)}">'
    return head + "".join(parts) + "</svg>"


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{clean(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, colour: int, title: str) -> str:
    place = f'x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.5):.2f}" height="{height:.2f}"'
    return f'<rect {place} class="c{colour}"><title>{clean(title)}</title></rect>'


class _Frame:
    """The area that bars stand in, with lines for even numbers."""

    def __init__(self, height: int, most: int) -> None:
        self.bottom = height - _BOTTOM
        step = _nice_step(max(most, 1))
        self._scale = (self.bottom - _TOP) / max(most, 1)
        self.lines = []
        value = 0.0
        while value <= most:
            y = self.y(value)
            self.lines.append(
                f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
                + _text(_LEFT - 8, y + 4, short_number(value), "end")
            )
            value += step

    def y(self, value: float) -> float:
        return self.bottom - value * self._scale


# --- by time ---


def time_chart(series: Sequence[Series], label: str, height: int = 280) -> TimeChart:
    """Return counts by time, names stacked upon each other; the first one stands at the bottom."""
    hours = [hour for one in series for hour in one.counts]
    if not hours:
        return TimeChart("", "hour", 0)
    span, last = max(hours) - min(hours) + HOUR_MS, max(hours)
    unit_ms, unit = next((u for u in _UNITS if span <= u[0] * BARS_MAX), _LONGEST)
    first_unit = max(min(hours) // unit_ms, last // unit_ms - BARS_MAX + 1)
    units = range(first_unit, last // unit_ms + 1)
    sums = [_by_unit(one, unit_ms) for one in series]
    frame = _Frame(height, max(sum(one.get(at, 0) for one in sums) for at in units))
    width = min((_WIDTH - _LEFT) / len(units), _BAR_MAX)
    parts = [*frame.lines, *_time_labels(units, unit_ms, width, height)]
    for index, at in enumerate(units):
        base = 0
        for one, counts in zip(series, sums, strict=True):
            if count := counts.get(at, 0):
                title = f"{one.name}, {utc_text(at * unit_ms)}: {number(count)}"
                x, top = _LEFT + index * width, frame.y(base + count)
                gap = min(width * 0.12, 2)
                parts.append(
                    _rect(x + gap / 2, top, width - gap, frame.y(base) - top, one.colour, title)
                )
                base += count
    early = sum(count for one in sums for at, count in one.items() if at < first_unit)
    return TimeChart(_svg(height, label, parts), unit, early)


def _by_unit(series: Series, unit_ms: int) -> dict[int, int]:
    sums: dict[int, int] = {}
    for hour, count in series.counts.items():
        sums[hour // unit_ms] = sums.get(hour // unit_ms, 0) + count
    return sums


def _time_labels(units: range, unit_ms: int, width: float, height: int) -> list[str]:
    """Return a label for every so many units, with the date where a day begins or the first one stands."""
    every = next(step for step in (1, 2, 3, 6, 12, 24, 48, 96) if step * width >= 64 or step == 96)
    texts: list[str] = []
    for index, at in enumerate(units):
        if (at % every if unit_ms < _DAY_MS else index % every) == 0:
            x, ms = _LEFT + (index + 0.5) * width, at * unit_ms
            if x > _WIDTH - 30:
                break  # it would not be seen whole
            shows_day = unit_ms >= _DAY_MS or ms % _DAY_MS == 0 or not texts
            clock = "" if unit_ms >= _DAY_MS else utc_text(ms, "%H:%M")
            texts.append(_text(x, height - _BOTTOM + 16, clock or utc_text(ms, "%d %b %y")))
            if shows_day and clock:
                texts.append(_text(x, height - _BOTTOM + 30, utc_text(ms, "%d %b %y")))
    return texts


# --- a histogram ---


class Column(NamedTuple):
    """One bar of a histogram."""

    label: str
    title: str
    amount: int


def column_chart(columns: Sequence[Column], label: str, height: int = 220) -> str:
    """Return bars side by side, each with its label below."""
    if not columns:
        return ""
    frame = _Frame(height, max(one.amount for one in columns))
    width = min((_WIDTH - _LEFT) / len(columns), _BAR_MAX)
    every = max(1, round(56 / width + 0.49))
    parts = list(frame.lines)
    for index, one in enumerate(columns):
        x, top = _LEFT + index * width, frame.y(one.amount)
        title = f"{one.title}: {number(one.amount)}"
        if one.amount:
            parts.append(_rect(x + 1, top, width - 2, frame.bottom - top, 0, title))
        if index % every == 0:
            parts.append(_text(x + width / 2, height - _BOTTOM + 16, one.label))
    return _svg(height, label, parts)


# --- names ---


class NamedBar(NamedTuple):
    """One bar with a name, and its number as text."""

    name: str
    amount: int
    text: str


def named_chart(bars: Sequence[NamedBar], label: str) -> str:
    """Return bars below each other, the names beside them."""
    if not bars:
        return ""
    row, left, right = 26, 250, 130
    most = max(1, *(one.amount for one in bars))
    parts = []
    for index, one in enumerate(bars):
        y, width = 4 + index * row, (_WIDTH - left - right) * one.amount / most
        parts.append(_text(left - 10, y + 15, shortened(one.name, 34), "end"))
        parts.append(_rect(left, y, width, row - 8, 0, f"{one.name}: {one.text}"))
        parts.append(_text(left + width + 8, y + 15, one.text, "start"))
    return _svg(8 + row * len(bars), label, parts)


def shortened(name: str, length: int) -> str:
    """Return a name that is not longer than this, its middle left out."""
    if len(name) <= length:
        return name
    half = (length - 1) // 2
    return f"{name[:half]}…{name[-half:]}"
