"""From a log record to a line of JSON, for programs; `text_lines.py` makes lines for people.

  {"time":"2026-11-17T08:00:00.123Z","level":"info","component":"net.request_log","event":"ready", ...}

Whoever logs uses Python's `logging`, with fields in `extra`.
"""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from orbitmq.logs.secrets import masked

PACKAGE: Final = "orbitmq."
JSON_START: Final = b'{"time":'
"""What every line of a JSON log begins with."""

_OF_EVERY_RECORD: Final = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None)))


class JsonLines(logging.Formatter):
    """Makes a record one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        extra = {k: v for k, v in vars(record).items() if k not in _OF_EVERY_RECORD}
        if record.stack_info:
            extra = {"stack_info": record.stack_info, **extra}
        line = described(record, record.getMessage(), extra)
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line["time"] = moment.replace("+00:00", "Z")
        if record.exc_info and record.exc_info[0]:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, separators=(",", ":"))


def described(record: logging.LogRecord, event: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a line says: what every line has in front, then fields, with secrets hidden."""
    return {
        "time": record.created,
        "level": record.levelname.lower(),
        "component": record.name.removeprefix(PACKAGE),
        "event": event,
        **masked(fields),
    }
