"""Who is online: every recorded body can be read, and says the same when written again."""

import json

import pytest

from golden_frames import good_frames
from orbitmq.wire.bodies.body import Body
from orbitmq.wire.bodies.connections import (
    ConsumerConnections,
    GroupSubscription,
    ProducerConnections,
    ProducerTable,
)

KINDS: dict[int, type[Body]] = {
    203: ConsumerConnections,
    204: ProducerConnections,
    328: ProducerTable,
    345: GroupSubscription,
}


@pytest.mark.parametrize("code", KINDS, ids=lambda code: KINDS[code].__name__)
def test_recorded_bodies_come_back_with_the_same_members(code: int) -> None:
    bodies = [
        frame.command.body
        for frame in good_frames()
        if frame.request_code == code and frame.command.is_response and frame.command.body
    ]

    assert bodies
    for body in bodies:
        again = KINDS[code].decode(body).encode()
        assert json.loads(again) == json.loads(body)
        assert len(again) == len(body)
