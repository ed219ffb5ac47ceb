"""From a log record to a line for people, by structlog.

  2026-11-17 09:00:00.123 info    net.request_log  request refused  code=NO_PERMISSION count=1 ...

A module of its own: structlog brings rich and pygments along, a sixth of a server's start and memory, and
most servers have no terminal.
"""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from structlog.dev import Column, ConsoleRenderer, KeyValueColumnFormatter, plain_traceback
from structlog.stdlib import ExtraAdder, ProcessorFormatter
from structlog.typing import EventDict, WrappedLogger

from orbitmq.logs.lines import described

_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}
_LEVEL_COLORS: Final = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}
_DIM, _CYAN, _RESET = "\x1b[2m", "\x1b[36m", "\x1b[0m"


def text_formatter(*, colors: bool) -> logging.Formatter:
    """Return what makes a record a line for a terminal; a traceback follows on lines of its own."""
    return ProcessorFormatter(
        foreign_pre_chain=[ExtraAdder()],
        processors=[
            _describe,
            _local_time,
            _settings_as_lines,
            _escape_controls,
            _text_renderer(colors),
        ],
    )


def _describe(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    record: logging.LogRecord = event.pop("_record")
    event.pop("_from_structlog")
    return described(record, event.pop("event"), event)


def _local_time(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    moment = datetime.fromtimestamp(event["time"]).astimezone()
    event["time"] = moment.isoformat(" ", timespec="milliseconds")[:23]
    return event


def _settings_as_lines(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Show a server's settings below each other: those that were changed first, marked."""
    settings, changed = event.get("settings"), event.get("changed")
    if not isinstance(settings, Mapping) or not isinstance(changed, Mapping):
        return event
    del event["settings"], event["changed"]
    rows = [f"* {name}={settings[name]}  ({_why(why)})" for name, why in changed.items()]
    rows += [f"  {name}={value}" for name, value in settings.items() if name not in changed]
    event["lines"] = [_clean(row) for row in rows]
    return event


def _why(why: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value or 'empty'}" for name, value in why.items())


def _clean(text: str) -> str:
    return text.translate(_CONTROLS)


def _escape_controls(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Keep what peers say from making lines of its own, or from steering the terminal."""
    return {
        name: _clean(value) if isinstance(value, str) else value for name, value in event.items()
    }


def _text_renderer(colors: bool) -> ConsoleRenderer:
    reset, dim, cyan = (_RESET, _DIM, _CYAN) if colors else ("", "", "")

    def bare(width: int = 0, style: str = "") -> KeyValueColumnFormatter:
        return KeyValueColumnFormatter(None, style, reset, str, width)

    def level(key: str, value: object) -> str:
        color = _LEVEL_COLORS.get(str(value), "") if colors else ""
        return f"{color}{value!s:<7}{reset if color else ''}"

    columns = [
        Column("time", bare(style=dim)),
        Column("level", level),
        Column("component", bare(16, dim)),
        Column("event", bare()),
        Column("lines", _rows),
        Column("", KeyValueColumnFormatter(cyan, "", reset, _value_text)),
    ]
    # Never with local variables: a message's body may be among them.
    return ConsoleRenderer(columns=columns, exception_formatter=plain_traceback)


def _rows(key: str, value: object) -> str:
    return "".join(f"\n    {row}" for row in value) if isinstance(value, list) else ""


def _value_text(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return repr(text) if not text or " " in text else text
