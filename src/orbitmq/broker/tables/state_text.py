"""StateText: the text of a state file, made quickly again when a few of its rows changed.

A broker with ten thousand topics saves its table after each new one: rows that are the same objects as
the last time keep their text. The form is that of `format_state`.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from orbitmq.files.state_file import format_state

_quote = json.encoder.encode_basestring


class StateText:
    """The text of one table. Belongs to the thread that writes it."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], tuple[msgspec.Struct, str]] = {}

    def text(self, snapshot: Mapping[str, Any]) -> str:
        """Return what `format_state(plain(snapshot))` returns."""
        kept, self._rows = self._rows, {}
        members = [
            f"\n\t{_quote(name)}:{self._member(name, value, kept)}"
            for name, value in snapshot.items()
        ]
        return f"{{{','.join(members)}\n}}" if members else "{}"

    def _member(
        self, name: str, value: Any, kept: dict[tuple[str, str], tuple[msgspec.Struct, str]]
    ) -> str:
        is_table = isinstance(value, Mapping) and value and all(map(_is_name, value))
        if not is_table:
            return _indented(format_state(plain(value)), 1)
        rows = []
        for key, row in value.items():
            if isinstance(row, msgspec.Struct):
                known = kept.get((name, key))
                if known is None or known[0] is not row:
                    known = row, _indented(format_state(plain(row)), 2)
                self._rows[name, key] = known
                text = known[1]
            elif isinstance(row, dict) and row and all(type(item) is int for item in row):
                pairs = ",".join([f'"{number}":{item}' for number, item in row.items()])
                text = f"{{{pairs}\n\t\t}}"
            else:
                text = _indented(format_state(plain(row)), 2)
            rows.append(f"\n\t\t{_quote(key)}:{text}")
        return f"{{{','.join(rows)}\n\t}}"


def plain(value: Any) -> Any:
    """Return the value with typed bodies as tables, their members in alphabetical order, None left out."""
    if isinstance(value, msgspec.Struct):
        members = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        pairs = ((name, getattr(value, attribute)) for name, attribute in sorted(members))
        return {name: plain(item) for name, item in pairs if item is not None}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _is_name(key: object) -> bool:
    """Tell whether a key is a name: a table with numbers as keys stands on one line."""
    return isinstance(key, str) and not key.removeprefix("-").isdigit()


def _indented(text: str, depth: int) -> str:
    return text.replace("\n", "\n" + "\t" * depth)  # line breaks inside strings are escaped
