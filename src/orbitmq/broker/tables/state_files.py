"""StateFiles: which table is saved as which file of `config/`, and when.

Tables are written by one thread, so that a newer state is never replaced by an older one. A table that
saves at once does so a moment after each change (many changes, one write); the others when asked.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from orbitmq.errors import StoreError
from orbitmq.files.disk import Disk
from orbitmq.files.replace import replace_file
from orbitmq.files.state_file import format_state, read_state, write_state

logger = logging.getLogger(__name__)

TOPICS_FILE: Final = "topics.json"
GROUPS_FILE: Final = "subscriptionGroup.json"
OFFSETS_FILE: Final = "consumerOffset.json"
NEVER: Final = -1

_quote = json.encoder.encode_basestring


class StateText:
    """The text of one table, made quickly again when a few of its rows changed.

    A broker with ten thousand topics saves its table after each new one: rows that are the same objects as
    the last time keep their text. The form is that of `format_state`. Belongs to the thread that writes it.
    """

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


# --- when which table is saved ---


class SavedTable(Protocol):
    """Something that is saved."""

    @property
    def changes(self) -> int:
        """Return how often it changed; only whether that is another number matters."""

    def snapshot(self) -> Mapping[str, Any]:
        """Return what is saved; it may be read by another thread and does not change any more."""

    def load(self, state: Mapping[str, Any], path: Path) -> None:
        """Take over what was saved."""


@dataclass(slots=True)
class _Saved:
    table: SavedTable
    path: Path
    at_once: bool
    changes: int  # of the table, when it was last written or loaded
    text: StateText = field(default_factory=StateText)
    written: bool = False  # by us: what lies there is whole


class StateFiles:
    """The tables of one store directory. Belongs to the event loop's thread; writes in its own."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self._directory, self._disk = directory, disk or Disk()
        self._saved: list[_Saved] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="orbitmq-state")
        self._pending: asyncio.Task[None] | None = None
        self._waiting: list[tuple[list[tuple[_Saved, int]], Callable[[], None]]] = []
        self.failure: StoreError | None = None
        """Why the last write failed; None: it did not."""

    def add(self, name: str, table: SavedTable, *, at_once: bool = False) -> None:
        """Load a table from its file and save it there from now on. StateFileError: unreadable."""
        path = self._directory / name
        state = read_state(path, disk=self._disk)
        table.load(state, path)
        self._saved.append(_Saved(table, path, at_once, table.changes if state else NEVER))

    def changed(self) -> None:
        """Have those tables saved soon that are saved at once."""
        if self._pending is None or self._pending.done():
            self._pending = asyncio.ensure_future(self._save_pending())

    def when_saved(self, callback: Callable[[], None]) -> None:
        """Call back when those tables are on disk as they are now, or could not be written."""
        ours = [one for one in self._saved if one.at_once]
        self._waiting.append(([(one, one.table.changes) for one in ours], callback))
        self._answer_waiting()
        if self._waiting:
            self.changed()

    def _answer_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for entry in waiting:
            targets, callback = entry
            if self.failure is None and any(one.changes < changes for one, changes in targets):
                self._waiting.append(entry)
            else:
                callback()

    async def save(self) -> None:
        """Write every table that changed since it was written last; return when it is on disk."""
        await self._save(self._saved)

    async def _save_pending(self) -> None:
        ours = [one for one in self._saved if one.at_once]
        while any(one.table.changes != one.changes for one in ours):
            await self._save(ours)
            self._answer_waiting()
            if self.failure is not None:
                return  # the next round of all tables tries again

    async def _save(self, saved: Iterable[_Saved]) -> None:
        loop = asyncio.get_running_loop()
        for one in saved:
            changes = one.table.changes
            if changes == one.changes:
                continue
            snapshot = one.table.snapshot()
            try:
                await loop.run_in_executor(self._thread, self._write, one, snapshot)
            except StoreError as error:
                self.failure = error
                logger.warning("%s: not saved, tried again soon: %s", one.path.name, error)
            else:
                self.failure = None
                one.changes = changes

    def _write(self, one: _Saved, snapshot: Mapping[str, Any]) -> None:
        if one.written:
            data = one.text.text(snapshot).encode()
            replace_file(self._disk, one.path, data, keep_bak=True)
        else:
            # This one looks first whether the old file is worth keeping.
            write_state(self._disk, one.path, plain(snapshot))
            one.written = True

    async def close(self) -> None:
        """Save what changed and end the thread."""
        if self._pending is not None:
            await asyncio.gather(self._pending, return_exceptions=True)
        await self.save()
        await self.abandon()

    async def abandon(self) -> None:
        """End the thread; what was not saved is not."""
        self._thread.shutdown(wait=False)  # it has nothing to do any more
