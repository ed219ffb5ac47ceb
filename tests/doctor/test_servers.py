"""`orbitmq doctor HOST:PORT`: each situation planted on a live broker, found, and put right by the advice."""

import asyncio
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from cluster_commands import Cluster
from command import ORBITMQ
from conf_store import SMALL, ConfStore
from doctor.live_cluster import ClusterDoctor, OldClient, member, wait_until
from live_broker import LiveClient, run_live
from orbitmq.client import Admin, MessageQueue, PullConsumer, sql
from orbitmq.message import AppendRequest
from orbitmq.store.clean import disk_ratio
from orbitmq.store.dispatch_service import DispatchService
from orbitmq.testing import Broker, FakeClock
from orbitmq.testing.builders import HOST_V4
from orbitmq.wire.codes import RequestCode

pytestmark = pytest.mark.feature("X5")

HOUR_MS = 3_600_000
FORGETFUL = {
    "mappedFileSizeCommitLog": "65536",
    "fileReservedTime": "0",
    "cleanResourceInterval": "100",
    "deleteWhen": f"{(datetime.now().astimezone().hour + 12) % 24:02}",
}
"""Small segments that may be deleted as soon as somebody asks for it, and not before."""


@pytest.fixture
def forgetful() -> Iterator[Cluster]:
    """A broker of its own: what it deletes would be missed by the others."""
    with Broker(settings=FORGETFUL) as broker:
        yield Cluster(broker)


def test_a_cluster_without_fault_has_no_finding(doctor):
    with Broker() as broker:
        cluster = Cluster(broker)
        cluster.create("Orders", queues=2)
        cluster.send("Orders", "a", "b", keys=["k1"], tag="t")
        assert sorted(cluster.consume("Orders", "readers", 2)) == ["a", "b"]

        by_namesrv = doctor.fine(broker.namesrv)
        by_broker = doctor.fine(broker.address, "--topic", "Orders", "--key", "k1", "--scan")

    subjects = {one.partition(":")[0] for one in by_namesrv}
    assert subjects == {
        *("brokers", "newest messages", "flush", "disk", "clock", "offsets", "members"),
    }
    assert any(one.startswith("key: 'k1' of Orders has 2 messages") for one in by_broker)


def test_nobody_at_the_address_is_exit_code_3(doctor):
    result = doctor.run("127.0.0.1:1")

    assert result.exception.exit_code == 3


@pytest.fixture
def hold_dispatch(monkeypatch) -> threading.Event:
    """An event: while it is set nothing gets into a queue, as when dispatch cannot keep up."""
    held, dispatch_now = threading.Event(), DispatchService.dispatch_now
    monkeypatch.setattr(
        DispatchService, "dispatch_now", lambda self: 0 if held.is_set() else dispatch_now(self)
    )
    monkeypatch.setattr(DispatchService, "catch_up", lambda self, bytes_max: False)
    return held


@pytest.mark.feature("F105")
def test_dispatch_that_stands_still_and_a_pull_that_waits_beyond_it_are_told(doctor, hold_dispatch):
    async def parked() -> None:
        client = OldClient(broker.address)
        await client.heartbeat("readers", "Orders")
        waiting = client.pull("readers", "Orders", 3, suspend_ms=60_000)
        task = asyncio.ensure_future(waiting)
        loop = asyncio.get_running_loop()
        found.extend(await loop.run_in_executor(None, lambda: doctor.look(broker.namesrv)))
        task.cancel()
        await client.close()

    found: list[dict] = []
    with Broker() as broker:
        cluster = Cluster(broker)
        cluster.create("Orders", queues=1)
        cluster.send("Orders", "old")
        broker.wait_dispatched()
        hold_dispatch.set()
        cluster.send("Orders", "new 1", "new 2")
        run_live(parked)
        stuck = [f for f in found if "stands still" in f["what"]]
        ahead = [f for f in found if "a pull waits" in f["what"]]
        doctor.follow({"command": f"{stuck[0]['command']} --config {index_conf(broker)}"})
        hold_dispatch.clear()
        broker.wait_dispatched()
        later = doctor.fine(broker.namesrv)

    assert stuck[0]["numbers"]["behind_bytes"] > 0
    assert ahead[0]["numbers"] == {"offset": 3, "max_offset": 1}
    assert later


def index_conf(broker: Broker) -> Path:
    conf = broker.store_path / "broker.conf"
    conf.write_text("maxIndexNum=200000\nmaxHashSlotNum=5000000\n")
    return conf


@pytest.mark.feature("F105")
def test_queues_beyond_the_read_queues_are_told_until_they_are_read(cluster, ask):
    topic = cluster.create(cluster.name(), read_queues=1, write_queues=2)
    cluster.send(topic, "a", "b")
    cluster.broker.wait_dispatched()

    finding = ask.wait("unreadable", "--topic", topic)
    ask.follow(finding)

    assert finding["numbers"]["messages"] == 1
    assert finding["where"] == f"broker-a, {topic}, queues 1"
    assert ask.gone("unreadable", "--topic", topic)


@pytest.mark.feature("F105")
def test_a_topic_without_route_is_told_until_it_is_created(cluster, ask):
    topic = cluster.name("Nowhere")

    finding = ask.wait("no route", "--topic", topic)
    ask.follow(finding)

    assert ask.gone("no route", "--topic", topic)


@pytest.mark.feature("F106")
def test_a_group_above_the_last_message_is_told_until_it_is_reset(cluster, ask):
    topic, group = cluster.create(cluster.name(), queues=1), cluster.name("readers")
    cluster.send(topic, "a")
    cluster.output("group", "create", group)
    with Admin(cluster.namesrv) as admin:
        admin.set_offset(group, MessageQueue(topic, "broker-a", 0), 1_000)

    finding = ask.wait("above the last message", "--group", group)
    ask.follow(finding)

    assert finding["numbers"] == {"offset": 1_000, "max_offset": 1, "ahead": 999}
    assert ask.gone("illegal", "--group", group)


@pytest.mark.feature("F106")
def test_a_group_below_the_first_message_is_told_until_it_is_reset(forgetful):
    cluster, ask = forgetful, ClusterDoctor(forgetful.namesrv)
    topic, group = cluster.create(cluster.name(), queues=1), cluster.name("readers")
    queue = MessageQueue(topic, "broker-a", 0)
    cluster.send(topic, *("x" * 4_000 for _ in range(60)))
    cluster.output("group", "create", group)
    with Admin(cluster.namesrv) as admin:
        admin.set_offset(group, queue, 1)

        async def delete() -> None:
            client = LiveClient(cluster.broker.address)
            await client.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
            await client.close()

        run_live(delete)
        wait_until(lambda: admin.queue_range(queue)[0] > 1)
        first, _ = admin.queue_range(queue)

    finding = ask.wait("below the first message", "--group", group)
    ask.follow(finding)

    assert finding["numbers"]["deleted_unread"] == first - 1
    assert ask.gone("illegal", "--group", group)


@pytest.mark.feature("F111")
def test_members_with_different_subscriptions_are_told_until_they_agree(cluster, ask):
    topic, group = cluster.create(cluster.name(), queues=2), cluster.name("readers")
    with member(cluster, group, {topic: "A"}) as first:
        with member(cluster, group, {topic: "B"}) as second:
            finding = ask.wait("different subscriptions", "--group", group)
            ids = first.client_id, second.client_id
            shown = ask.follow(finding)
        wait_until(lambda: ask.gone("different subscriptions", "--group", group))

    assert finding["where"] == f"group {group}, {topic}"
    assert all(client_id in finding["meaning"] for client_id in ids)
    assert topic in shown


@pytest.fixture
def tags_only(cluster):
    """The broker filters by tags alone for a while."""
    with Admin(cluster.namesrv) as admin:
        admin.update_broker_config(cluster.broker.address, {"enablePropertyFilter": "false"})
        yield
        admin.update_broker_config(cluster.broker.address, {"enablePropertyFilter": "true"})


@pytest.mark.feature("F111")
def test_filters_of_the_wrong_type_are_told(cluster, ask, tags_only):
    topic, group = cluster.create(cluster.name(), queues=1), cluster.name("readers")
    other = cluster.name("readers")

    async def by_an_old_client() -> dict:
        client = OldClient(cluster.broker.address)
        await client.subscribe(group, topic, "price > 3", "SQL92")
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(None, lambda: ask.wait("type SQL92", "--group", group))
        await loop.run_in_executor(None, lambda: ask.follow(found))
        await client.close()
        return found

    by_sql = run_live(by_an_old_client)
    with Admin(cluster.namesrv) as admin:
        admin.update_broker_config(cluster.broker.address, {"enablePropertyFilter": "true"})
    with member(cluster, group, {topic: sql("price > 3")}) as consumer:
        wait_until(lambda: consumer.queues)
        assert ask.gone("type SQL92", "--group", group)
    with member(cluster, other, {topic: "A | B"}):
        by_tag = ask.wait("looks like another type", "--group", other)

    assert by_sql["numbers"] == {"expression": "price > 3", "type": "SQL92"}
    assert by_tag["numbers"]["expression"] == "A | B"


@pytest.mark.feature("F111")
def test_how_many_of_the_last_messages_match_on_the_server_and_on_the_client_is_told(cluster, ask):
    topic = cluster.create(cluster.name(), queues=1)
    cluster.send(topic, *"12345", tag="BB")  # as a hash the same as Aa
    cluster.send(topic, *"123", tag="Aa")
    nothing, some = cluster.name("readers"), cluster.name("readers")
    cluster.broker.wait_dispatched()
    with member(cluster, nothing, {topic: "C"}), member(cluster, some, {topic: "Aa"}):
        none = ask.wait("none of the last messages", "--group", nothing)
        same = ask.wait("tags with the same hash", "--group", some)
        ask.follow(same)

    assert none["numbers"] == {"last": 8, "match_on_server": 0, "match_on_client": 0}
    assert same["numbers"] == {"last": 8, "match_on_server": 8, "match_on_client": 3}


@pytest.mark.feature("F105")
def test_a_member_that_is_stuck_is_told(cluster, ask):
    topic, group = cluster.create(cluster.name(), queues=1), cluster.name("readers")
    cluster.send(topic, "a", "b")
    release = threading.Event()
    with member(cluster, group, {topic: "*"}, lambda message: release.wait(30), start_from="first"):
        asked = "--group", group, "--stuck-after", 0
        finding = ask.wait("holds messages and finishes none", *asked)
        patient = ask.gone("stuck", "--group", group)
        ask.follow(finding)
        release.set()
        wait_until(lambda: ask.gone("stuck", *asked))

    assert finding["numbers"]["held"] == 2
    assert finding["since_ms"] > 0
    assert patient


@pytest.mark.feature("F105")
def test_a_pull_that_waits_behind_what_its_group_has_not_read_is_told(cluster, ask):
    topic, group = cluster.create(cluster.name(), queues=1), cluster.name("readers")
    cluster.send(topic, "a", "b", "c")
    assert cluster.consume(topic, group, 1) == ["a"]
    with PullConsumer(cluster.namesrv, group, auto_commit=False) as consumer:
        consumer.subscribe(topic)
        wait_until(lambda: consumer.queues)
        consumer.seek_to_end()
        consumer.poll(timeout=0.1)

        finding = ask.wait("a pull waits at the wrong offset", "--group", group, "--stuck-after", 0)
        ask.follow(finding)

    assert finding["numbers"] == {"lag": 2, "held": 0, "in_flight": 2}


def test_a_group_that_is_offline_or_unknown_is_told_to_who_asks_for_it(cluster, ask):
    topic, group = cluster.create(cluster.name(), queues=1), cluster.name("readers")
    cluster.send(topic, "a", "b")
    assert cluster.consume(topic, group, 1) == ["a"]

    offline = ask.wait("nobody of the group is online", "--group", group)
    unknown = ask.wait("no broker knows the group", "--group", "nobody")
    ask.follow(offline)
    ask.follow(unknown)

    assert offline["numbers"]["lag"] == 1
    assert ask.gone("no broker knows", "--group", "nobody")


@pytest.mark.feature("F108")
def test_unflushed_bytes_are_told_until_they_are_flushed_in_time(cluster, ask):
    topic = cluster.create(cluster.name(), queues=1)
    never = "flushIntervalCommitLog=3600000", "flushCommitLogThoroughInterval=3600000"
    config = f"orbitmq broker config {cluster.broker.address}"
    ask.follow({"command": f"{config} --set {never[0]} --set {never[1]}"})
    wait_until(lambda: cluster.send(topic, "a") and unflushed(cluster) > 0)

    finding = ask.wait("not on disk", "--topic", topic)
    ask.follow(finding)

    assert finding["numbers"]["unflushed_bytes"] > 0
    assert finding["numbers"]["flush_interval_ms"] == HOUR_MS
    assert ask.gone("not on disk", "--topic", topic)


def unflushed(cluster: Cluster) -> int:
    with Admin(cluster.namesrv) as admin:
        return int(admin.broker_runtime(cluster.broker.address)["unflushedBytes"])


@pytest.mark.feature("F108")
def test_a_disk_over_its_limit_is_told_until_the_limit_is_another(cluster, ask):
    if disk_ratio(cluster.broker.store_path) <= 0.1:
        pytest.skip("the disk of the tests is too empty for the lowest limit that RocketMQ allows")
    config = f"orbitmq broker config {cluster.broker.address} --set diskMaxUsedSpaceRatio"
    ask.follow({"command": f"{config}=10"})

    finding = ask.wait("fuller than it should be", "--topic", "TBW102")
    ask.follow(finding)
    ask.follow({"command": f"{config}=75"})

    assert finding["numbers"]["limits_per_cent"] == "10 85 90"
    with Admin(cluster.namesrv) as admin:
        kept_for = admin.broker_config(cluster.broker.address)["fileReservedTime"]
    assert f"fileReservedTime={kept_for}" in finding["command"]
    assert ask.gone("fuller", "--topic", "TBW102")


@pytest.mark.feature("F107", "F108")
def test_an_index_that_is_off_an_empty_pool_and_a_busy_page_cache_are_told(doctor):
    settings = {
        "messageIndexEnable": "false",
        "transientStorePoolEnable": "true",
        "transientStorePoolSize": "1",
    }
    with Broker(settings=settings) as broker:
        cluster = Cluster(broker)
        cluster.create("Orders", queues=1)
        cluster.send("Orders", "a", "b", keys=["k1"])
        broker.wait_dispatched()
        appender = broker._broker.context.store._log.appender
        appender._lock_since_ms = appender._now_ms() - 5_000  # as if an append waited for the disk
        key = "--topic", "Orders", "--key", "k1"
        unfound = doctor.one("nothing is found by the key", broker.namesrv, *key)
        found = doctor.look(broker.namesrv, *key, "--scan")
        texts = {finding["what"].partition(":")[0]: finding for finding in found}
        appender._lock_since_ms = 0
        for finding in found:
            doctor.follow(finding) if finding["subject"] == "flush" else None
        left = doctor.look(broker.namesrv)

    assert unfound["numbers"]["messageIndexEnable"] == "false"
    assert unfound["command"].endswith("--scan")
    assert texts["the index does not lead to all messages of the key"]["numbers"] == {
        "by_index": 0,
        "by_scan": 2,
        "messageIndexEnable": "false",
    }
    assert texts["the transient pool has no buffer left"]["numbers"] == {"free_buffers": 0}
    assert texts["the page cache is busy"]["numbers"]["waiting_ms"] >= 5_000
    assert all("page cache" not in finding["what"] for finding in left)


@pytest.mark.feature("F108")
def test_a_replica_that_does_not_follow_is_told_with_its_gap(cluster, doctor):
    with Broker() as primary:
        Cluster(primary).create("Orders", queues=1)
        Cluster(primary).send("Orders", "a")
        replica = {"brokerId": "1", "brokerRole": "SLAVE", "namesrvAddr": primary.namesrv}
        replica["haMasterAddress"] = "127.0.0.1:9"  # nobody listens there
        with Broker(settings=replica):
            finding = doctor.one("does not follow its primary", primary.namesrv)
            doctor.follow(finding)

    assert finding["numbers"]["gap_bytes"] == finding["numbers"]["primary_end"] > 0


def test_messages_from_the_future_are_told(tmp_path, doctor):
    clock = FakeClock()
    clock.set_now_ms(time.time_ns() // 1_000_000 + 2 * HOUR_MS)
    with ConfStore(tmp_path, clock=clock) as store:
        store.append(AppendRequest("Orders", 0, b"a", born_host=HOST_V4))
    small = {name: str(value) for name, value in SMALL.items()}
    with Broker(store.root, settings=small) as broker:
        Cluster(broker).create("Orders", queues=1)
        finding = doctor.one("stored in the future", broker.namesrv)
        doctor.follow(finding)

    assert HOUR_MS < finding["numbers"]["ahead_ms"] <= 2 * HOUR_MS


def test_an_advertised_address_that_cannot_be_reached_is_told_until_it_is_another(tmp_path, doctor):
    with Broker(tmp_path / "store", settings={"brokerIP1": "127.0.0.2"}) as broker:
        finding = doctor.one("advertised address", broker.namesrv)
        broker._call(broker._stop_broker())
        settings = {
            "brokerName": "broker-a",
            "listenPort": "0",
            "namesrvAddr": broker.namesrv,
            "storePathRootDir": tmp_path / "store",
            "brokerIP1": "127.0.0.2",
            "mappedFileSizeCommitLog": 16 << 20,
            "maxIndexNum": 200_000,
        }
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        (tmp_path / "broker.conf").write_text(lines)
        program, *words = shlex.split(finding["command"])
        with subprocess.Popen([ORBITMQ, *words], cwd=tmp_path, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout.readline().startswith(b"broker broker-a 127.0.0.1:")
                fine = doctor.fine(broker.namesrv)
            finally:
                process.terminate()
                process.wait(30)

    assert program == "orbitmq"
    assert finding["severity"] == "critical"
    assert finding["where"].startswith("broker-a (id 0), 127.0.0.2:")
    assert fine


def test_a_broker_whose_name_server_is_gone_is_told(doctor):
    with Broker(settings={"namesrvAddr": "127.0.0.1:1"}) as broker:
        finding = doctor.one("name server of a broker", broker.address)
        doctor.follow(finding)

    assert "127.0.0.1:1" in finding["where"]
