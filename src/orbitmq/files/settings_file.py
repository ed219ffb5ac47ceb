"""Changed settings are written into the configuration file, beside what its owner wrote there.

Only the lines of the changed keys are touched: comments, order and everything else stay. What comes out
is read again before it replaces the file; a form that cannot be changed line by line (a TOML value over
several lines) is refused and left as it is.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orbitmq.errors import ConfigError, StateFileError
from orbitmq.files.disk import Disk
from orbitmq.files.replace import read_whole, replace_file
from orbitmq.settings import decode_settings, parse_properties, parse_settings

_SPECIAL: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
_TOML_VALUE: Final = re.compile(r"""(\s*(?:"[^"\\]*"|'[^']*'|[^"'#\[{]*?))(\s*(?:\#.*)?)""")


def keep_settings(
    path: Path, changes: Mapping[str, str], *, title: str = "", disk: Disk | None = None
) -> None:
    """Put these values into a file, durable when this returns. StoreError: it stays as it was.

    A file that is not there yet is made, with `title` as its first lines.
    """
    disk = disk or Disk()
    path = path.resolve()  # a link goes on leading to the file
    data = read_whole(disk, path)
    old = decode_settings(data) if data is not None else title
    new = changed_text(path, old, changes)
    if new == old:
        return
    encoding = "utf-8"
    if data is not None:
        _prepare_mode(path)
        encoding = "utf-8" if old.encode() == data else "latin-1"  # as it was
    replace_file(disk, path, new.encode(encoding))


def changed_text(path: Path, text: str, changes: Mapping[str, str]) -> str:
    """Return the text of a settings file with these values."""
    is_toml = path.suffix == ".toml"
    new = _changed_toml(text, changes) if is_toml else _changed_properties(text, changes)
    try:
        before = {key: one.value for key, one in parse_settings(path, text).items()}
        after = {key: one.value for key, one in parse_settings(path, new).items()}
        fits = after == {**before, **changes}
    except ConfigError:
        fits = False
    if not fits:
        what = f"cannot take new values of {', '.join(sorted(changes))} line by line"
        raise StateFileError(path, what, "Write them there by hand and start it again.")
    return new


def _changed_properties(text: str, changes: Mapping[str, str]) -> str:
    lines = text.splitlines(keepends=True)
    missing = dict(changes)
    starts = [(number - 1, key) for number, key, _ in parse_properties(text)]
    last = {key: number for number, key in starts}  # of several the last one counts
    for number, key in reversed(starts):
        if key in changes and last[key] == number:
            end = number + 1
            while end < len(lines) and _continues(lines[end - 1]):
                end += 1
            lines[number:end] = [f"{key}={_escaped(changes[key])}\n"]
            missing.pop(key, None)
    return _with_lines(lines, [f"{key}={_escaped(value)}\n" for key, value in missing.items()])


def _continues(line: str) -> bool:
    line = line.rstrip("\r\n")
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _escaped(value: str) -> str:
    """Return a value as Java's .properties have it: whatever the file's encoding, it is ASCII."""
    text = "".join(_SPECIAL.get(character, character) for character in value)
    if text.startswith(" "):
        text = "\\" + text
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(chr(code) if 0x20 <= code < 0x7F else f"\\u{code:04X}" for code in codes)


def _changed_toml(text: str, changes: Mapping[str, str]) -> str:
    lines = text.splitlines(keepends=True)
    added = []
    for key, value in changes.items():
        start = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*=""")
        quoted = json.dumps(value, ensure_ascii=False)
        for number, line in enumerate(lines):
            if (found := start.match(line)) is not None:
                rest = _TOML_VALUE.fullmatch(line[found.end() :].rstrip("\r\n"))
                comment = rest.group(2) if rest is not None else ""
                lines[number] = f"{found.group()} {quoted}{comment}\n"
                break
        else:
            added.append(f"{key} = {quoted}\n")
    return _with_lines(lines, added)


def _with_lines(lines: list[str], added: list[str]) -> str:
    if added and lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return "".join((*lines, *added))


def _prepare_mode(path: Path) -> None:
    """Let the new file be as readable as the old one, from the moment that it is there."""
    new = path.with_name(path.name + ".tmp")  # where replace_file writes
    try:
        mode = path.stat().st_mode & 0o777
        os.close(os.open(new, os.O_CREAT | os.O_WRONLY, 0o600))
        new.chmod(mode)
    except OSError:
        pass  # then replace_file says what is wrong
