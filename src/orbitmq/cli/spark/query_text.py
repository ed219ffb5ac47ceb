"""What `orbitmq spark query` prints: messages as rows and as JSON, and what was read for them."""

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from orbitmq.cli.output import bytes_text, one_line

if TYPE_CHECKING:
    from pyspark.sql import Row

    from orbitmq.spark.jobs.query.figures import QueryFigures, SideFigures

BODY_SHOWN: Final = 60
MESSAGE_HEADER: Final = ("stored", "topic", "queue", "offset", "tag", "keys", "id", "body")


def json_line(row: "Row") -> str:
    """Return a row as JSON; bytes are text where they are UTF-8, else a field NAME_base64."""
    return msgspec.json.encode(_json(row.asDict(recursive=True))).decode()


def _json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(_json_field(str(name), one) for name, one in value.items())
    if isinstance(value, list | tuple):
        return [_json(one) for one in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return _time(value)
    return value


def _json_field(name: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, bytes | bytearray):
        try:
            return name, value.decode()
        except UnicodeDecodeError:
            return f"{name}_base64", _json(value)
    return name, _json(value)


def message_cells(row: "Row") -> list[object]:
    """Return a message as a row of a table for people."""
    return [
        _cell(one)
        for one in (
            row.store_time,
            row.topic,
            row.queue_id,
            row.queue_offset,
            row.tags,
            " ".join(row.keys or ()),
            row.message_id or row.offset_id,
            row.body,
        )
    ]


def cells(row: "Row") -> list[object]:
    """Return what SQL gave as a row of a table."""
    return [_cell(value) for value in row]


def _cell(value: Any) -> object:
    if isinstance(value, bool) or value is None or isinstance(value, int | float):
        return value
    if isinstance(value, datetime):
        return _time(value)
    if isinstance(value, bytes | bytearray):
        return _shown_bytes(bytes(value))
    if isinstance(value, list | tuple | Mapping):
        return msgspec.json.encode(_json(value)).decode()
    return one_line(str(value))


def _shown_bytes(value: bytes) -> str:
    """Return the beginning of a body: as text if all of it can be printed, else in hex."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = ""
    if value and not (text.isprintable() and text):
        text = "0x" + value[: BODY_SHOWN // 2].hex()
        return text + (f"... ({len(value)} bytes)" if len(value) > BODY_SHOWN // 2 else "")
    return text if len(text) <= BODY_SHOWN else f"{text[:BODY_SHOWN]}... ({len(value)} bytes)"


def _time(moment: datetime) -> str:
    aware = moment if moment.tzinfo is not None else moment.astimezone()
    text = aware.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def figures_text(figures: "QueryFigures") -> str:
    """Return in one line what was read, and what told where to read."""
    sides = (("log", figures.log), ("lake", figures.lake))
    return "; ".join(_side_text(name, side) for name, side in sides if side is not None)


def _side_text(name: str, side: "SideFigures") -> str:
    how = " and ".join(side.found_by) or "full scan"
    files = f", {side.files} of {side.of_files} files" if side.files is not None else ""
    if side.read_bytes is None:
        return f"{name}: {how}{files}, bytes not counted"
    read = f"{bytes_text(side.read_bytes)} read"
    if side.of_bytes:
        read = f"{bytes_text(side.read_bytes)} of {bytes_text(side.of_bytes)} read"
        read += f" ({side.share or 0:.2%})"
    return f"{name}: {how}{files}, {read}"
