"""Questions about the table."""

import pytest

from namesrv_world import registration, told
from orbitmq.namesrv import _lookups as lookups
from orbitmq.namesrv.routes import RouteTable
from orbitmq.testing.fake_clock import FakeClock


@pytest.fixture
def table():
    table = RouteTable(FakeClock())
    table.register(registration("broker-b", zone_name="west"), told("A", "B"), None)
    table.register(registration("broker-a", zone_name="east"), told("A", "C"), None)
    return table


def names(route):
    brokers = [broker.broker_name for broker in route.broker_datas]
    return brokers, [queue.broker_name for queue in route.queue_datas]


def test_a_route_names_all_brokers_of_a_topic(table):
    assert names(lookups.route(table, "A")) == (["broker-a", "broker-b"],) * 2
    assert names(lookups.route(table, "C")) == (["broker-a"],) * 2


def test_a_topic_that_nobody_serves_has_no_route(table):
    assert lookups.route(table, "Z") is None


def test_a_zone_has_its_own_brokers_only(table):
    assert names(lookups.in_zone(lookups.route(table, "A"), "EAST")) == (["broker-a"],) * 2
    assert names(lookups.in_zone(lookups.route(table, "A"), "moon")) == ([], [])


def test_a_name_without_primary_serves_every_zone(table):
    table.register(registration("broker-b", broker_id=1, zone_name="west"), told("A", "B"), None)
    table.unregister("broker-b", ("DefaultCluster", "broker-b:10911"))

    found = lookups.in_zone(lookups.route(table, "A"), "east")

    assert names(found) == (["broker-a", "broker-b"],) * 2


def test_filter_servers_of_a_route(table):
    told_filters = told("A", "C", counter=2)
    told_filters.filter_server_list = ["f:1"]
    table.register(registration("broker-a", zone_name="east"), told_filters, None)
    found = lookups.route(table, "A")

    assert found.filter_server_table == {"broker-a:10911": ["f:1"]}
    assert lookups.in_zone(found, "west").filter_server_table == {}

    table.register(registration("broker-a", zone_name="east"), told("A", "C", counter=3), None)
    assert lookups.route(table, "A").filter_server_table == {}


def test_static_topics_have_their_mapping_in_the_route(table):
    mapped = told("A", "C", counter=2)
    mapping = {"topic": "A", "bname": "broker-a", "totalQueues": 4}
    mapped.topic_config_serialize_wrapper.topic_queue_mapping_info_map = {"A": mapping, "X": "?"}
    table.register(registration("broker-a"), mapped, None)

    assert lookups.route(table, "A").topic_queue_mapping_by_broker == {"broker-a": mapping}
    assert lookups.route(table, "C").topic_queue_mapping_by_broker is None


def test_cluster_info(table):
    info = lookups.cluster_info(table)

    assert info.cluster_addr_table == {"DefaultCluster": ["broker-a", "broker-b"]}
    assert list(info.broker_addr_table) == ["broker-a", "broker-b"]


def test_lists_of_topics(table):
    table.register(registration("broker-c", cluster_name="Other"), told("C", "D"), None)

    assert lookups.all_topics(table).topic_list == ["A", "B", "C", "D"]
    assert lookups.topics_of_cluster(table, "Other").topic_list == ["C", "D"]
    assert lookups.topics_of_cluster(table, "None").topic_list == []
    system = lookups.system_topics(table)
    assert system.topic_list == ["DefaultCluster", "Other", "broker-a", "broker-b", "broker-c"]
    assert system.broker_addr == "broker-b:10911"


def test_lists_of_unit_topics():
    table = RouteTable(FakeClock())
    table.register(registration("broker-a"), told("A", "B"), None)
    for counter, (name, flag) in enumerate([("U", 1), ("S", 2), ("US", 3)], start=2):
        change = told(name, counter=counter, topic_sys_flag=flag)
        table.register(registration("broker-a"), change, None)

    assert lookups.unit_topics(table).topic_list == ["U", "US"]
    assert lookups.unit_subscribed_topics(table).topic_list == ["S", "US"]
    assert lookups.unit_subscribed_topics(table, not_of_units=True).topic_list == ["S"]


def test_members_of_a_name(table):
    group = lookups.members(table, "DefaultCluster", "broker-a").broker_member_group
    assert group.broker_addrs == {0: "broker-a:10911"}

    assert lookups.members(table, "c", "nobody").broker_member_group.broker_addrs == {}
