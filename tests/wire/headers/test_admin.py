"""Headers of tools' requests: all recorded ones are understood, and written as Java writes them."""

import pytest

from golden_frames import good_frames
from orbitmq.errors import FieldError
from orbitmq.wire.headers.admin import (
    BrokerConsumeStatsHeader,
    ConsumeDirectlyHeader,
    ConsumerStatusHeader,
    ConsumeStatsHeader,
    CorrectionOffsetHeader,
    DeleteGroupHeader,
    GetTopicConfigHeader,
    GroupHeader,
    GroupTopicHeader,
    ProducerGroupHeader,
    PutTopicHeader,
    QueryQueueHeader,
    ResetOffsetHeader,
    RunningInfoHeader,
    StatsItemHeader,
    TopicHeader,
)
from orbitmq.wire.headers.clients import ConsumerGroupHeader
from orbitmq.wire.headers.header import Header

KINDS: dict[int, type[Header]] = {
    17: PutTopicHeader,
    202: TopicHeader,
    203: ConsumerGroupHeader,
    204: ProducerGroupHeader,
    207: DeleteGroupHeader,
    208: ConsumeStatsHeader,
    215: TopicHeader,
    222: ResetOffsetHeader,
    223: ConsumerStatusHeader,
    300: TopicHeader,
    303: GroupTopicHeader,
    307: RunningInfoHeader,
    308: CorrectionOffsetHeader,
    309: ConsumeDirectlyHeader,
    315: StatsItemHeader,
    317: BrokerConsumeStatsHeader,
    321: QueryQueueHeader,
    343: GroupHeader,
    345: GroupTopicHeader,
    351: GetTopicConfigHeader,
    352: GroupHeader,
}


@pytest.mark.parametrize("code", KINDS)
def test_recorded_headers_are_read_and_written_again(code: int) -> None:
    requests = [
        frame.command
        for frame in good_frames()
        if frame.command.code == code and not frame.command.is_response
    ]

    assert requests
    for request in requests:
        header = KINDS[code].read(request.fields)
        written = header.write()
        assert (request.fields or {}).items() <= written.items()


def test_field_that_is_missing_or_wrong_is_named() -> None:
    with pytest.raises(FieldError, match="queueId"):
        QueryQueueHeader.read({"topic": "T", "index": "0", "count": "1"})
    fields = {"topic": "T", "readQueueNums": "1", "writeQueueNums": "1", "perm": "rw"}
    with pytest.raises(FieldError, match="perm"):
        PutTopicHeader.read(fields)
