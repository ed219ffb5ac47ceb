"""Counting what a filter lets through: exactly, or from a part of the queue."""

import pytest

from orbitmq.message import GetStatus
from orbitmq.store.reads.count import Counted, count_matching
from orbitmq.store.reads.get_result import GetResult
from orbitmq.store.reads.tag_filter import TagFilter

TAG = TagFilter.parse("A")


class Queue:
    """A queue of 1000 messages of which every fourth matches; a read looks at `block` of them."""

    def __init__(self, block=50, first=0, end=1000):
        self.block, self.first, self.end, self.reads = block, first, end, 0

    def __call__(self, offset, max_count, *, filter):  # noqa: A002
        self.reads += 1
        if offset < self.first:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, self.first)
        following = min(offset + self.block, self.end)
        found = [at for at in range(offset, following) if at % 4 == 0]
        status = GetStatus.FOUND if found else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(status, following, queue_offsets=found, message_count=len(found))


@pytest.mark.parametrize(
    ("start", "end", "matching"), [(0, 1000, 250), (1, 4, 0), (1, 5, 1), (9, 9, 0), (20, 10, 0)]
)
def test_all_is_looked_at_where_that_is_not_too_much(start, end, matching):
    found = count_matching(Queue(block=7), start, end, TAG, 10_000, 10_000)

    assert found == Counted(matching, False)


def test_without_a_filter_nothing_is_read():
    queue = Queue()

    assert count_matching(queue, 5, 25, None, 1, 1) == Counted(20, False)
    assert queue.reads == 0


@pytest.mark.parametrize(("scan_max", "matches_max"), [(100, 10_000), (10_000, 24)])
def test_beyond_a_limit_the_share_so_far_is_taken_for_all(scan_max, matches_max):
    queue = Queue(block=50)

    assert count_matching(queue, 0, 1000, TAG, scan_max, matches_max) == Counted(250, True)
    assert queue.reads == 2


def test_a_count_up_to_a_limit_is_exact():
    assert count_matching(Queue(block=50), 0, 100, TAG, 100, 10_000) == Counted(25, False)


def test_a_queue_that_was_cut_meanwhile_ends_the_count():
    assert count_matching(Queue(first=10), 0, 1000, TAG, 10_000, 10_000) == Counted(0, False)
    assert count_matching(Queue(end=100), 0, 1000, TAG, 10_000, 10_000) == Counted(25, False)
