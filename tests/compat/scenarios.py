"""What every client must be able to do on every cluster, counted exactly."""

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from compat.client_program import Client, Row, Talk
from compat.clusters import Cluster
from orbitmq.client import Admin
from orbitmq.client.trace.way import MessageWay
from orbitmq.errors import NoRouteError

COUNT: Final = 40
QUEUES: Final = 4
SHARE_SECONDS_MAX: Final = 60.0
STORED_SECONDS_MAX: Final = 15.0
ONEWAY_LOST_MAX: Final = 2
"""One-way promises nothing: of the C++ client's messages one was missing on RocketMQ's own broker."""
TIMER_LATE_MS_MAX: Final = 4_000  # a second by its rule; the machine has much to do
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
    consumer.wait("got", _stored(cluster, topic, len(wanted)))
    got = consumer.leave()
    bodies = Counter(row["body"] for row in got)
    missing = Counter(wanted) - bodies
    assert bodies + missing == Counter(wanted)
    assert len(missing) <= (ONEWAY_LOST_MAX if client.program.name == "cpp" else 0), missing
    assert all(body.startswith("oneway-") for body in missing)
    _are_where_said(sent, got)
    _are_dense(got)


def _stored(cluster: Cluster, topic: str, wanted: int) -> int:
    """Return how many messages the topic has, when it has all or has had time for that."""
    deadline = time.monotonic() + STORED_SECONDS_MAX
    with Admin(cluster.namesrv) as admin:
        while True:
            found = sum(queue.message_count for queue in admin.topic_stats(topic))
            if found >= wanted or time.monotonic() > deadline:
                return found
            time.sleep(0.2)


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


def leaves_a_trace(cluster: Cluster, client: Client) -> None:
    """The way of a message through a traced producer and consumer, a failure included, is shown."""
    topic, group, key = fresh("Traced"), fresh("traced-group"), fresh("trace-key")
    cluster.create_topic(topic, 1)
    cluster.create_topic(f"%RETRY%{group}", 1)
    consumer = client.subscribe(topic=topic, group=group, fail=1, trace="true")
    words = {"topic": topic, "body": "traced-", "tag": "T", "key": key, "group": "tracers"}
    (sent,) = client.send(**words, count=1, trace="true")
    consumer.wait("got", 2)
    with Admin(cluster.namesrv) as admin:
        way = _await_way(admin, sent["message_id"], 3)
        by_key = admin.trace(key)
    consumer.leave()  # not before: a Java consumer that ends drops what it has not traced yet
    assert [way] == by_key
    assert (way.topic, way.tag, way.keys) == (topic, "T", [key])
    assert [(step.what, step.group, step.attempt, step.result) for step in way.steps] == [
        ("sent", "tracers", None, "ok"),
        ("consumed", group, 0, "failed"),
        ("consumed", group, 1, "ok"),
    ]
    assert way.steps[0].offset_id == sent["offset_id"]
    assert way.steps[0].broker == cluster.broker.address


def _await_way(admin: Admin, message_id: str, steps: int) -> MessageWay:
    """Wait until a trace is whole: Java's clients write theirs after five seconds."""
    deadline = time.monotonic() + SHARE_SECONDS_MAX
    while True:
        try:
            found = admin.trace(message_id)
        except NoRouteError:
            found = []
        known = [step for way in found for step in way.steps if step.result != "end unknown"]
        if len(known) >= steps:
            (way,) = found
            return way
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


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


def gets_timer_messages_at_their_time(cluster: Cluster, client: Client) -> None:
    """Messages that wait for a time come soon after it; one that is recalled does not come."""
    topic = fresh("Timer")
    cluster.create_topic(topic)
    consumer = client.subscribe(topic=topic, group=fresh("timer-group"))
    now_ms = time.time_ns() // 1_000_000
    due_ms = {"ms-": now_ms + 2_300, "sec-": now_ms + 3_000, "at-": now_ms + 3_700}
    words = {"ms-": {"delayms": 2_300}, "sec-": {"delaysec": 3}, "at-": {"deliver": due_ms["at-"]}}
    sent = [client.send(topic=topic, count=3, body=kind, **given) for kind, given in words.items()]
    assert [len(rows) for rows in sent] == [3, 3, 3]
    assert all(row["handle"] for rows in sent for row in rows)
    for rows in sent:
        assert client.recall(topic, rows[1]["handle"]) == rows[1]["message_id"]
    consumer.wait("got", 6)
    time.sleep(1.5)  # sleep: what was recalled would have come by then
    got = consumer.leave()
    assert sorted(row["body"] for row in got) == sorted(
        f"{kind}{n}" for kind in words for n in (0, 2)
    )
    for row in got:
        late_ms = row["store_ms"] - due_ms[row["body"][:-1]]
        assert 0 <= late_ms < TIMER_LATE_MS_MAX, row


def asks_and_is_answered(cluster: Cluster, client: Client, replier: Client) -> None:
    """Each request gets the reply to itself, also a large one; without a replier its time is over."""
    topic, silent = fresh("Ask"), fresh("Silent")
    cluster.create_topic(topic, QUEUES)
    cluster.create_topic(silent, 1)
    consumer = replier.answer(topic=topic, group=fresh("ask-group"))
    # A client id of its own, for that is where replies go. The first requests may come while the consumer
    # has no queue yet: it gets them when it has.
    words = {"topic": topic, "group": fresh("askers"), "wait": 30_000}
    asked = client.request(**words, count=8, body="ask-")
    large = client.request(**words, count=1, body="large-", filler=FILLER)
    rows = asked.of("replied") + large.of("replied")
    assert [row["reply"] for row in rows] == [f"re:{row['body']}" for row in rows]
    assert len(rows) == 9, asked.of("failed") + large.of("failed")
    assert {row["message_type"] for row in rows} == {"reply"}
    late = client.request(**{**words, "topic": silent, "wait": 500}, count=1)
    assert [row["type"] for row in late.rows] == ["failed", "done"]
    assert Counter(row["body"] for row in consumer.leave()) == Counter(row["body"] for row in rows)


def asks_java(cluster: Cluster, client: Client, java: Client) -> None:
    """Requests of the client, replies of the Java client."""
    asks_and_is_answered(cluster, client, java)


def answers_java(cluster: Cluster, client: Client, java: Client) -> None:
    """Requests of the Java client, replies of the client."""
    asks_and_is_answered(cluster, java, client)


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
