"""Consumers: members, subscriptions, who is told of what."""

import pytest

from broker_world import FakeConnection
from orbitmq.broker.tables.clients import ClientConnection
from orbitmq.broker.tables.consumers import ConsumerTable, with_codes
from orbitmq.broker.tables.producers import ProducerTable
from orbitmq.wire.bodies.heartbeat import Subscription


def client(name: str, connection: FakeConnection, heard_ms: int = 0) -> ClientConnection:
    return ClientConnection(connection, name, "JAVA", 479, heard_ms)  # type: ignore[arg-type]


def register(
    table: ConsumerTable,
    member: ClientConnection,
    *topics: str,
    model: str = "CLUSTERING",
    version: int = 1,
    expression: str = "*",
) -> bool:
    subscriptions = [
        Subscription(topic=topic, sub_version=version, sub_string=expression) for topic in topics
    ]
    return table.register(
        "G",
        member,
        consume_type="CONSUME_PASSIVELY",
        model=model,
        from_where="CONSUME_FROM_LAST_OFFSET",
        subscriptions=subscriptions,
    )


def notices(connection: FakeConnection) -> int:
    sent = connection.take()
    assert all((one.code, one.flag, one.fields) == (40, 2, {"consumerGroup": "G"}) for one in sent)
    return len(sent)


def test_all_members_are_told_when_one_comes_or_goes() -> None:
    table, one, two = ConsumerTable(), FakeConnection(), FakeConnection()

    assert register(table, client("c1", one), "T")
    assert notices(one) == 1
    assert not register(table, client("c1", one), "T")
    assert notices(one) == 0
    assert register(table, client("c2", two), "T")
    assert (notices(one), notices(two)) == (1, 1)
    table.unregister("G", two)  # type: ignore[arg-type]
    assert (notices(one), notices(two)) == (1, 0)
    table.unregister("G", two)  # type: ignore[arg-type]
    assert notices(one) == 0


def test_a_closed_connection_leaves_all_its_groups() -> None:
    consumers, producers = ConsumerTable(), ProducerTable()
    one, two = FakeConnection(), FakeConnection()
    for connection in (one, two):
        register(consumers, client("c", connection), "T")
        producers.register("P", client("p", connection))
    one.take()

    for table in (consumers, producers):
        table.on_close(two)  # type: ignore[arg-type]

    assert notices(one) == 1
    assert len(producers.connections("P")) == 1
    for table in (consumers, producers):
        table.on_close(one)  # type: ignore[arg-type]
    assert consumers.group("G") is None
    assert producers.all() == {}


def test_broadcasting_groups_are_not_told() -> None:
    table, one, two = ConsumerTable(), FakeConnection(), FakeConnection()

    register(table, client("c1", one), "T", model="BROADCASTING")
    register(table, client("c2", two), "T", model="BROADCASTING")
    table.on_close(two)  # type: ignore[arg-type]

    assert notices(one) == 0


def test_a_group_that_does_not_want_notices_gets_none() -> None:
    table, one = ConsumerTable(), FakeConnection()
    table.notify_enabled = lambda group: group != "G"

    register(table, client("c1", one), "T")

    assert notices(one) == 0


def test_other_topics_are_told_a_newer_expression_is_not() -> None:
    table, one = ConsumerTable(), FakeConnection()
    register(table, client("c1", one), "T")
    one.take()

    register(table, client("c1", one), "T", version=2, expression="TagA")
    assert notices(one) == 0
    register(table, client("c1", one), "T", version=1, expression="TagB")
    group = table.group("G")
    assert group is not None
    assert group.subscription("T").sub_string == "TagA"  # type: ignore[union-attr]
    register(table, client("c1", one), "T", "U", version=2)
    assert notices(one) == 1
    register(table, client("c1", one), "U", version=2)
    assert notices(one) == 1
    assert list(group.subscriptions) == ["U"]


def test_without_subscriptions_those_that_are_known_hold() -> None:
    table, one = ConsumerTable(), FakeConnection()
    register(table, client("c1", one), "T")

    table.register(
        "G",
        client("c1", one),
        consume_type="CONSUME_PASSIVELY",
        model="CLUSTERING",
        from_where="CONSUME_FROM_LAST_OFFSET",
        subscriptions=None,
    )

    assert table.groups_subscribing("T") == {"G"}
    assert table.groups_subscribing("U") == set()


def test_members_are_found_by_their_client_id() -> None:
    table, one = ConsumerTable(), FakeConnection()
    register(table, client("c1", one), "T")

    found = table.find("G", "c1")

    assert found is not None
    assert found.connection is one
    assert table.find("G", "c2") is None
    assert table.find("H", "c1") is None


def test_members_that_were_not_heard_are_closed_and_the_rest_told() -> None:
    consumers, producers = ConsumerTable(), ProducerTable()
    one, two = FakeConnection(), FakeConnection()
    register(consumers, client("c1", one, heard_ms=100), "T")
    register(consumers, client("c2", two, heard_ms=200), "T")
    producers.register("P", client("c1", one, heard_ms=100))
    two.take()

    consumers.expire(150)
    producers.expire(150)

    assert one.closed
    assert not two.closed
    assert notices(two) == 1
    assert consumers.group("G").client_ids == ["c2"]  # type: ignore[union-attr]
    assert producers.connections("P") == []


def test_fingerprints_differ_only_from_one_that_was_there() -> None:
    table = ConsumerTable()

    assert [table.swap_fingerprint("G", mark) for mark in (77, 77, 78, 0)] == [
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("expression", "codes"),
    [
        ("TagA || TagB", [2598919, 2598920]),
        ("TagA||TagA", [2598919]),
        ("测试", [903146]),
        ("*", []),
        ("", []),
        (" || ", []),
    ],
)
def test_hashes_are_made_of_the_expression_whatever_the_client_says(
    expression: str, codes: list[int]
) -> None:
    said = Subscription(topic="T", sub_string=expression, code_set=[0, 0])

    assert with_codes(said).code_set == codes


def test_an_sql_expression_has_no_hashes_to_make() -> None:
    said = Subscription(topic="T", sub_string="a || b", expression_type="SQL92")

    assert with_codes(said) is said
