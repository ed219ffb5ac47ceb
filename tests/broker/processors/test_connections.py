"""Who is online, for tools."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from admin_world import AdminWorld
from orbitmq.broker.tables.clients import ClientConnection
from orbitmq.wire.codes import RequestCode, ResponseCode


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AdminWorld]:
    with AdminWorld(tmp_path) as world:
        yield world


def produce(world: AdminWorld, group: str, client_id: str) -> str:
    connection = world.connect()
    client = ClientConnection(connection, client_id, "JAVA", 479, 123)  # type: ignore[arg-type]
    world.context.producers.register(group, client)
    return connection.peer


def test_members_and_subscriptions_of_a_group_are_told_as_rocketmq_does(world: AdminWorld) -> None:
    peers = [world.consumer("G", "T", client_id=name).peer for name in ("c1", "c2")]

    answer = world.request(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="G")

    first, second = (
        b'{"clientAddr":"%s","clientId":"%s","language":"JAVA","version":479}'
        % (peer.encode(), name)
        for peer, name in zip(peers, (b"c1", b"c2"), strict=True)
    )
    assert answer.body == (
        b'{"connectionSet":[' + first + b"," + second + b"],"
        b'"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY",'
        b'"messageModel":"CLUSTERING","subscriptionTable":{"T":{"classFilterMode":false,'
        b'"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":0,"tagsSet":[],'
        b'"topic":"T"}}}'
    )


def test_group_whose_last_member_left_is_not_online(world: AdminWorld) -> None:
    connection = world.consumer("G", "T")
    world.disconnect(connection)

    answer = world.request(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="G")

    assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE


def test_producers_of_a_group_are_told(world: AdminWorld) -> None:
    peer = produce(world, "P", "p1")

    answer = world.request(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="P")

    assert json.loads(answer.body)["connectionSet"] == [
        {"clientAddr": peer, "clientId": "p1", "language": "JAVA", "version": 479}
    ]


def test_all_producers_are_told_by_group(world: AdminWorld) -> None:
    peer = produce(world, "P", "p1")
    produce(world, "Q", "p2")

    told = json.loads(world.request(RequestCode.GET_ALL_PRODUCER_INFO).body)

    assert told["data"].keys() == {"P", "Q"}
    assert told["data"]["P"] == [
        {
            "clientId": "p1",
            "language": "JAVA",
            "lastUpdateTimestamp": 123,
            "remoteIP": "/" + peer,
            "version": 479,
        }
    ]
