"""Shares of queues: the rules of RocketMQ, and what every strategy must keep."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.consumer.rebalance import (
    Average,
    AverageByCircle,
    ConsistentHash,
    Fixed,
    MachineRoom,
    MachineRoomNearby,
    Strategy,
    ring_position,
    share_of,
    sorted_ids,
    sorted_queues,
    strategy_named,
)
from orbitmq.errors import ConfigError
from orbitmq.wire.bodies.message_queue import MessageQueue


def queues_of(count: int, broker: str = "broker-a", topic: str = "Orders") -> list[MessageQueue]:
    return [MessageQueue(topic, broker, queue_id) for queue_id in range(count)]


def ids_of(count: int) -> list[str]:
    return [f"10.0.0.{index}@{4711 + index}" for index in range(count)]


def shares(strategy: Strategy, queue_count: int, member_count: int) -> list[list[int]]:
    members = ids_of(member_count)
    return [
        [queue.queue_id for queue in share_of(strategy, member, queues_of(queue_count), members)]
        for member in members
    ]


@pytest.mark.feature("F98")
@pytest.mark.parametrize(
    ("queue_count", "member_count", "expected"),
    [
        pytest.param(6, 3, [[0, 1], [2, 3], [4, 5]], id="6 queues, 3 members"),
        pytest.param(4, 2, [[0, 1], [2, 3]], id="4 queues, 2 members"),
        pytest.param(8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]], id="the first two have one more"),
        pytest.param(5, 3, [[0, 1], [2, 3], [4]], id="remainder 2"),
        pytest.param(2, 3, [[0], [1], []], id="fewer queues than members"),
        pytest.param(1, 1, [[0]], id="alone"),
    ],
)
def test_average_gives_contiguous_runs(queue_count, member_count, expected):
    assert shares(Average(), queue_count, member_count) == expected


@pytest.mark.feature("F99")
def test_circle_deals_queues_like_cards():
    assert shares(AverageByCircle(), 8, 3) == [[0, 3, 6], [1, 4, 7], [2, 5]]


@pytest.mark.feature("F99")
def test_consistent_hash_moves_fewer_queues_than_average_when_a_member_joins():
    queues, before, after = queues_of(64), ids_of(7), ids_of(8)

    moved = {
        type(one).__name__: moved_queues(one, queues, before, after)
        for one in (Average(), AverageByCircle(), ConsistentHash())
    }

    assert {name: len(queues) for name, queues in moved.items()} == {
        "Average": 35,
        "AverageByCircle": 50,
        "ConsistentHash": 13,
    }


@pytest.mark.feature("F99")
@pytest.mark.parametrize("member_count", range(1, 13))
def test_consistent_hash_moves_queues_only_to_the_member_that_joined(member_count):
    queues, after = queues_of(64), ids_of(member_count + 1)

    moved = moved_queues(ConsistentHash(), queues, after[:-1], after)

    assert set(moved.values()) <= {after[-1]}
    assert len(moved) == len(share_of(ConsistentHash(), after[-1], queues, after))


def moved_queues(
    strategy: Strategy, queues: list[MessageQueue], before: list[str], after: list[str]
) -> dict[MessageQueue, str]:
    """Return the queues that change hands, with their new owners."""

    def owners(members: list[str]) -> dict[MessageQueue, str]:
        return {q: m for m in members for q in share_of(strategy, m, queues, members)}

    old = owners(before)
    return {queue: owner for queue, owner in owners(after).items() if old[queue] != owner}


def test_ring_position_is_that_of_java():
    assert ring_position("127.0.0.1@1-0") == 2658317339


@pytest.mark.feature("F97")
@pytest.mark.parametrize(
    "strategy", [Average(), AverageByCircle(), ConsistentHash()], ids=lambda s: s.name
)
@given(queue_count=st.integers(1, 40), member_count=st.integers(1, 12), seed=st.randoms())
def test_members_compute_disjoint_and_complete_shares_from_any_order(
    strategy, queue_count, member_count, seed
):
    queues, members = queues_of(queue_count), ids_of(member_count)
    taken: list[MessageQueue] = []

    for member in members:
        seed.shuffle(queues)
        heard = seed.sample(members, len(members))
        taken += share_of(strategy, member, queues, heard)

    assert sorted(taken) == sorted(queues)


def test_a_member_that_the_broker_does_not_list_gets_nothing():
    assert share_of(Average(), "10.9.9.9@1", queues_of(4), ids_of(2)) == []


def test_no_queues_give_empty_shares():
    assert share_of(ConsistentHash(), ids_of(1)[0], [], ids_of(1)) == []


def test_machine_room_takes_only_the_rooms_named():
    near = queues_of(5, "east@broker-a") + queues_of(2, "west@broker-b")
    far = queues_of(4, "north@broker-c") + queues_of(4, "plain")
    members, strategy = ids_of(3), MachineRoom(frozenset({"east", "west"}))

    found = [share_of(strategy, member, near + far, members) for member in members]

    assert [len(share) for share in found] == [3, 2, 2]
    assert found[0] == [near[0], near[1], near[6]]
    assert sorted(queue for share in found for queue in share) == sorted(near)


def test_nearby_members_share_their_room_and_all_share_an_orphaned_one():
    queues = queues_of(2, "east@a") + queues_of(4, "west@b") + queues_of(2, "north@c")
    members = ["east@1", "east@2", "west@3"]
    strategy = MachineRoomNearby(
        room_of_broker=lambda queue: queue.broker_name.partition("@")[0],
        room_of_client=lambda client_id: client_id.partition("@")[0],
    )

    found = {member: share_of(strategy, member, queues, members) for member in members}

    assert found["east@1"] == [queues[0], queues[6]]
    assert found["east@2"] == [queues[1], queues[7]]
    assert found["west@3"] == queues[2:6]
    assert strategy.name == "MACHINE_ROOM_NEARBY-AVG"


def test_nearby_refuses_a_member_without_a_room():
    strategy = MachineRoomNearby(lambda queue: "east", lambda client_id: "")

    with pytest.raises(ConfigError, match="room"):
        share_of(strategy, "a", queues_of(1), ["a"])


def test_fixed_list_does_not_depend_on_the_members():
    mine = tuple(queues_of(2))

    assert share_of(Fixed(mine), "a", queues_of(8), ["a", "b", "c"]) == list(mine)


@pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"])
def test_strategies_are_found_by_their_name(name):
    assert strategy_named(name).name == name


def test_an_unknown_strategy_is_refused_with_the_known_names():
    with pytest.raises(ConfigError, match="AVG_BY_CIRCLE"):
        strategy_named("RANDOM")


def test_order_is_by_topic_then_broker_then_number():
    one, two, ten = (MessageQueue("T", "b", number) for number in (1, 2, 10))
    other = MessageQueue("T", "a", 11)

    assert sorted_queues([ten, two, one, other]) == [other, one, two, ten]


def test_ids_are_sorted_as_java_sorts_strings():
    # U+1F600 is two units from D83D on, below U+FF5E in Java, above it in Python.
    assert sorted_ids(["\uff5e", "\U0001f600", "a"]) == ["a", "\U0001f600", "\uff5e"]
