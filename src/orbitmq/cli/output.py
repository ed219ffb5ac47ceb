"""How commands speak: results on standard output as a table or JSON, everything else on standard error."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

from orbitmq.units import bytes_text as bytes_text  # noqa: PLC0414  (for all commands)

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PROGRESS_AFTER_SECONDS = 1.0


class Output(StrEnum):
    """The two forms of every listing."""

    TABLE = "table"
    JSON = "json"


def print_json(value: Any) -> None:
    """Print one value as one line of JSON."""
    import msgspec

    typer.echo(msgspec.json.encode(value).decode())


def print_ready(value: Any, text: str, output: Output) -> None:
    """Say at once that a server is ready, for programs or for people."""
    if output is Output.JSON:
        print_json(value)
    else:
        typer.echo(text)
    sys.stdout.flush()


def print_lines(lines: Iterable[str]) -> None:
    """Print many lines; the stream's own buffer decides when they leave."""
    write = sys.stdout.write
    for line in lines:
        write(f"{line}\n")


def note(text: str) -> None:
    """Say something beside the result."""
    typer.echo(f"orbitmq: {text}", err=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """Print a table; numbers are aligned to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # A pipe has no width; folding paths and causes to 80 columns would tear them apart.
    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console() if has_width else Console(width=200)
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        numbers = bool(rows) and all(isinstance(row[index], int | float) for row in rows)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell_text(cell)) for cell in row))
    console.print(table)


def table_row(value: Mapping[str, Any]) -> list[object]:
    """Return what JSON shows of one thing as a row of a table: times and lists for people."""
    return [_cell(name, member) for name, member in value.items()]


def _cell(name: str, member: Any) -> object:
    if name.endswith("_ms"):
        return time_text(member)
    return " ".join(member) if isinstance(member, list) else member


def cell_text(cell: object) -> str:
    return "" if cell is None else str(cell)


def one_line(text: str) -> str:
    """Return the text without characters that would move the cursor or change colours."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def time_text(ms: int) -> str:
    """Return a store time for people, in local time with its zone."""
    if ms <= 0:
        return "-"
    try:
        return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(ms)  # damaged or far away: the number itself says more than nothing


@contextmanager
def progress(what: str, *, in_bytes: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Give a function that takes how much of what is done; it shows a bar on a terminal after a second."""
    bar = _Bar(what, in_bytes=in_bytes)
    try:
        yield bar.update if sys.stderr.isatty() else _ignore
    finally:
        bar.close()


def _ignore(done: int, total: int) -> None:
    pass


class _Bar:
    """Shows nothing for work that is done within a second."""

    def __init__(self, what: str, *, in_bytes: bool) -> None:
        self._what, self._in_bytes = what, in_bytes
        self._shown_from = time.monotonic() + PROGRESS_AFTER_SECONDS
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def update(self, done: int, total: int) -> None:
        if self._progress is None:
            if time.monotonic() < self._shown_from:
                return
            self._start()
        assert self._progress is not None
        assert self._task is not None
        self._progress.update(self._task, completed=done, total=total)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        amount = (
            (DownloadColumn(binary_units=True), TransferSpeedColumn())
            if self._in_bytes
            else (MofNCompleteColumn(),)
        )
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            *amount,
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(self._what)
        self._progress.start()

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
