"""Requests to a name server and its answers."""

import zlib

import pytest

from namesrv_world import FakeConnection, NamesrvWorld, registration, told
from orbitmq.wire.bodies.compressed_registration import encode_compressed
from orbitmq.wire.bodies.lists import KvTable, TopicList
from orbitmq.wire.bodies.route import ClusterInfo, QueueData, TopicRoute
from orbitmq.wire.bodies.topic_config import DataVersion
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, Encoding
from orbitmq.wire.headers.admin import TopicHeader
from orbitmq.wire.headers.kv import GetKv, GetKvList, PutKv
from orbitmq.wire.headers.registration import (
    BrokerHeartbeat,
    QueryDataVersion,
    UnregisterBroker,
    body_crc32,
)
from orbitmq.wire.headers.route import (
    ChangeWritePerm,
    DeleteTopicInNamesrv,
    GetRoute,
)


@pytest.fixture
def world():
    return NamesrvWorld()


def test_a_route_is_plain_json_for_every_client(world):
    world.register("broker-a", "Orders")

    for version in (121, 317, 400, 401, 479):
        answer = world.ask(105, GetRoute(topic="Orders"), version=version)
        assert answer.code == ResponseCode.SUCCESS
        assert answer.fields is None
        assert b'"brokerAddrs":{"0":"broker-a:10911"}' in answer.body
    assert TopicRoute.decode(answer.body).broker_datas[0].primary == "broker-a:10911"


def test_an_answer_is_written_as_the_request_was(world):
    answer = world.ask(106, encoding=Encoding.BINARY)

    assert answer.encoding is Encoding.BINARY
    assert answer.language == "JAVA"


def test_an_unknown_topic_has_no_route(world):
    answer = world.ask(105, GetRoute(topic="NoSuch"))

    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark.startswith(
        "No topic route info in name server for the topic: NoSuch\nSee "
    )


def test_a_route_that_was_asked_for_before_is_never_old(world):
    world.register("broker-a", "Orders")
    first = world.ask(105, GetRoute(topic="Orders"))
    assert world.ask(105, GetRoute(topic="Orders")).body == first.body

    world.register("broker-b", "Orders")
    assert b"broker-b" in world.ask(105, GetRoute(topic="Orders")).body
    world.ask(205, ChangeWritePerm(broker_name="broker-a"))
    assert b'"perm":4' in world.ask(105, GetRoute(topic="Orders")).body
    world.ask(216, DeleteTopicInNamesrv(topic="Orders"))
    assert world.ask(105, GetRoute(topic="Orders")).code == ResponseCode.TOPIC_NOT_EXIST


def test_order_topics_are_in_the_route_where_that_is_wanted():
    world = NamesrvWorld(order_message_enable=True)
    world.register("broker-a", "Orders")
    assert b"orderTopicConf" not in world.ask(105, GetRoute(topic="Orders")).body

    world.ask(100, PutKv(namespace="ORDER_TOPIC_CONFIG", key="Orders", value="broker-a:4"))
    route = TopicRoute.decode(world.ask(105, GetRoute(topic="Orders")).body)

    assert route.order_topic_conf == "broker-a:4"


def test_a_client_in_a_zone_is_told_the_brokers_of_its_zone(world):
    world.register("broker-a", "Orders", zone_name="east")
    world.register("broker-b", "Orders", zone_name="west")

    header = GetRoute(topic="Orders", zone_mode=True, zone_name="west")
    route = TopicRoute.decode(world.ask(105, header).body)
    assert [broker.broker_name for broker in route.broker_datas] == ["broker-b"]

    header = GetRoute(topic="Orders", zone_mode=False, zone_name="west")
    assert len(TopicRoute.decode(world.ask(105, header).body).broker_datas) == 2


def test_a_name_server_may_wait_before_it_tells_routes():
    world = NamesrvWorld(wait_for_service=True)
    world.register("broker-a", "Orders")
    world.clock.advance(44_999)
    answer = world.ask(105, GetRoute(topic="Orders"))
    assert (answer.code, answer.remark) == (1, "name server not ready")

    world.clock.advance(1)
    assert world.ask(105, GetRoute(topic="Orders")).code == 0


def test_a_registration_is_answered_with_the_order_topics(world):
    assert world.register().body == b""
    world.ask(100, PutKv(namespace="ORDER_TOPIC_CONFIG", key="Orders", value="broker-a:4"))
    answer = world.register()

    assert answer.fields == {}
    assert KvTable.decode(answer.body).table == {"Orders": "broker-a:4"}


def test_a_replica_is_told_its_primary(world):
    world.register("broker-a")
    answer = world.register("broker-a", broker_id=1)

    assert answer.fields == {"masterAddr": "broker-a:10911", "haServerAddr": "broker-a:20911"}


def test_a_first_registration_with_one_topic_is_refused(world):
    answer = world.register_table("broker-a", told("A"))

    assert (answer.code, answer.remark, answer.fields) == (1, "register broker failed", {})


def test_a_registration_is_checked_by_its_checksum(world):
    body = told("A", "B").encode()
    good = registration(body_crc32=body_crc32(body))
    bad = registration(body_crc32=body_crc32(body) ^ 1)

    assert world.ask(103, bad, body).remark == "crc32 not match"
    assert world.routes.brokers == {}
    assert world.ask(103, good, body).code == 0
    assert body_crc32(body) == zlib.crc32(body) & 0x7FFFFFFF


@pytest.mark.parametrize("says", [True, False])
def test_a_compressed_registration_is_known_by_its_first_byte(world, says):
    body = encode_compressed(told("A", "B"), 479)

    assert world.ask(103, registration(compressed=says), body).code == 0
    assert sorted(world.routes.topics) == ["A", "B"]


def test_an_old_broker_sends_its_table_alone(world):
    body = told("A", "B").topic_config_serialize_wrapper.encode()

    assert world.ask(103, registration(), body, version=36).code == 0
    assert sorted(world.routes.topics) == ["A", "B"]


def test_a_registration_without_a_body_has_no_topics(world):
    assert world.ask(103, registration()).code == 0
    assert world.routes.topics == {}
    assert list(world.routes.brokers) == ["broker-a"]


@pytest.mark.parametrize("body", [b"{", b"[]", b"\x78\x9c", b'{"filterServerList":5}'])
def test_a_registration_that_is_none_is_refused_with_the_reason(world, body):
    answer = world.ask(103, registration(), body)

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "body" in answer.remark
    assert world.routes.brokers == {}


def test_a_broker_unregisters(world):
    world.register("broker-a", "Orders")
    header = UnregisterBroker(
        broker_name="broker-a",
        broker_addr="broker-a:10911",
        cluster_name="DefaultCluster",
        broker_id=0,
    )

    assert world.ask(104, header).code == 0
    assert ClusterInfo.decode(world.ask(106).body) == ClusterInfo()


def test_a_closed_connection_takes_its_broker_along(world):
    connection = FakeConnection()
    world.register("broker-a", "Orders", connection=connection)
    world.handler.on_close(connection, None)

    assert world.ask(105, GetRoute(topic="Orders")).code == ResponseCode.TOPIC_NOT_EXIST


def test_a_broker_asks_whether_its_topics_are_known(world):
    header = QueryDataVersion(
        broker_name="broker-a", broker_addr="broker-a:10911", cluster_name="DefaultCluster"
    )
    version = DataVersion(counter=1, timestamp=1)
    answer = world.ask(322, header, version.encode())
    assert (answer.fields, answer.body) == ({"changed": "true"}, b"")

    world.register("broker-a")
    answer = world.ask(322, header, version.encode())
    assert answer.fields == {"changed": "false"}
    assert DataVersion.decode(answer.body) == version


@pytest.mark.parametrize("code", [322, 904])
def test_brokers_that_ask_or_beat_stay(world, code):
    world.register("broker-a")
    header = QueryDataVersion(
        broker_name="broker-a", broker_addr="broker-a:10911", cluster_name="DefaultCluster"
    )
    if code == RequestCode.BROKER_HEARTBEAT:
        header = BrokerHeartbeat(
            broker_name="broker-a", broker_addr="broker-a:10911", cluster_name="DefaultCluster"
        )
    for _ in range(3):
        world.clock.advance(100_000)
        assert world.ask(code, header, DataVersion().encode()).code == 0
        assert world.routes.expire() == []


def test_write_permission_is_wiped_and_given_back(world):
    world.register("broker-a", "Orders")

    assert world.ask(205, ChangeWritePerm(broker_name="broker-a")).fields == {"wipeTopicCount": "3"}
    assert world.ask(327, ChangeWritePerm(broker_name="broker-a")).fields == {"addTopicCount": "3"}


def test_a_topic_is_added_by_hand(world):
    world.register("broker-a")
    queue = QueueData(broker_name="broker-a", read_queue_nums=2, write_queue_nums=2, perm=6)
    body = TopicRoute(queue_datas=[queue]).encode()

    assert world.ask(217, TopicHeader(topic="New"), body).code == 0
    assert world.ask(105, GetRoute(topic="New")).code == 0
    assert world.ask(217, TopicHeader(topic="Other")).code == 0


def test_lists_can_be_switched_off():
    world = NamesrvWorld(list_all_topics=False, list_topics=False)
    world.register("broker-a")

    for code in (206, 224, 311, 312, 313):
        answer = world.ask(code, {"cluster": "DefaultCluster"})
        assert (answer.code, answer.remark) == (1, "disable")
    assert world.ask(304).code == world.ask(106).code == 0


def test_lists_of_topics(world):
    world.register("broker-a", "Orders")

    expected = ["Orders", "TBW102", "broker-a"]
    assert TopicList.decode(world.ask(206).body).topic_list == expected
    by_cluster = world.ask(224, {"cluster": "DefaultCluster"})
    assert TopicList.decode(by_cluster.body).topic_list == expected
    for code in (311, 312, 313):
        assert world.ask(code).body == b'{"topicList":[]}'


def test_the_key_value_config(world):
    assert world.ask(101, GetKv(namespace="n", key="k")).code == ResponseCode.QUERY_NOT_FOUND
    assert world.ask(219, GetKvList(namespace="n")).code == ResponseCode.QUERY_NOT_FOUND

    assert world.ask(100, PutKv(namespace="n", key="k", value="v")).code == 0
    assert world.ask(101, GetKv(namespace="n", key="k")).fields == {"value": "v"}
    assert world.ask(219, GetKvList(namespace="n")).body == b'{"table":{"k":"v"}}'

    assert world.ask(102, GetKv(namespace="n", key="k")).code == 0
    assert world.ask(102, GetKv(namespace="other", key="k")).code == 0
    assert world.ask(101, GetKv(namespace="n", key="k")).code == ResponseCode.QUERY_NOT_FOUND
    assert world.saved[0] == {"n": {"k": "v"}}
    assert world.saved[-1] == {"n": {}}


def test_a_change_that_could_not_be_saved_says_so(world):
    world.save_error = OSError("disk full")
    answer = world.ask(100, PutKv(namespace="n", key="k", value="v"))

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "could not be saved: disk full" in answer.remark


@pytest.mark.parametrize("fields", [None, {"namespace": "n"}, {"key": "k", "value": "v"}])
def test_namespace_and_key_have_to_be_there(world, fields):
    for code in (100, 102):
        answer = world.ask(code, fields)
        assert (answer.code, answer.remark) == (1, "namespace or key is null")


def test_settings_are_shown_and_changed(world):
    text = world.ask(319).body.decode()
    assert "listenPort=9876\n" in text
    assert "orderMessageEnable=false\n" in text

    answer = world.ask(318, body=b"orderMessageEnable=true\nlistenPort=9876\n")

    assert answer.code == 0
    assert "orderMessageEnable=true\n" in world.ask(319).body.decode()
    assert world.kept == {"orderMessageEnable": "true"}


def test_a_setting_without_effect_is_kept_and_said_to_have_none(world):
    answer = world.ask(318, body=b"serverWorkerThreads=4\nclusterTest=true\n")

    told = "clusterTest, serverWorkerThreads: kept, without effect here"
    assert answer.code == 0
    assert answer.remark.startswith(told)
    assert "serverWorkerThreads=4\n" in world.ask(319).body.decode()
    assert world.kept == {"serverWorkerThreads": "4", "clusterTest": "true"}


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        ("fooBar=1", ResponseCode.INVALID_PARAMETER, "fooBar: no such setting"),
        ("brokerName=1", ResponseCode.INVALID_PARAMETER, "brokerName"),
        ("orderMessageEnables=true", ResponseCode.INVALID_PARAMETER, "mean orderMessageEnable?"),
        ("scanNotActiveBrokerInterval=0", ResponseCode.INVALID_PARAMETER, "must be at least 1"),
        ("orderMessageEnable=maybe", ResponseCode.INVALID_PARAMETER, "must be true or false"),
        ("listenPort=1", ResponseCode.NO_PERMISSION, "listenPort: cannot be changed while"),
        ("bindAddress=::1", ResponseCode.NO_PERMISSION, "bindAddress: cannot be changed while"),
    ],
)
def test_a_setting_that_cannot_be_changed_changes_nothing(world, line, code, text):
    answer = world.ask(318, body=f"needWaitForService=true\n{line}\n".encode())

    assert answer.code == code
    assert text in answer.remark
    assert answer.remark.endswith("Nothing was changed.")
    assert not world.handler.config.wait_for_service
    assert world.kept == {}


def test_a_change_that_cannot_be_kept_is_not_made(world):
    world.save_error = OSError("the disk is full")

    answer = world.ask(318, body=b"orderMessageEnable=true\n")

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "cannot be kept" in answer.remark
    assert not world.handler.config.order_message_enable


@pytest.mark.parametrize(
    "key", ["kvConfigPath", "configBlackList", "rocketmqHome", "configStorePath"]
)
def test_some_settings_are_not_changed_from_outside(world, key):
    answer = world.ask(318, body=f"orderMessageEnable=true\n{key}=x\n".encode())

    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "Can not update config in black list."
    assert not world.handler.config.order_message_enable


def test_what_is_never_changed_from_outside_is_not_even_without_a_black_list():
    world = NamesrvWorld(black_list="")

    for key in ("kvConfigPath", "configBlackList", "rocketmqHome", "configStorePath"):
        answer = world.ask(318, body=f"{key}=x\n".encode())
        assert answer.code == ResponseCode.NO_PERMISSION, key
    assert world.kept == {}


def test_an_unknown_code_is_not_supported(world):
    answer = world.ask(9999)

    assert (answer.code, answer.remark) == (3, " request type 9999 not supported")


def test_a_missing_field_is_named(world):
    answer = world.ask(216)

    assert (answer.code, answer.remark) == (1, "header field topic: is missing")


def test_a_request_that_fails_does_not_harm_the_next(world, caplog):
    world.routes.delete_topic = lambda *_: 1 / 0
    answer = world.ask(216, DeleteTopicInNamesrv(topic="T"))

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "ZeroDivisionError" in answer.remark
    assert world.ask(106).code == 0


def test_nobody_waits_for_an_answer_to_a_one_way_request(world):
    put = PutKv(namespace="n", key="k", value="v").write()
    requests = [Command(106, flag=2), Command(9999, flag=2), Command(100, put, flag=2)]
    world.handler.on_commands(world.connection, requests)

    assert world.connection.sent == []
    assert world.kv.get("n", "k") == "v"
