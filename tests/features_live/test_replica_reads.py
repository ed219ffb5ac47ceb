"""Those who are far behind are sent to a replica, if broker.conf says so."""

import pytest

from live_broker import LiveClient, run_live
from orbitmq.format.message_id import decode_offset_id
from orbitmq.testing import Broker

COUNT = 45
BORDER = 40
"""So many records fit into 40 % of the memory that the test gives the machine."""


@pytest.mark.feature("F85")
@pytest.mark.parametrize(
    ("settings", "far", "near"),
    [
        pytest.param({"slaveReadEnable": "true"}, 1, 0, id="40 % is the default"),
        pytest.param(
            {"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "41"},
            0,
            0,
            id="with 41 % both are near",
        ),
        pytest.param(
            {"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "39"},
            1,
            1,
            id="with 39 % both are far",
        ),
        pytest.param({}, 0, 0, id="not without slaveReadEnable"),
    ],
)
@pytest.mark.parametrize("expression", [None, "A"], ids=["all", "by tag"])
def test_a_replica_is_suggested_to_those_further_behind_than_the_share_of_memory(
    monkeypatch, settings, far, near, expression
):
    async def fill(client: LiveClient) -> int:
        """Send messages of one size; return how many bytes a record has."""
        await client.heartbeat("G", "Orders")
        tagged = {"properties": "TAGS\x01A\x02"}
        sent = [await client.send("Orders", b"%08d" % n, **tagged) for n in range(COUNT)]
        first, second = (decode_offset_id(answer.fields["msgId"])[1] for answer in sent[:2])
        return second - first

    async def suggested(client: LiveClient, offset: int) -> int:
        answer = await client.pull("G", "Orders", offset, count=1, expression=expression)
        assert answer.code == 0
        return int(answer.fields["suggestWhichBrokerId"])

    async def main() -> list[int]:
        client = LiveClient(broker.address)
        await client.heartbeat("G", "Orders")
        found = [
            await suggested(client, COUNT - BORDER - 1),
            await suggested(client, COUNT - BORDER),
        ]
        await client.close()
        return found

    with Broker() as broker:
        size = run_live(lambda: fill(LiveClient(broker.address)))
    memory = BORDER * size * 100 // 40
    monkeypatch.setattr("orbitmq.store.reads.limits.physical_memory", lambda: memory)
    with Broker(settings=settings) as broker:
        assert run_live(lambda: fill(LiveClient(broker.address))) == size
        broker.wait_dispatched()

        assert run_live(main) == [far, near]
