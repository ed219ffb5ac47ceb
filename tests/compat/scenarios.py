"""What every client must be able to do on every cluster, counted exactly."""

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from compat.client_program import Client, Row, Talk
from compat.clusters import Cluster

COUNT: Final = 40
QUEUES: Final = 4
SHARE_SECONDS_MAX: Final = 60.0
FILLER: Final = 10_000  # enough that every client compresses

_numbers = itertools.count(1)


def fresh(name: str) -> str:
    """Return a name that no other test has."""
    return f"{name}{next(_numbers)}"


def sends_every_way(cluster: Cluster, client: Client, reader: Client | None = None) -> None:
    """Send in each way that the client has; each message arrives once, where its acknowledgement said."""
    topic = fresh("Ways")
    cluster.create_topic(topic, QUEUES)
    sent: list[Row] = []
    for mode in client.modes:
        rows = client.send(topic=topic, count=COUNT, mode=mode, tag="A", body=f"{mode}-", key="k")
        assert len(rows) == (0 if mode == "oneway" else COUNT), rows[:2]
        sent += rows
    sent += client.send(topic=topic, count=2, tag="A", body="large-", filler=FILLER)
    wanted = {f"{mode}-{number}" for mode in client.modes for number in range(COUNT)}
    wanted |= {f"large-{number}" + "x" * FILLER for number in range(2)}
    consumer = (reader or client).subscribe(topic=topic, group=fresh("ways-group"), tags="A")
    consumer.wait("got", len(wanted))
    got = consumer.leave()
    assert Counter(row["body"] for row in got) == Counter(wanted)
    _are_where_said(sent, got)
    _are_dense(got)


def _are_where_said(sent: Sequence[Row], got: Sequence[Row]) -> None:
    places = {row["body"]: row for row in got}
    for row in sent:
        there = places[row["body"]]
        assert row["offset"] == there["offset"], (row, there)
        if row.get("queue") is not None:  # the C++ client does not tell
            assert int(row["queue"]) == there["queue"], (row, there)


def _are_dense(got: Sequence[Row]) -> None:
    """Each queue has the offsets from 0 on, none twice and none missing."""
    offsets = defaultdict(list)
    for row in got:
        offsets[row["broker"], row["queue"]].append(row["offset"])
    for queue, numbers in offsets.items():
        assert sorted(numbers) == list(range(len(numbers))), queue


def gets_only_its_tags(cluster: Cluster, client: Client) -> None:
    """Of three tags, a consumer of two gets two, before and while it waits for messages."""
    topic, group = fresh("Tags"), fresh("tags-group")
    cluster.create_topic(topic, QUEUES)
    for tag in "ABC":
        assert len(client.send(topic=topic, count=COUNT, tag=tag, body=f"old-{tag}-")) == COUNT
    consumer = client.subscribe(topic=topic, group=group, tags="A||B")
    consumer.wait("got", 2 * COUNT)
    for tag in "CAB":
        assert len(client.send(topic=topic, count=COUNT, tag=tag, body=f"new-{tag}-")) == COUNT
    consumer.wait("got", 4 * COUNT)
    wanted = [f"{age}-{tag}-{n}" for age in ("old", "new") for tag in "AB" for n in range(COUNT)]
    got = consumer.leave()
    assert Counter(row["body"] for row in got) == Counter(wanted)
    assert all(row["tag"] == row["body"].split("-")[1] for row in got)


def gets_only_what_its_sql_selects(cluster: Cluster, client: Client) -> None:
    """Of messages with and without a key, a consumer by SQL92 gets what its expression says."""
    topic, group = fresh("Sql"), fresh("sql-group")
    cluster.create_topic(topic, QUEUES)
    expression = "TAGS IN ('A', 'B') AND NOT (KEYS IS NULL) OR TAGS = 'C'".replace(" ", "/**/")
    for age in ("old", "new"):
        for tag in "ABCD":
            assert client.send(topic=topic, count=COUNT, tag=tag, key="k", body=f"{age}-{tag}-")
        assert client.send(topic=topic, count=COUNT, tag="A", body=f"{age}-none-")
        if age == "old":
            consumer = client.subscribe(topic=topic, group=group, sql=expression)
            consumer.wait("got", 3 * COUNT)
    consumer.wait("got", 6 * COUNT)
    wanted = [f"{age}-{tag}-{n}" for age in ("old", "new") for tag in "ABC" for n in range(COUNT)]
    assert Counter(row["body"] for row in consumer.leave()) == Counter(wanted)


def two_share_and_one_leaves(
    cluster: Cluster, client: Client, second: Client | None = None
) -> None:
    """Two members of a group get disjoint halves; when one leaves, the other gets everything."""
    topic, group = fresh("Share"), fresh("share-group")
    cluster.create_topic(topic, QUEUES)
    stays = client.subscribe(topic=topic, group=group)
    goes = (second or client).subscribe(topic=topic, group=group)
    wanted = _until_clean(client, topic, [stays, goes], "both-")
    goes.leave()
    wanted |= _until_clean(client, topic, [stays], "one-")
    stays.leave()
    bodies = stays.bodies("got") + goes.bodies("got")
    assert set(bodies) == wanted, "a message got lost or came from nowhere"


def _until_clean(client: Client, topic: str, consumers: Sequence[Talk], prefix: str) -> set[str]:
    """Send rounds until every message of one arrives once and each consumer gets some of it.

    While queues change hands a message may come twice: at least once is the promise. Never is none.
    """
    wanted: set[str] = set()
    deadline = time.monotonic() + SHARE_SECONDS_MAX
    while True:
        round_ = f"{prefix}{len(wanted)}-"
        rows = client.send(topic=topic, count=COUNT, body=round_)
        bodies = {row["body"] for row in rows}
        assert len(bodies) == COUNT
        wanted |= bodies
        shares = _await_all(consumers, bodies, deadline)
        if all(shares) and sum(map(len, shares)) == COUNT:
            return wanted
        assert time.monotonic() < deadline, f"no clean round: {[len(each) for each in shares]}"
        time.sleep(1)  # the next rebalance


def _await_all(consumers: Sequence[Talk], bodies: set[str], deadline: float) -> list[list[str]]:
    while True:
        shares = [[body for body in each.bodies("got") if body in bodies] for each in consumers]
        if set().union(*shares) == bodies:
            return shares
        missing = sorted(bodies.difference(*shares))
        assert time.monotonic() < deadline, f"missing: {missing}\n{consumers[0].program.tail()}"
        time.sleep(0.1)


def comes_again_after_a_failure(cluster: Cluster, client: Client, count: int = 3) -> None:
    """A message whose handler fails is delivered again, marked as such."""
    topic, group = fresh("Again"), fresh("again-group")
    cluster.create_topic(topic, 1)
    # As after the group's first time: without a route to it, clients look for it 20 seconds later.
    cluster.create_topic(f"%RETRY%{group}", 1)
    consumer = client.subscribe(topic=topic, group=group, fail=1)
    client.send(topic=topic, count=count, body="again-", tag="T", key="k")
    consumer.wait("got", 2 * count)
    got = consumer.leave()
    first = [row["body"] for row in got if row["times"] == 0]
    second = [row["body"] for row in got if row["times"] == 1]
    assert sorted(first) == sorted(second) == [f"again-{number}" for number in range(count)]
    assert {row["tag"] for row in got} == {"T"}


def keeps_the_order_of_each_queue(cluster: Cluster, client: Client) -> None:
    """An orderly consumer gets each queue's messages in the order of their offsets."""
    topic = fresh("Order")
    cluster.create_topic(topic, QUEUES)
    client.send(topic=topic, count=COUNT, body="before-")
    consumer = client.subscribe(topic=topic, group=fresh("order-group"), orderly="true")
    client.send(topic=topic, count=COUNT, body="after-")
    consumer.wait("got", 2 * COUNT)
    got = consumer.leave()
    assert len({row["body"] for row in got}) == len(got) == 2 * COUNT
    for queue in range(QUEUES):
        offsets = [row["offset"] for row in got if row["queue"] == queue]
        assert offsets == list(range(len(offsets))), f"queue {queue}"


def makes_its_own_topic(cluster: Cluster, client: Client) -> None:
    """A topic that nobody created comes into being with the first send."""
    topic = fresh("Itself")
    sent = client.send(topic=topic, count=8, body="itself-")
    assert len(sent) == 8
    consumer = client.subscribe(topic=topic, group=fresh("itself-group"))
    consumer.wait("got", 8)
    assert sorted(row["body"] for row in consumer.leave()) == [f"itself-{n}" for n in range(8)]


def uses_the_port_two_below(cluster: Cluster, client: Client) -> None:
    """The broker's second port, which Java clients use for sends unless they are told not to."""
    topic = fresh("Vip")
    cluster.create_topic(topic)
    sent = client.send(topic=topic, count=8, body="vip-", vip="true")
    assert len(sent) == 8
    consumer = client.subscribe(topic=topic, group=fresh("vip-group"), vip="true")
    consumer.wait("got", 8)
    assert sorted(row["body"] for row in consumer.leave()) == [f"vip-{n}" for n in range(8)]


def gets_a_delayed_message_later(cluster: Cluster, client: Client) -> None:
    """Messages of the first delay level (a second) come, and not before their time."""
    topic = fresh("Delay")
    cluster.create_topic(topic)
    consumer = client.subscribe(topic=topic, group=fresh("delay-group"))
    start = time.monotonic()
    sent = client.send(topic=topic, count=4, body="delayed-", delay=1)
    assert len(sent) == 4
    consumer.wait("got", 4)
    assert time.monotonic() - start > 0.9
    assert sorted(row["body"] for row in consumer.leave()) == [f"delayed-{n}" for n in range(4)]


def takes_over_from_java(cluster: Cluster, client: Client, java: Client) -> None:
    """A group of two kinds of clients: the Java client leaves."""
    two_share_and_one_leaves(cluster, client, java)


def hands_over_to_java(cluster: Cluster, client: Client, java: Client) -> None:
    """A group of two kinds of clients: the Java client stays."""
    two_share_and_one_leaves(cluster, java, client)


def is_read_by_java(cluster: Cluster, client: Client, java: Client) -> None:
    """The Java client reads what the client wrote, in every way that it has."""
    sends_every_way(cluster, client, reader=java)


def reads_what_java_wrote(cluster: Cluster, client: Client, java: Client) -> None:
    """The client reads what the Java client wrote, in every way that it has."""
    sends_every_way(cluster, java, reader=client)
