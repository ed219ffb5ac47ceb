"""How many messages of a queue a filter lets through: counted, or estimated from the first of them."""

from typing import Final, NamedTuple, Protocol

from orbitmq.message import GetStatus
from orbitmq.store.reads.get_result import GetResult
from orbitmq.store.reads.tag_filter import MessageFilter

_READ_COUNT: Final = 1024

_GOES_ON: Final = frozenset(
    {GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING}
)


class Counted(NamedTuple):
    """So many match; an estimate if not all messages were looked at."""

    matching: int
    is_estimate: bool


class ReadQueue(Protocol):
    """Reads one queue from an offset on; see `QueueReader.get`."""

    def __call__(
        self,
        offset: int,
        max_count: int,
        *,
        filter: MessageFilter | None,  # noqa: A002
    ) -> GetResult: ...


def count_matching(
    read: ReadQueue,
    start: int,
    end: int,
    wanted: MessageFilter | None,
    scan_max: int,
    matches_max: int,
) -> Counted:
    """Return how many messages from `start` up to, not including, `end` a pull with this filter would bring.

    After `scan_max` messages, or more than `matches_max` matches, the share so far is taken for the whole.
    """
    if wanted is None or end <= start:
        return Counted(max(end - start, 0), False)
    offset, matches = start, 0
    while offset < end:
        if offset - start >= scan_max or matches > matches_max:
            return Counted(matches * (end - start) // (offset - start), True)
        found = read(offset, min(_READ_COUNT, end - offset), filter=wanted)
        if found.status not in _GOES_ON or found.next_offset <= offset:
            break  # what was behind it is gone by now
        if found.next_offset <= end:
            matches += found.message_count
        else:  # of what lies behind `end`, which came meanwhile, nobody asked
            matches += sum(1 for at in found.queue_offsets if at < end)
        offset = found.next_offset
    return Counted(matches, False)
