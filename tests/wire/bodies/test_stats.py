"""Bodies that tools get: every recorded one can be read and written again as it was."""

import pytest

from golden_frames import good_frames
from orbitmq.wire.bodies.body import Body
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.stats import (
    BrokerConsumeStats,
    ConsumerStatus,
    ConsumeStats,
    ConsumeTimeSpans,
    CorrectionOffsets,
    QueueProgress,
    QueueUnits,
    ResetOffsets,
    StatsData,
    TopicStats,
)

KINDS: dict[int, type[Body]] = {
    202: TopicStats,
    208: ConsumeStats,
    222: ResetOffsets,
    303: ConsumeTimeSpans,
    308: CorrectionOffsets,
    315: StatsData,
    317: BrokerConsumeStats,
    321: QueueUnits,
}


@pytest.mark.parametrize("code", KINDS, ids=lambda code: KINDS[code].__name__)
def test_recorded_bodies_come_back_byte_for_byte(code: int) -> None:
    bodies = [
        frame.command.body
        for frame in good_frames()
        if frame.request_code == code and frame.command.is_response and frame.command.body
    ]

    assert bodies
    for body in bodies:
        assert KINDS[code].decode(body).encode() == body


def test_lag_is_what_is_stored_but_not_consumed() -> None:
    table = {
        MessageQueue("T", "b", 0): QueueProgress(broker_offset=9, consumer_offset=4, pull_offset=6),
        MessageQueue("T", "b", 1): QueueProgress(broker_offset=1, consumer_offset=1, pull_offset=1),
    }

    stats = ConsumeStats(offset_table=table)

    assert (stats.lag, stats.in_flight) == (5, 2)


def test_status_of_clients_has_objects_as_keys_inside_a_table() -> None:
    table = {"c1": {MessageQueue("T", "b", 0): 5}}

    raw = ConsumerStatus(consumer_table=table).encode()

    assert b'{"c1":{{"brokerName":"b","queueId":0,"topic":"T"}:5}}' in raw
    assert ConsumerStatus.decode(raw).consumer_table == table
