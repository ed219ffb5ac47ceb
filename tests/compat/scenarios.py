"""What every client must be able to do on every cluster, counted exactly."""

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from compat.client_program import ClientProgram, Row, Talk
from compat.clusters import Cluster

COUNT: Final = 40
QUEUES: Final = 4
SHARE_SECONDS_MAX: Final = 60.0
FILLER: Final = 10_000  # enough that every client compresses

_numbers = itertools.count(1)


def fresh(name: str) -> str:
    """Return a name that no other test has."""
    return f"{name}{next(_numbers)}"


def sends_every_way(
    cluster: Cluster,
    program: ClientProgram,
    modes: Sequence[str],
    reader: ClientProgram | None = None,
) -> None:
    """Send in each mode; each message arrives once, where its acknowledgement said."""
    topic = fresh("Ways")
    cluster.create_topic(topic, QUEUES)
    sent: list[Row] = []
    for mode in modes:
        rows = program.send(topic=topic, count=COUNT, mode=mode, tag="A", body=f"{mode}-", key="k")
        assert len(rows) == (0 if mode == "oneway" else COUNT), rows[:2]
        sent += rows
    sent += program.send(topic=topic, count=2, tag="A", body="large-", filler=FILLER)
    wanted = {f"{mode}-{number}" for mode in modes for number in range(COUNT)}
    wanted |= {f"large-{number}" + "x" * FILLER for number in range(2)}
    consumer = (reader or program).subscribe(topic=topic, group=fresh("ways-group"), tags="A")
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


def gets_only_its_tags(cluster: Cluster, program: ClientProgram) -> None:
    """Of three tags, a consumer of two gets two, before and while it waits for messages."""
    topic, group = fresh("Tags"), fresh("tags-group")
    cluster.create_topic(topic, QUEUES)
    for tag in "ABC":
        program.send(topic=topic, count=COUNT, tag=tag, body=f"old-{tag}-")
    consumer = program.subscribe(topic=topic, group=group, tags="A||B")
    consumer.wait("got", 2 * COUNT)
    for tag in "CAB":
        program.send(topic=topic, count=COUNT, tag=tag, body=f"new-{tag}-")
    consumer.wait("got", 4 * COUNT)
    wanted = [f"{age}-{tag}-{n}" for age in ("old", "new") for tag in "AB" for n in range(COUNT)]
    got = consumer.leave()
    assert Counter(row["body"] for row in got) == Counter(wanted)
    assert all(row["tag"] == row["body"].split("-")[1] for row in got)


def two_share_and_one_leaves(
    cluster: Cluster, program: ClientProgram, second: ClientProgram | None = None
) -> None:
    """Two members of a group get disjoint halves; when one leaves, the other gets everything."""
    topic, group = fresh("Share"), fresh("share-group")
    cluster.create_topic(topic, QUEUES)
    stays = program.subscribe(topic=topic, group=group, instance="stays")
    goes = (second or program).subscribe(topic=topic, group=group, instance="goes")
    wanted = _until_clean(program, topic, [stays, goes], "both-")
    goes.leave()
    wanted |= _until_clean(program, topic, [stays], "one-")
    stays.leave()
    bodies = stays.bodies("got") + goes.bodies("got")
    assert set(bodies) == wanted, "a message got lost or came from nowhere"


def _until_clean(
    program: ClientProgram, topic: str, consumers: Sequence[Talk], prefix: str
) -> set[str]:
    """Send rounds until every message of one arrives once and each consumer gets some of it.

    While queues change hands a message may come twice: at least once is the promise. Never is none.
    """
    wanted: set[str] = set()
    deadline = time.monotonic() + SHARE_SECONDS_MAX
    while True:
        round_ = f"{prefix}{len(wanted)}-"
        rows = program.send(topic=topic, count=COUNT, body=round_)
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


def comes_again_after_a_failure(cluster: Cluster, program: ClientProgram, count: int = 3) -> None:
    """A message whose handler fails is delivered again, marked as such."""
    topic, group = fresh("Again"), fresh("again-group")
    cluster.create_topic(topic, 1)
    # As after the group's first time: without a route to it, clients look for it 20 seconds later.
    cluster.create_topic(f"%RETRY%{group}", 1)
    consumer = program.subscribe(topic=topic, group=group, fail=1)
    program.send(topic=topic, count=count, body="again-", tag="T", key="k")
    consumer.wait("got", 2 * count)
    got = consumer.leave()
    first = [row["body"] for row in got if row["times"] == 0]
    second = [row["body"] for row in got if row["times"] == 1]
    assert sorted(first) == sorted(second) == [f"again-{number}" for number in range(count)]
    assert {row["tag"] for row in got} == {"T"}


def keeps_the_order_of_each_queue(cluster: Cluster, program: ClientProgram) -> None:
    """An orderly consumer gets each queue's messages in the order of their offsets."""
    topic = fresh("Order")
    cluster.create_topic(topic, QUEUES)
    program.send(topic=topic, count=COUNT, body="before-")
    consumer = program.subscribe(topic=topic, group=fresh("order-group"), orderly="true")
    program.send(topic=topic, count=COUNT, body="after-")
    consumer.wait("got", 2 * COUNT)
    got = consumer.leave()
    assert len({row["body"] for row in got}) == len(got) == 2 * COUNT
    for queue in range(QUEUES):
        offsets = [row["offset"] for row in got if row["queue"] == queue]
        assert offsets == list(range(len(offsets))), f"queue {queue}"


def makes_its_own_topic(cluster: Cluster, program: ClientProgram) -> None:
    """A topic that nobody created comes into being with the first send."""
    topic = fresh("Itself")
    sent = program.send(topic=topic, count=8, body="itself-")
    assert len(sent) == 8
    consumer = program.subscribe(topic=topic, group=fresh("itself-group"))
    consumer.wait("got", 8)
    assert sorted(row["body"] for row in consumer.leave()) == [f"itself-{n}" for n in range(8)]
