"""A peer names log offsets: no request with one leads to a record that only lies in somebody's body."""

from pathlib import Path

import pytest

from message_replay import MessageWorld, replay, send_command
from orbitmq.format.record import BODY_AT, encode_record
from orbitmq.message import LOOPBACK
from orbitmq.testing.builders import make_request
from orbitmq.wire.command import Command


@pytest.mark.feature("F8")
@pytest.mark.parametrize("code", [33, 36], ids=["view by id", "send back"])
def test_a_record_that_a_producer_made_up_is_not_found(code: int, tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        replay(world, client, send_command())
        (first,) = world.records("Orders")
        place = world.store.max_log_offset + BODY_AT
        stored = {"log_offset": place, "queue_offset": 0, "store_ms": 1, "store_host": LOOPBACK}
        body = encode_record(make_request(1, "Orders", 0), **stored)
        replay(world, client, send_command(body=body))
        world.settle()
        end = world.store.max_log_offset

        fields = {"group": "Cid", "delayLevel": "0"}
        refused, answered = (
            replay(world, client, Command(code, {**fields, "offset": str(offset)}))
            for offset in (place, first.log_offset)
        )

        assert (refused.code, refused.body) == (1, b"")
        assert f"by the offset, {place}" in refused.remark or f"failed, {place}" in refused.remark
        assert answered.code == 0
        assert bool(answered.body) == (code == 33)
        assert (world.store.max_log_offset > end) == (code == 36)
