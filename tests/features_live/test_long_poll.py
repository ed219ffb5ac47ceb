"""A pull that waits is answered by the message itself, not by a timer."""

import asyncio

import pytest

from async_run import until
from live_broker import LiveClient, live_config, records_of, run_live
from orbitmq.broker.broker import Broker
from orbitmq.testing.fake_clock import FakeClock

MINUTES_MS = 10 * 60_000


@pytest.mark.feature("F20")
def test_a_waiting_pull_is_answered_within_milliseconds_of_a_message(tmp_path):
    """By a clock that stands still: whatever waits on the way may take these milliseconds together."""
    clock = FakeClock(patience_s=600)

    async def main() -> list[bytes]:
        async with Broker(live_config(tmp_path), clock=clock) as broker:
            client = LiveClient(broker.address)
            await client.heartbeat("G", "Orders")
            await client.send("Orders", b"first")
            assert (await client.pull("G", "Orders", 0)).code == 0
            parked = [
                asyncio.ensure_future(
                    client.pull(
                        "G", "Orders", 1 - queue_id, queue_id=queue_id, suspend_ms=MINUTES_MS
                    )
                )
                for queue_id in (0, 1)
            ]
            await until(lambda: broker.context.long_poll.count == 2)

            began_ms = clock.monotonic_ms()
            await client.send("Orders", b"second")
            clock.advance(3)
            answer = await parked[0]

            assert clock.monotonic_ms() - began_ms == 3
            assert not parked[1].done()  # its queue got nothing
            await client.close()
            await asyncio.gather(*parked, return_exceptions=True)
        return [record.body for record in records_of(answer)]

    assert run_live(main) == [b"second"]
