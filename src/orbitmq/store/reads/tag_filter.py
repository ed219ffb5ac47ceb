"""Subscriptions by tag, as the broker checks them: by hash, at the queue unit."""

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from orbitmq.format.columns import Bytes, Ints
from orbitmq.format.cq_ext_unit import ExtUnit
from orbitmq.format.java_hash import java_hash

ALL: Final = "*"
SEPARATOR: Final = "||"


class MessageFilter(Protocol):
    """What a read asks of each message: first by its queue unit, then by its record."""

    def by_unit(self, tag_hash: int | None, ext: ExtUnit | None) -> bool:
        """Tell whether the record of this unit is worth reading; None: the tag is not known."""

    def by_record(self, record: memoryview) -> bool:
        """Tell whether this record is wanted."""


class RecordFilter(MessageFilter, Protocol):
    """A filter that wants every unit, and can be asked about many records at once."""

    def by_records(self, data: Bytes, at: Ints, sizes: Ints) -> npt.NDArray[np.bool_]:
        """Tell what `by_record` says of each record, by where it lies in the data and how long it is."""


@dataclass(frozen=True, slots=True)
class TagFilter:
    """What a consumer wants. Tags with equal hashes all pass; the client compares the strings."""

    tags: frozenset[str] = frozenset()
    hashes: frozenset[int] = frozenset()

    @classmethod
    def parse(cls, subscription: str | None) -> "TagFilter":
        """Return the filter of a subscription: None, empty and `*` mean all, else `A || B`."""
        if not subscription or subscription.strip() in ("", ALL):
            return cls()
        tags = frozenset(tag for part in subscription.split(SEPARATOR) if (tag := part.strip()))
        return cls(tags, frozenset(java_hash(tag) for tag in tags))

    @property
    def matches_all(self) -> bool:
        return not self.tags

    def matches_hash(self, tag_hash: int | None) -> bool:
        """Tell whether a message with this tag hash may be wanted; None: it is not known."""
        if tag_hash is None or not self.tags:
            return True
        # Java looks at the low 32 bits; delayed messages hold a time here.
        return ((tag_hash + 2**31) & 0xFFFFFFFF) - 2**31 in self.hashes

    def by_unit(self, tag_hash: int | None, ext: ExtUnit | None) -> bool:
        """Tell whether the record of this unit is worth reading (`MessageFilter`)."""
        return self.matches_hash(tag_hash)

    def by_record(self, record: memoryview) -> bool:
        """Let every record pass: the broker does not compare tag strings."""
        return True
