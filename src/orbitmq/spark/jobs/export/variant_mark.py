"""The mark of a variant in the footer of a Parquet file, by which readers know that a group is one.

pyarrow writes the two columns of a variant, but has no name for it (apache/arrow#50132). What is missing is a
logical type of one element of the footer's schema, seven bytes of Thrift's compact protocol. Nothing points
behind the footer, so it can be written anew at its place.
"""

from typing import IO, Final

from orbitmq.errors import JobFailedError

_TAIL_BYTES: Final = 8  # the footer's length, and a magic word
_STOP, _BOOLEANS, _BYTE, _DOUBLE, _BINARY, _LISTS, _STRUCT = 0, (1, 2), 3, 7, 8, (9, 10), 12
_VARINTS: Final = (4, 5, 6)
_NAME, _CHILDREN, _LOGICAL = 4, 5, 10  # fields of a SchemaElement
_VARIANT: Final = bytes((_STRUCT, 16 << 1, 1 << 4 | _BYTE, 1, _STOP, _STOP))
"""Of LogicalType its field 16, of which field 1 is the version: 1."""


def mark_variant(file: IO[bytes], column: str) -> None:
    """Say in a whole Parquet file, open for reading and writing, that a column is a variant."""
    end = file.seek(-_TAIL_BYTES, 2)
    tail = file.read()
    length = int.from_bytes(tail[:4], "little")
    file.seek(end - length)
    footer = marked(file.read(length), column.encode())
    file.seek(end - length)
    file.write(footer + len(footer).to_bytes(4, "little") + tail[4:])
    file.flush()


def marked(footer: bytes, column: bytes) -> bytes:
    """Return a footer whose group of this name is a variant."""
    reader = _Thrift(footer)
    kind, last = reader.field(0)
    while last != 2:  # of FileMetaData the list of SchemaElements
        reader.skip(kind)
        kind, last = reader.field(last)
    count, _ = reader.list_head()
    for _ in range(count):
        end, last = reader.element(column)
        if last:
            mark = bytes(((_LOGICAL - last) << 4 | _STRUCT,)) + _VARIANT
            return footer[:end] + mark + footer[end:]
    what = f"pyarrow wrote no column {column.decode()} that could be a variant"
    raise JobFailedError(what, "Export without --body variant; the lake is as before.")


class _Thrift:
    """Reads on in bytes of the compact protocol. Not thread-safe."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def field(self, last: int) -> tuple[int, int]:
        """Return type and number of the next field; type 0: there is none."""
        head = self._byte()
        if not head:
            return _STOP, last
        delta, kind = head >> 4, head & 15
        if delta:
            return kind, last + delta
        number = self._varint()
        return kind, (number >> 1) ^ -(number & 1)

    def list_head(self) -> tuple[int, int]:
        """Return count and type of a list's elements."""
        head = self._byte()
        count, kind = head >> 4, head & 15
        return (self._varint() if count == 15 else count), kind

    def element(self, wanted: bytes) -> tuple[int, int]:
        """Return where a SchemaElement ends, and its last field if it is the wanted group, else 0."""
        name, is_group, kind, last = b"", False, -1, 0
        while True:
            kind, number = self.field(last)
            if kind == _STOP:
                is_wanted = name == wanted and is_group and last < _LOGICAL
                return self._at - 1, last if is_wanted else 0
            if number == _NAME:
                name = self._binary()
            else:
                self.skip(kind)
            is_group |= number == _CHILDREN
            last = number

    def skip(self, kind: int) -> None:
        """Pass over a value."""
        if kind in _VARINTS:
            self._varint()
        elif kind == _BYTE:
            self._at += 1
        elif kind == _DOUBLE:
            self._at += 8
        elif kind == _BINARY:
            self._binary()
        elif kind in _LISTS:
            count, inner = self.list_head()
            for _ in range(count):
                self.skip(_BYTE if inner in _BOOLEANS else inner)
        elif kind == _STRUCT:
            kind, last = self.field(0)
            while kind != _STOP:
                self.skip(kind)
                kind, last = self.field(last)
        elif kind not in _BOOLEANS:
            raise AssertionError(f"a footer has no values of type {kind}")

    def _binary(self) -> bytes:
        length = self._varint()
        self._at += length
        return self._data[self._at - length : self._at]

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _varint(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
