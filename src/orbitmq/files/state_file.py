"""A broker's state as JSON files: topics, consumer offsets, groups (RocketMQ: ConfigManager).

RocketMQ writes integer keys without quotes, `{0:250,1:251}`; both forms are read here. Written is its
pretty form - a tab per level, no space after a colon, arrays and integer-keyed tables on one line -
with the keys quoted, which every version of RocketMQ and every JSON parser reads.

A file is saved by making the old one `<name>.bak`, so that a reader who meets a torn file goes back one
version. Our new text is written and synced under a third name first: the file itself is never torn.
"""

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from orbitmq.errors import StateFileError
from orbitmq.files.disk import Disk
from orbitmq.files.replace import bak_path, read_whole, replace_file

logger = logging.getLogger(__name__)

State = dict[str, Any]

# A string without an end takes the rest of the text: else each quote in it would be tried again.
_STRING_OR_BARE_KEY: Final = re.compile(
    r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|([{,]\s*)(-?\d+)(?=\s*:)', re.DOTALL
)
_INTEGER: Final = re.compile(r"-?\d+")


def parse_state(text: str) -> State:
    """Return the object that a state file holds; its keys are strings. ValueError: it holds none."""
    quoted = _STRING_OR_BARE_KEY.sub(_quote_bare_key, text)
    try:
        value = json.loads(quoted)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"an object is expected, not {type(value).__name__}")  # noqa: TRY004
    return value


def format_state(value: Mapping[Any, Any]) -> str:
    """Return the pretty form that RocketMQ gives its state files, with every key quoted."""
    return "".join(_pieces(value, 0))


def read_state(path: Path, *, disk: Disk | None = None) -> State:
    """Return a state file's object; a broken or missing file is replaced by its .bak.

    Neither there: the empty state. StateFileError: something is there, and none of it is readable.
    """
    disk = disk or Disk()
    problems = []
    for candidate in (path, bak_path(path)):
        data = read_whole(disk, candidate)
        if not data:  # missing, or created and never written
            continue
        try:
            state = parse_state(data.decode("utf-8"))
        except ValueError as cause:
            problems.append(f"{candidate.name}: {cause}")
            continue
        if problems:
            logger.warning("%s: not readable, taken from %s: %s", path, candidate.name, problems[0])
        return state
    if not problems:
        return {}
    step = (
        "Restore it from a backup, or move both it and its .bak away to start with an empty table."
    )
    raise StateFileError(path, "is not readable as JSON (" + "; ".join(problems) + ")", step)


def write_state(disk: Disk, path: Path, value: Mapping[Any, Any]) -> None:
    """Save a state file; the version before it is kept as `<name>.bak`. Durable when this returns."""
    data = format_state(value).encode("utf-8")
    replace_file(
        disk, path, data, keep_bak=True, worth_keeping=lambda old: is_whole_state(disk, old)
    )


def is_whole_state(disk: Disk, path: Path) -> bool:
    """Tell whether a file is there and can be read as a state."""
    data = read_whole(disk, path)
    if not data:
        return False
    try:
        parse_state(data.decode("utf-8"))
    except ValueError:
        return False
    return True


def _quote_bare_key(match: re.Match[str]) -> str:
    before, key = match.groups()
    return match.group() if key is None else f'{before}"{key}"'


def _pieces(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        inline = all(isinstance(key, int) or _INTEGER.fullmatch(key) for key in value)
        line_end = "" if inline else "\n" + "\t" * (depth + 1)
        separator = "{"
        for key, item in value.items():
            yield f"{separator}{line_end}{_quote(str(key))}:"
            yield from _pieces(item, depth + 1)
            separator = ","
        yield "\n" + "\t" * depth + "}"
    elif isinstance(value, Mapping):
        yield "{}"
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield "["
        for index, item in enumerate(value):
            yield "," if index else ""
            yield from _pieces(item, depth + 1)
        yield "]"
    else:
        yield _quote(value)


def _quote(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
