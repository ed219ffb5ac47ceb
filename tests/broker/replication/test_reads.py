"""What a replica answers to consumers, over real sockets."""

import os
from pathlib import Path

import pytest

from async_run import until
from ha_world import equal, primary, replica, send_many
from live_broker import LiveClient, records_of, run_live
from orbitmq.units import HOUR_MS
from orbitmq.wire.bodies.topic_config import TopicConfig
from orbitmq.wire.codes import ResponseCode

pytestmark = pytest.mark.feature("F85")


def test_a_replica_sends_nobody_to_another_offset(tmp_path: Path) -> None:
    async def main() -> None:
        clean = {"retention_ms": HOUR_MS, "delete_pause_ms": 0}
        async with primary(tmp_path) as one, replica(tmp_path, one.ha_address, clean) as other:
            await send_many(one, 1200)
            await equal(one, other)
            topic = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4)
            other.context.topics.put(topic)
            client = LiveClient(other.address)
            found = await client.pull("G", "T", 10, expression="*")
            assert (found.code, len(records_of(found))) == (ResponseCode.SUCCESS, 32)
            # Its primary may have more: who was there waits, and is not sent back.
            ahead = await client.pull("G", "T", 5_000, expression="*")
            assert ahead.code == ResponseCode.PULL_NOT_FOUND
            assert ahead.fields["nextBeginOffset"] == "5000"
            # And what it does not have any more, its primary may.
            first = sorted((tmp_path / "replica" / "commitlog").iterdir())[0]
            store = other.context.store
            old = 1_000_000
            os.utime(first, (old, old))
            store.delete_expired_now()
            await until(lambda: store.min_offset("T", 0) > 1)
            behind = await client.pull("G", "T", 1, expression="*")
            assert behind.code == ResponseCode.PULL_OFFSET_MOVED
            assert behind.fields["nextBeginOffset"] == "1"

    run_live(main)
