"""The key index of a store whose index files somebody else fills: look only, and go on where he stopped."""

from orbitmq.errors import FormatError
from orbitmq.format.index_file import FIRST_ITEM, IndexHeader
from orbitmq.store.index.files import NOTHING, FullIndex, IndexFiles, Items


class FollowedIndex(IndexFiles):
    """Index files as their writer says that they are. Any thread may query.

    All of them are read through maps, the one that is being filled too: what is written by position
    shows up in a map, in the order entries, header, slots.
    """

    def insert(self, items: Items, *, unseen: bool = False) -> None:
        """Leave it to the writer."""

    def show(self, name: str, header: IndexHeader) -> None:
        """Take this file as the last one, with this header. FormatError: the files are not as told."""
        with self.lock:
            if not name:
                self.full, self._end = [], NOTHING
                return
            if self.full and self.full[-1].name == name:
                self.full[-1].header = header
            else:
                self.full = self._files_up_to(name, header)
            used = header if header.next_item > FIRST_ITEM else self._before_last()
            self._end = used.end_log_offset if used is not None else NOTHING
            is_full = header.next_item >= self.layout.index_items
            filled = header if is_full else self._before_last()
            self.full_ms = filled.end_ms if filled is not None else 0

    def _before_last(self) -> IndexHeader | None:
        return self.full[-2].header if len(self.full) > 1 else None

    def _files_up_to(self, name: str, header: IndexHeader) -> list[FullIndex]:
        files = []
        for found, path, length in self.list_files():
            if found > name:
                break  # begun, and not told of yet
            known = header if found == name else self.read_header(path)
            if known is None or length != self.layout.index_file_bytes:
                raise FormatError(f"index file {found} is none of this store")
            files.append(FullIndex(found, path, known))
        if not files or files[-1].name != name:
            raise FormatError(f"index file {name} is missing")
        return files


def load_index_at(index: IndexFiles, name: str, header: IndexHeader) -> None:
    """Go on filling an index whose last file is this one and had this header.

    What was put in later does not count and is put in again: files begun later are removed, entries behind
    the header's end are overwritten. FormatError: the files are not as told.
    """
    full: list[FullIndex] = []
    current = None
    for found, path, length in index.list_files():
        if found > name:
            index.remove(path)
            continue
        known = index.read_header(path)
        if known is None or length != index.layout.index_file_bytes:
            raise FormatError(f"index file {found} is none of this store")
        if found < name or header.next_item >= index.layout.index_items:
            full.append(FullIndex(found, path, known if found < name else header))
            continue
        current = index.open_file(found)
        current.load(known)
        if known != header or (current.slots >= header.next_item).any():
            current.load_prefix(header)
    last = current.name if current is not None else full[-1].name if full else ""
    if last != name:
        raise FormatError(f"index file {name} is missing")
    index.reset(full, current)
