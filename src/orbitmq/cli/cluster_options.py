"""What the commands that talk to a cluster share: its address, how to print, whether to only say it."""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Never

import typer

from orbitmq.cli import bounds
from orbitmq.cli.output import Output, note
from orbitmq.errors import UnreachableError
from orbitmq.units import HOUR_MS, MINUTE_MS, SECOND_MS

if TYPE_CHECKING:
    from orbitmq.client import Admin

Namesrv = Annotated[
    str,
    typer.Option(
        "--namesrv",
        envvar="ORBITMQ_NAMESRV_ADDR",
        help='Name servers of the cluster, as "a:9876;b:9876".',
    ),
]
NAMESRV = "127.0.0.1:9876"
OutputForm = Annotated[
    Output, typer.Option(help="table for people, json for programs (one value per line).")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done; change nothing.")]
_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
_DURATION_MS = {"ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": 24 * HOUR_MS}
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@contextmanager
def cluster() -> Iterator[None]:
    """Say which commands and options help when nobody answers."""
    try:
        yield
    except UnreachableError as failure:
        step = "Start one with `orbitmq up`, or say --namesrv HOST:PORT (ORBITMQ_NAMESRV_ADDR)."
        raise UnreachableError(failure.peer, failure.what, step) from failure


@contextmanager
def open_admin(namesrv: str) -> "Iterator[Admin]":
    """Give an admin client of the cluster."""
    from orbitmq.client import Admin

    with cluster(), Admin(namesrv) as admin:
        yield admin


def stop_with(text: str, code: int = 1) -> Never:
    """End the command with one line and an exit code."""
    note(text)
    raise typer.Exit(code=code)


def confirm(question: str, yes: bool) -> None:
    """Ask before something is lost; without a terminal `--yes` has to be said."""
    if yes:
        return
    if not sys.stdin.isatty():
        stop_with(f"{question} Nobody is there to answer: say --yes.", code=2)
    if not typer.confirm(question):
        raise typer.Abort


def moment_ms(text: str, option: str) -> int:
    """Return the epoch milliseconds that an option means."""
    if text.isdecimal():
        return int(text)
    try:
        return bounds.parse_time(text, time.time_ns() // 1_000_000)
    except typer.BadParameter:
        rule = "write a time as now, now-90s, now-15m, now-1h, now-7d, 2026-11-15T20:31 or epoch milliseconds"
        raise typer.BadParameter(f"{text!r}: {rule}", param_hint=option) from None


def duration_ms(text: str, option: str) -> int:
    """Return the milliseconds that an option means: 500ms, 90s, 15m, 2h, 1d."""
    given = _DURATION.fullmatch(text)
    if given is None:
        rule = "write a time as 500ms, 90s, 15m, 2h or 1d"
        raise typer.BadParameter(f"{text!r}: {rule}", param_hint=option)
    return int(given[1]) * _DURATION_MS[given[2]]


def parse_pairs(texts: list[str] | None, option: str, form: str = "KEY=VALUE") -> dict[str, str]:
    """Return the names and values that an option was given."""
    found = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{text}: write {form}", param_hint=option)
        found[key.strip()] = value
    return found


def plural(count: int, noun: str) -> str:
    """Return "1 message", "2 messages"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
