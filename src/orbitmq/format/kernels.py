"""The hot loops over whole buffers, in two forms with one signature: `plain` and `compiled`.

`plain` is the readable reference and serves until the compiled form is loaded (importing numba costs
most of a second). `compiled` is numba, releases the GIL and is cached on disk. Any byte string given
to a kernel yields a result or a FormatError; no length is used before it is checked.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from orbitmq.format.columns import (
    Bytes,
    Ints,
    Lists,
    PackedUnits,
    Rows,
    ScanOptions,
    ScanResult,
)


class QueueTable(Protocol):
    """Numbers every (topic, queue id) of a store: 0, 1, 2, ... in order of `add`. Not thread-safe."""

    def add(self, topic: bytes, queue_id: int) -> int:
        """Return the number of this queue, a new one if it was not known."""

    def find(self, topic: bytes, queue_id: int) -> int:
        """Return the number of this queue, or -1."""

    def resolve(self, buffer: Bytes, rows: Rows) -> npt.NDArray[np.int32]:
        """Return the queue number of each row, -1 where the queue is not in the table."""

    def __len__(self) -> int: ...


class Kernels(Protocol):
    """One set of hot loops."""

    name: str  # "plain" or "compiled"

    def crc32(self, buffer: Bytes) -> int:
        """Return the masked CRC-32 (31 bits) that records carry."""

    def scan(
        self, buffer: Bytes, start: int, end: int, base_offset: int, options: ScanOptions
    ) -> ScanResult:
        """Read records from position `start` up to `end`; `base_offset` is the offset of buffer[0].

        Every row is a whole record that passed the checks asked for: known magic, lengths that fill the
        size exactly, numbers where DELAY (schedule topic), INNER_NUM and INNER_BASE must be some.
        Never raises on bad bytes.
        """

    def find_record(
        self, buffer: Bytes, start: int, end: int, base_offset: int, *, check_crc: bool = True
    ) -> int:
        """Return the first position >= start of a record that names its own place, or -1.

        Such a record passes `scan` with `check_offset` and (if asked) `check_crc`.
        """

    def queue_table(self) -> QueueTable:
        """Return a new empty table."""

    def pack_units(self, rows: Rows, queue_nos: npt.NDArray[np.int32]) -> PackedUnits:
        """Group the rows' 20-byte units by queue. Rows marked NO_UNIT or with queue -1 are left out."""

    def index_items(self, buffer: Bytes, rows: Rows) -> npt.NDArray[np.void]:
        """Return ITEM rows of all keys: per record UNIQ_KEY first, then the parts of KEYS."""

    def index_insert(
        self,
        items: npt.NDArray[np.void],
        first: int,
        slots: npt.NDArray[np.int32],
        entries: Bytes,
        entries_first: int,
        state: Ints,
        items_max: int,
    ) -> int:
        """Insert items[first:] into an index file; return how many went in.

        `slots` is the file's slot table in native byte order, `entries` the packed 20-byte entries
        from entry number `entries_first` on, `state` the header as six numbers (`IndexHeader`),
        updated in place. Ends early when the file is full (next_item >= items_max) or `entries` has
        no room.
        """

    def index_chain(
        self,
        file: Bytes,
        slot_count: int,
        key_hash: int,
        begin_ms: int,
        end_ms: int,
        count_max: int,
    ) -> list[int]:
        """Follow a key's chain in the bytes of an index file; newest first, no exact match."""

    def gather(self, buffer: Bytes, at: Ints, lengths: Ints, out: Bytes, out_at: Ints) -> None:
        """Copy lengths[i] bytes from at[i] of the buffer to out_at[i] of `out`, for every i.

        Raises FormatError before the first byte is copied if a piece lies outside of either.
        """

    def text_spans(self, buffer: Bytes, rows: Rows) -> npt.NDArray[np.void]:
        """Return where each record's tag, keys and unique id lie, as SPANS rows."""

    def property_pairs(self, buffer: Bytes, rows: Rows) -> Lists:
        """Return where names and values of each record's properties lie, as PAIR elements.

        Of equal names the last value counts, in the place of the first, as in a Python dict.
        """

    def split_parts(self, buffer: Bytes, at: Ints, lengths: Ints, separator: int) -> Lists:
        """Cut each piece of the buffer at this byte; the parts that are not empty are PART elements."""

    def bodies_match(self, buffer: Bytes, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return of each row whether its body has the checksum that its record names.

        As in `scan`, an empty body always matches.
        """

    def encode_client_batch(
        self,
        out: Bytes,
        position: int,
        log_offset: int,
        store_ms: int,
        common: npt.NDArray[np.void],
        topic: bytes,
        batch: Bytes,
        extra_properties: bytes,
        *,
        property_crc: bool = False,
    ) -> Ints:
        """Write the messages of a client batch body as records; return their sizes.

        `common` is one APPEND row with what they share; its queue_offset is the first message's.
        `extra_properties` is added to each message's own (a 0x02 between them if missing).
        Raises FormatError on a broken batch, before the first byte is written.
        """

    def client_batch_sizes(
        self,
        topic: bytes,
        batch: Bytes,
        extra_properties: bytes,
        common: npt.NDArray[np.void],
        *,
        property_crc: bool = False,
    ) -> Ints:
        """Return the record sizes that `encode_client_batch` would write."""


def plain() -> Kernels:
    """Return the reference kernels; ready at once."""
    from orbitmq.format.plain import KERNELS

    return KERNELS


def compiled() -> Kernels:
    """Return the compiled kernels; the first call imports numba and loads its cache."""
    from orbitmq.format.compiled import KERNELS

    return KERNELS


def twins() -> Sequence[Kernels]:
    """Return both, for tests that compare them."""
    return (plain(), compiled())
