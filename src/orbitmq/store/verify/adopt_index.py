"""Adopt the index of a store that somebody else wrote, or that cannot be trusted.

The keys of the whole log stream in, in log order, and are compared with the files in theirs. A file is
made again in memory by the same kernel that fills a new one, so what is compared is every byte: hash,
offset, seconds, chain, slots and header. Up to the first contradiction the files are kept; from there on
they are written anew.

Not a contradiction:
  entries of records before the log's first segment   they lead nowhere, but nothing proves them wrong
  the keys of the last record a second time           the Java store does that after a crash
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.format.columns import ITEM
from orbitmq.format.index_file import FIRST_ITEM, IndexHeader
from orbitmq.store.index.files import FullIndex, IndexFiles, Items
from orbitmq.store.index.open import OpenIndex

BEGIN_MS_MAX: Final = 1 << 47  # far in the future
_STEP_ENTRIES: Final = 16 * 1024
_NO_ITEMS: Final = np.zeros(0, ITEM)


@dataclass(slots=True)
class IndexVerifyReport:
    """What an adoption found; everything named here was put right."""

    kept_entries: int = 0
    repeated: int = 0  # entries of a record that was entered twice
    wrong: int = 0  # entries that were put right in place
    beyond: int = 0  # entries that no record of the log stands behind
    added: int = 0  # entries that were missing
    repaired_files: list[str] = field(default_factory=list)  # header or slots were wrong
    dropped_files: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        found = self.wrong or self.beyond or self.added
        return not (found or self.repaired_files or self.dropped_files)


class IndexVerifier:
    """One adoption: feed all items of the log to `take`, then `finish`. Not thread-safe."""

    def __init__(self, index: IndexFiles, log_min: int) -> None:
        self.report = IndexVerifyReport()
        self._index = index
        self._log_min = log_min
        self._full: list[FullIndex] = []
        self._rest: list[tuple[str, IndexHeader]] = []  # files not looked at yet
        self._file: OpenIndex | None = None  # the one being compared
        self._disk_header = IndexHeader()
        self._writing = False  # past the first contradiction, or past the last file
        self._last: Items | None = None  # all items of the newest record
        self._list_files()
        index.reset()
        self._next_file()

    def _list_files(self) -> None:
        layout = self._index.layout
        for name, path, length in self._index.list_files():
            fits = length == layout.index_file_bytes
            header = self._index.read_header(path) if fits else None
            if (
                header is not None
                and header.next_item <= layout.index_items
                # Entries of expired records cannot be compared: their times hang on this alone.
                and 0 <= header.begin_ms < BEGIN_MS_MAX
            ):
                self._rest.append((name, header))
            else:
                self._drop(name)

    def _drop(self, name: str) -> None:
        self._index.remove(self._index.path(name))
        self.report.dropped_files.append(name)

    def _next_file(self) -> None:
        """Go on with the next file on disk that is not through already; without one, start writing."""
        while self._rest:
            name, self._disk_header = self._rest.pop(0)
            file = self._file = self._index.open_file(name)
            file.start(self._full[-1].header.following() if self._full else IndexHeader())
            self._keep_expired(file)
            if not file.is_full:
                return
            self._complete(file)
        self._file = None
        self._start_writing()

    def _keep_expired(self, file: OpenIndex) -> None:
        """Take the entries at the front whose records are no longer in the log as they are."""
        count = 0
        while FIRST_ITEM + count < self._disk_header.next_item:
            entries = self._read(file, FIRST_ITEM + count)
            expired = entries["log_offset"] < self._log_min
            here = len(entries) if expired.all() else int(expired.argmin())
            count += here
            if not here or here < len(entries):
                break
        if not count:
            return
        self.report.kept_entries += count
        last = file.read_entries(count, 1)
        header = self._disk_header
        if FIRST_ITEM + count < header.next_item:
            end_ms = header.begin_ms + int(last["seconds"][0]) * 1000
            offset = int(last["log_offset"][0])
            header = header._replace(
                end_ms=end_ms, end_log_offset=offset, next_item=FIRST_ITEM + count
            )
        file.load_prefix(header)

    def _read(self, file: OpenIndex, first: int) -> npt.NDArray[np.void]:
        return file.read_entries(first, min(_STEP_ENTRIES, self._disk_header.next_item - first))

    # --- comparing ---

    def take(self, items: Items) -> None:
        """Compare the next items of the log, or insert them."""
        done = 0
        while done < len(items) and not self._writing:
            done += self._compare(items[done:])
        if done < len(items):
            self.report.added += len(items) - done
            self._index.insert(items[done:], unseen=True)

    def _remember(self, items: Items) -> None:
        if len(items):
            newest = items[items["log_offset"] == items["log_offset"][-1]]
            if self._last is not None and self._last["log_offset"][0] == newest["log_offset"][0]:
                newest = np.concatenate([self._last, newest])
            self._last = newest

    def _compare(self, items: Items) -> int:
        """Compare with the file from its current place on; return how many items are done with."""
        file = self._file
        assert file is not None
        if file.next_item >= self._disk_header.next_item:
            self._end_of_file(file)
            return 0
        entries = self._read(file, file.next_item)
        count = min(len(entries), len(items))
        same = (entries["key_hash"][:count] == items["key_hash"][:count]) & (
            entries["log_offset"][:count] == items["log_offset"][:count]
        )
        good = count if same.all() else int(same.argmin())
        if good:
            self._accept(file, items[:good], entries[:good])
            self._remember(items[:good])
            return good
        again = self._repeated(items, entries)
        if again is not None:
            record, ahead = again
            self._accept(file, record, entries[: len(record)])
            self._remember(items[:ahead])
            self.report.repeated += len(record) - ahead
            return ahead
        self.report.beyond += self._disk_header.next_item - file.next_item
        self._note_repair(file)
        self._start_writing()
        return 0

    def _accept(self, file: OpenIndex, items: Items, entries: npt.NDArray[np.void]) -> None:
        """Insert items whose entries are on disk; entries that differ in the rest are written."""
        seconds = int(entries["seconds"][0])
        if not self._full and file.next_item == FIRST_ITEM and seconds > 0:
            # The first entry's seconds count from the end of the file before, which is gone.
            begin = int(items["store_ms"][0]) - seconds * 1000
            file.start(IndexHeader(begin, begin, 0, 0))
        first = file.next_item
        made = file.insert_checked(self._index.kernels, items)
        differs = made != entries
        if differs.any():
            self.report.wrong += int(differs.sum())
            file.write_entries(first, made.tobytes())
            self._note_repair(file)
        self.report.kept_entries += len(items) - int(differs.sum())

    def _repeated(self, items: Items, entries: npt.NDArray[np.void]) -> tuple[Items, int] | None:
        """Return the items of the newest record if the file has them (again) from here on.

        Also how many of them are the next items of the log: a record may have been entered half into
        the file before.
        """
        if self._last is None:
            return None
        offset = self._last["log_offset"][0]
        ahead = int(np.count_nonzero(items["log_offset"] == offset))  # they are in log order
        record = np.concatenate([self._last, items[:ahead]])
        if len(record) > len(entries):
            return None
        found = entries[: len(record)]
        if (found["log_offset"] != offset).any() or (found["key_hash"] != record["key_hash"]).any():
            return None
        return record, ahead

    def _end_of_file(self, file: OpenIndex) -> None:
        """Everything that the file holds was compared."""
        rolled = self._index.roll_ms and self._rest  # its span was over before it was full
        if file.is_full or rolled:
            self._complete(file)
            self._next_file()
        else:
            self._settle(file)
            self._start_writing()

    def _complete(self, file: OpenIndex) -> None:
        self._settle(file)
        file.write()
        self._full.append(FullIndex(file.name, file.path, file.header))

    def _settle(self, file: OpenIndex) -> None:
        if file.header != self._disk_header or not np.array_equal(file.read_slots(), file.slots):
            self._note_repair(file)
        else:
            file.mark_clean()

    def _note_repair(self, file: OpenIndex) -> None:
        file.mark_all_dirty()
        if file.name not in self.report.repaired_files:
            self.report.repaired_files.append(file.name)
        if file.is_full:
            file.write()

    def _start_writing(self) -> None:
        """Hand over to normal insertion; files behind the current place are removed."""
        self._writing = True
        file = self._file
        for name, _ in self._rest:
            self._drop(name)
        self._rest = []
        if file is not None and file.next_item == FIRST_ITEM < self._disk_header.next_item:
            self._drop(file.name)
            self.report.repaired_files.remove(file.name)
            file = None
        self._index.adopt(self._full, file)

    def finish(self) -> IndexVerifyReport:
        """Settle what the log has no items for."""
        while not self._writing:
            self._compare(_NO_ITEMS)
        return self.report
