"""Pieces of a report's page: sections, tables, figures, and numbers for people."""

from collections.abc import Iterable, Sequence
from typing import Final

from orbitmq.spark.jobs.audit.copies import Place
from orbitmq.spark.jobs.audit.histogram import Spread
from orbitmq.spark.jobs.audit.page.charts import clean, number, utc_text

ROWS_MAX: Final = 100
"""Of a table; the JSON of the report has all of them."""
SPREAD: Final = ("p50", "p90", "p99", "p99.9", "max", "mean")
"""The columns of `spread`."""
_NUMBERS: Final = frozenset(("bytes", "share"))
"""Columns of numbers that have a unit."""

Cell = str | int | float | None


def section(title: str, note: str, *parts: str) -> str:
    said = f'<p class="note">{clean(note)}</p>' if note else ""
    return f"<section><h2>{clean(title)}</h2>{said}{''.join(parts)}</section>"


def chart(svg: str, legend: str = "") -> str:
    return f"<figure>{svg}{legend}</figure>" if svg else ""


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    caption: str = "",
    rows_max: int = ROWS_MAX,
) -> str:
    """Return a table; numbers stand to the right. Nothing, if it has no rows."""
    kept = list(rows)
    if not kept:
        return ""
    more = len(kept) - rows_max
    numeric = [
        name in _NUMBERS or _are_numbers(row[at] for row in kept) for at, name in enumerate(columns)
    ]
    head = "".join(
        f'<th{_right(is_number)} scope="col">{clean(name)}</th>'
        for name, is_number in zip(columns, numeric, strict=True)
    )
    lines = "".join(
        "<tr>"
        + "".join(
            f"<td{_right(n)}>{_cell(cell)}</td>" for cell, n in zip(row, numeric, strict=True)
        )
        + "</tr>"
        for row in kept[:rows_max]
    )
    title = f"<h3>{clean(caption)}</h3>" if caption else ""
    left = f'<p class="note">{number(more)} more rows are in the JSON.</p>' if more > 0 else ""
    body = f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
    return f'{title}<div class="wide">{body}</div>{left}'


def _are_numbers(cells: Iterable[Cell]) -> bool:
    there = [cell for cell in cells if cell is not None]
    return bool(there) and all(isinstance(cell, int | float) for cell in there)


def _right(is_number: bool) -> str:
    return ' class="n"' if is_number else ""


def _cell(cell: Cell) -> str:
    if cell is None:
        return '<span class="none">–</span>'
    return number(cell) if isinstance(cell, int | float) else clean(cell)


def time(ms: int | None) -> str | None:
    return None if ms is None else utc_text(ms, "%Y-%m-%d %H:%M:%S")


def age(ms: int | None, now_ms: int) -> str | None:
    """Return how long ago a time was, for people."""
    if ms is None:
        return None
    seconds = max(now_ms - ms, 0) / 1000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def spread(spread: Spread) -> tuple[Cell, ...]:
    return (spread.p50, spread.p90, spread.p99, spread.p999, spread.most, spread.mean)


def places(places: Iterable[Place]) -> str:
    texts = (f"{one.broker} {one.queue_id}:{one.queue_offset}".strip() for one in places)
    return ", ".join(texts)
