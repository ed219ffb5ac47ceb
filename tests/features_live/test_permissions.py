"""Read and write permission of a topic, asked by raw requests and by the client."""

import pytest

from async_run import run_async
from live_broker import LiveClient, records_of
from orbitmq.client import Message, Producer, PullConsumer
from orbitmq.errors import NoRouteError
from orbitmq.wire.codes import ResponseCode


def ask_both(address: str, topic: str) -> tuple[int, int, list[bytes]]:
    """Send to a topic and pull its first message, as a program would that does not look at the route."""

    async def main():
        client = LiveClient(address)
        await client.heartbeat("readers", topic)
        sent = await client.send(topic, b"new")
        pulled = await client.pull("readers", topic, 0)
        bodies = [record.body for record in records_of(pulled)]
        await client.close()
        return sent.code, pulled.code, bodies

    return run_async(main)


@pytest.mark.feature("F89")
@pytest.mark.parametrize(
    ("perm", "codes"),
    [
        (6, (ResponseCode.SUCCESS, ResponseCode.SUCCESS)),
        (4, (ResponseCode.NO_PERMISSION, ResponseCode.SUCCESS)),
        (2, (ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION)),
    ],
    ids=["both", "read only", "write only"],
)
def test_permission_decides_who_is_refused(cluster, perm, codes):
    topic = cluster.create("Orders", queues=1)
    cluster.send(topic, "old")
    cluster.output("topic", "create", topic, "--queues", 1, "--perm", perm)

    sent, pulled, bodies = ask_both(cluster.broker.address, topic)

    assert (sent, pulled) == codes
    assert [one for one in bodies if one == b"old"] == [b"old"] * bool(perm & 4)
    stored = cluster.json("topic", "stats", topic)["queues"][0]["messages"]
    assert stored == (2 if perm & 2 else 1)


@pytest.mark.feature("F89")
def test_the_client_sees_what_is_allowed_in_the_route(cluster):
    for topic, perm in (("ReadOnly", 4), ("WriteOnly", 2)):
        cluster.create(topic, queues=1, perm=perm)

    with (
        Producer(cluster.namesrv, "test") as producer,
        PullConsumer(cluster.namesrv, "readers") as consumer,
    ):
        assert producer.send(Message("WriteOnly", b"x")).queue_offset == 0
        with pytest.raises(NoRouteError, match="ReadOnly"):
            producer.send(Message("ReadOnly", b"x"))
        assert len(consumer.topic_queues("ReadOnly")) == 1
        assert consumer.topic_queues("WriteOnly") == []

    unreadable = cluster.command("message", "tail", "WriteOnly")
    assert unreadable.exit_code == 1
    assert "WriteOnly has no queue that may be read" in unreadable.stderr
