"""The table of routes: brokers that come, are heard of and go."""

import pytest

from namesrv_world import registration, told
from orbitmq.namesrv import _lookups as lookups
from orbitmq.namesrv.routes import Registered, RouteTable
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.wire.bodies.route import QueueData
from orbitmq.wire.bodies.topic_config import DataVersion

ADDRESS = ("DefaultCluster", "broker-a:10911")


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def table(clock):
    return RouteTable(clock)


def perms(table, topic):
    return {name: queue.perm for name, queue in table.topics[topic].items()}


def test_a_broker_and_its_topics_are_known_after_registration(table):
    assert table.register(registration(), told("A", "B"), "connection") == Registered()

    assert table.brokers["broker-a"].broker_addrs == {0: "broker-a:10911"}
    assert table.clusters == {"DefaultCluster": {"broker-a"}}
    assert sorted(table.topics) == ["A", "B"]
    assert table.topics["A"]["broker-a"] == QueueData(
        broker_name="broker-a", read_queue_nums=16, write_queue_nums=16, perm=6
    )


def test_a_first_registration_with_one_topic_is_refused_and_leaves_nothing(table):
    assert table.register(registration(), told("A"), None) is None

    assert (table.brokers, table.clusters, table.topics, table.live) == ({}, {}, {}, {})


def test_a_change_alone_is_taken_from_a_broker_that_is_known(table):
    table.register(registration(), told("A", "B"), None)
    assert table.register(registration(), told("C", counter=2), None) is not None

    assert sorted(table.topics) == ["A", "B", "C"]
    assert table.data_version(ADDRESS).counter == 2


def test_topics_that_are_not_told_any_more_stay(table):
    table.register(registration(), told("A", "B"), None)
    table.register(registration(), told("A", counter=2), None)

    assert sorted(table.topics) == ["A", "B"]


def test_topics_that_are_not_told_any_more_go_where_that_is_wanted(table):
    table.register(registration(), told("A", "B"), None)
    table.register(registration("broker-b"), told("B", "C"), None)
    table.register(registration(), told("A", "D", counter=2), None, delete_topics=True)

    assert sorted(table.topics) == ["A", "B", "C", "D"]
    assert list(table.topics["B"]) == ["broker-b"]


def test_topics_are_taken_anew_only_when_the_version_differs(table):
    table.register(registration(), told("A", "B"), None)
    table.wipe_write_perm("broker-a")
    table.register(registration(), told("A", "B"), None)
    assert perms(table, "A") == {"broker-a": 4}

    table.register(registration(), told("A", "B", counter=2), None)
    assert perms(table, "A") == {"broker-a": 6}


def test_a_topic_that_was_deleted_comes_back_with_the_next_registration(table):
    table.register(registration(), told("A", "B"), None)
    table.delete_topic("A")
    assert list(table.topics) == ["B"]

    table.register(registration(), told("A", "B"), None)
    assert sorted(table.topics) == ["A", "B"]


def test_an_unchanged_registration_changes_nothing_that_was_worked_out(table):
    table.register(registration(), told("A", "B"), None)
    version = table.version
    table.register(registration(), told("A", "B"), None)

    assert table.version == version


def test_a_replica_learns_where_its_primary_is(table):
    replica = registration(broker_id=1)
    assert table.register(replica, told("A", "B"), None) == Registered()
    table.register(registration(), told("A", "B"), None)

    assert table.register(replica, told("A", "B"), None) == Registered(
        "broker-a:10911", "broker-a:20911"
    )
    assert table.brokers["broker-a"].broker_addrs == {0: "broker-a:10911", 1: "broker-a:10912"}


def test_a_replica_does_not_speak_for_topics_beside_its_primary(table):
    table.register(registration(), told("A", "B"), None)
    table.register(registration(broker_id=1), told("A", "B", "C", perm=4), None)

    assert sorted(table.topics) == ["A", "B"]
    assert perms(table, "A") == {"broker-a": 6}


def test_an_old_replica_alone_does_not_speak_for_topics(table):
    table.register(registration(broker_id=1, enable_acting_master=None), told("A", "B"), None)

    assert table.topics == {}


def test_an_acting_primary_makes_topics_read_only(table):
    table.register(registration(broker_id=1, enable_acting_master=True), told("A", "B"), None)
    assert perms(table, "A") == {"broker-a": 4}

    found = lookups.route(table, "A", acting_master=True)
    assert found.broker_datas[0].broker_addrs == {0: "broker-a:10912"}
    assert lookups.route(table, "A").broker_datas[0].broker_addrs == {1: "broker-a:10912"}


def test_topics_become_read_only_when_the_primary_of_an_acting_group_goes(table):
    table.register(registration(enable_acting_master=True), told("A", "B"), None)
    table.register(registration(broker_id=1, enable_acting_master=True), told("A", "B"), None)
    table.unregister("broker-a", ADDRESS)

    assert perms(table, "A") == {"broker-a": 4}
    assert table.brokers["broker-a"].broker_addrs == {1: "broker-a:10912"}


def test_a_broker_that_changes_its_role_has_one_id(table):
    table.register(registration(broker_id=1, broker_addr="x:1"), told("A", "B"), None)
    table.register(registration(broker_id=0, broker_addr="x:1"), told("A", "B"), None)

    assert table.brokers["broker-a"].broker_addrs == {0: "x:1"}


def test_a_broker_that_was_replaced_by_a_newer_one_is_ignored(table):
    table.register(registration(broker_addr="new:1"), told("A", "B", state=2), None)
    table.register(registration(broker_addr="old:1"), told("A", "B", "C", state=1), None)

    assert table.brokers["broker-a"].broker_addrs == {0: "new:1"}
    assert "C" not in table.topics
    assert ("DefaultCluster", "old:1") not in table.live


def test_a_broker_that_moved_replaces_its_old_address(table):
    table.register(registration(broker_addr="old:1"), told("A", "B"), None)
    table.register(registration(broker_addr="new:1"), told("A", "B"), None)

    assert table.brokers["broker-a"].broker_addrs == {0: "new:1"}


def test_the_last_broker_of_a_name_takes_its_topics_along(table):
    table.register(registration(), told("A", "B"), None)
    table.register(registration("broker-b"), told("B", "C"), None)
    table.unregister("broker-a", ADDRESS)

    assert sorted(table.topics) == ["B", "C"]
    assert table.clusters == {"DefaultCluster": {"broker-b"}}
    assert lookups.route(table, "A") is None

    table.unregister("broker-b", ("DefaultCluster", "broker-b:10911"))
    assert (table.brokers, table.clusters, table.topics, table.live) == ({}, {}, {}, {})


def test_a_broker_that_nobody_knows_can_go(table):
    table.unregister("nobody", ("x", "y:1"))

    assert table.connection_lost(object()) == []


def test_a_closed_connection_takes_its_brokers_along_at_once(table):
    connection, other = object(), object()
    table.register(registration(), told("A", "B"), connection)
    table.register(registration("broker-b"), told("A", "B"), other)

    assert table.connection_lost(connection) == ["broker-a"]
    assert list(table.brokers) == ["broker-b"]


def test_a_broker_that_registered_again_over_another_connection_stays(table):
    table.register(registration(), told("A", "B"), "first")
    table.register(registration(), told("A", "B"), "second")

    assert table.connection_lost("first") == []
    assert list(table.brokers) == ["broker-a"]


def test_a_broker_may_be_silent_for_120_seconds(table, clock):
    table.register(registration(), told("A", "B"), None)
    clock.advance(120_000)
    assert table.expire() == []

    clock.advance(1)
    assert [live.broker_name for live in table.expire()] == ["broker-a"]
    assert table.topics == {}


def test_a_broker_may_name_its_own_time(table, clock):
    table.register(registration(heartbeat_timeout_millis=10_000), told("A", "B"), None)
    clock.advance(10_001)

    assert len(table.expire()) == 1


def test_a_broker_that_is_heard_of_stays(table, clock):
    table.register(registration(), told("A", "B"), None)
    for _ in range(5):
        clock.advance(100_000)
        table.touch(ADDRESS)
        assert table.expire() == []


def test_a_wall_clock_that_jumps_expires_nobody(table, clock):
    table.register(registration(), told("A", "B"), None)
    clock.set_now_ms(clock.now_ms() + 10_000_000)

    assert table.expire() == []


def test_versions_are_compared_as_a_whole(table):
    version = DataVersion(counter=1, timestamp=1)
    assert table.is_changed(ADDRESS, version)

    table.register(registration(), told("A", "B"), None)
    assert not table.is_changed(ADDRESS, version)
    assert table.is_changed(ADDRESS, DataVersion(counter=1, timestamp=2))


def test_write_permission_is_wiped_and_given_back(table):
    table.register(registration(), told("A", "B", perm=7), None)
    table.register(registration("broker-b"), told("A", "B", perm=7), None)

    assert table.wipe_write_perm("broker-a") == 2
    assert perms(table, "A") == {"broker-a": 5, "broker-b": 7}
    assert table.add_write_perm("broker-a") == 2
    assert perms(table, "A") == {"broker-a": 6, "broker-b": 7}
    assert table.wipe_write_perm("nobody") == 0


def test_a_topic_is_deleted_in_one_cluster_or_everywhere(table):
    table.register(registration(), told("A", "B"), None)
    table.register(registration("broker-b", cluster_name="Other"), told("A", "B"), None)

    table.delete_topic("A", "Other")
    assert list(table.topics["A"]) == ["broker-a"]
    table.delete_topic("A", "NoSuchCluster")
    assert list(table.topics["A"]) == ["broker-a"]
    table.delete_topic("B")
    assert list(table.topics) == ["A"]


def test_a_topic_is_added_on_brokers_that_are_known(table):
    table.register(registration(), told("A", "B"), None)
    queue = QueueData(broker_name="broker-a", read_queue_nums=2, write_queue_nums=2, perm=6)
    strange = QueueData(broker_name="nobody", read_queue_nums=2, write_queue_nums=2, perm=6)

    table.add_topic("C", [queue])
    table.add_topic("D", [queue, strange])
    table.add_topic("E", [])

    assert sorted(table.topics) == ["A", "B", "C"]
