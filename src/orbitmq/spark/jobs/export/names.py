"""Names in a lake: the table of a topic, the file of a part.

A topic may have any bytes for a name, a directory may not: letters, digits, `_` and `-` stay as they are,
every other byte becomes `~` and two hexadecimal digits (`%RETRY%g` is `~25RETRY~25g`). No topic that a broker
takes has a `~`, so `Orders~dlq` can only be what did not fit into the table of `Orders`.
"""

import hashlib
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from orbitmq.spark.remote.address import Address

NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
"""The directory of rows without a store time; every engine reads it as null."""
DLQ: Final = "~dlq"
_NAME_BYTES_MAX: Final = 200  # file systems take 255
_OTHER: Final = re.compile(rb"[^A-Za-z0-9_-]")
_FIRST_DAY: Final = datetime(1970, 1, 1, tzinfo=UTC)


def table_name(topic: str, *, dlq: bool = False) -> str:
    """Return the name of the table, and of its directory."""
    name = topic.encode("utf-8", "replace")
    encoded = _OTHER.sub(lambda found: b"~%02X" % found[0][0], name)
    if len(encoded) > _NAME_BYTES_MAX:  # no broker makes such a topic, but bytes of a file may
        encoded = encoded[:_NAME_BYTES_MAX] + b"~" + hashlib.sha256(name).hexdigest()[:16].encode()
    return (encoded.decode() or "~") + (DLQ if dlq else "")


def name_of(root: Path | Address, url: str) -> str:
    """Return the name of a file, seen from the lake, where it lies below it."""
    above = root.url if isinstance(root, Address) else str(root)
    return url.removeprefix("file://").removeprefix(f"{above}/")


def place_of(root: Path | Address, name: str) -> str:
    """Return the path of a file, or its URL."""
    if isinstance(root, Address):
        return root.below(name).url
    return str(root / name)


def day_text(day: int | None) -> str | None:
    """Return a day, counted from 1970-01-01, as 2026-11-16."""
    return None if day is None else (_FIRST_DAY + timedelta(days=day)).date().isoformat()


def file_path(table: str, day: str | None, commit: int, number: int, job: str) -> str:
    """Return where a file of a table lies, seen from the lake's directory."""
    return f"{table}/day={day or NO_DAY}/part-{commit:08}-{number:05}-{job}.parquet"
