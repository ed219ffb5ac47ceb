"""What a puller makes of answers that bring no messages."""

from typing import Any, cast

import pytest

from orbitmq.client.core.broker_api import PullResult, PullStatus
from orbitmq.errors import PipelineError
from orbitmq.spark.source.options import BadRecords, ReadOptions
from orbitmq.spark.streams.offsets import QueueRange
from orbitmq.spark.streams.pull import RangeFetcher

RANGE = QueueRange("Orders", "broker-a", 0, 0, 100)


def puller(**given: Any) -> RangeFetcher:
    return RangeFetcher(cast(Any, None), RANGE, ReadOptions(**given))


def answer(status: PullStatus, following: int) -> PullResult:
    return PullResult(status, following, 0, 100, 0, b"")


def test_messages_that_a_tag_left_out_are_passed_over() -> None:
    assert puller(tags=("A",))._next(10, answer(PullStatus.NO_MATCH, 40)) == 40


def test_without_a_filter_messages_that_are_passed_over_are_gone() -> None:
    """A broker answers so while it deletes the segment that held them."""
    with pytest.raises(PipelineError, match="messages 10 to 39 were deleted"):
        puller()._next(10, answer(PullStatus.NO_MATCH, 40))


def test_what_is_gone_may_be_skipped() -> None:
    skipping = puller(bad_records=BadRecords.SKIP)
    assert skipping._next(10, answer(PullStatus.NO_MATCH, 40)) == 40
