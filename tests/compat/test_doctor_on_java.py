"""`orbitmq doctor` on RocketMQ's own name server and broker: what they can show is found there too."""

import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command import invoke
from compat.clusters import Cluster, Clusters
from compat.java_cluster import (
    BROKER_MAIN,
    SMALL_BROKER,
    broker_settings,
    java_broker,
    java_command,
    running,
    write_settings,
)
from compat.java_store import needs_java
from compat.scenarios import fresh
from compat.server_process import ServerProcess, free_port
from golden_stores import settings, unpack
from orbitmq.client import Admin, Consumer, Message, Producer

pytestmark = [pytest.mark.compat, needs_java, pytest.mark.feature("X5")]

Found = dict[str, Any]

LOOK_SECONDS = 0.5  # the doctor asks all servers, each time


@pytest.fixture(scope="module")
def cluster(clusters: Clusters) -> Cluster:
    return clusters.get("java")


def look(cluster: Cluster, *arguments: str) -> list[Found]:
    result = invoke("doctor", cluster.namesrv, *arguments, "--output", "json")
    assert result.exit_code in (0, 1), result.output + repr(result.exception)
    return json.loads(result.stdout)["findings"]


def wait(cluster: Cluster, what: str, *arguments: str) -> Found:
    deadline = time.monotonic() + 60
    while True:
        found = look(cluster, *arguments)
        matching = [finding for finding in found if what in finding["what"]]
        if matching:
            return matching[0]
        assert time.monotonic() < deadline, found
        time.sleep(LOOK_SECONDS)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(LOOK_SECONDS)


def follow(finding: Found) -> None:
    result = invoke(*shlex.split(finding["command"])[1:])
    assert result.exit_code == 0, result.output + repr(result.exception)


def gone(cluster: Cluster, what: str, *arguments: str) -> bool:
    return all(what not in finding["what"] for finding in look(cluster, *arguments))


@pytest.mark.feature("F106")
def test_a_group_above_the_last_message_of_a_java_broker_is_told_and_reset(
    cluster: Cluster,
) -> None:
    topic, group = fresh("Doctor"), fresh("doctor-group")
    cluster.create_topic(topic, 1)
    with Admin(cluster.namesrv) as admin, Producer(cluster.namesrv, group="doctor") as producer:
        sent = producer.send(Message(topic, b"a"))
        until(lambda: admin.topic_stats(topic)[0].max_offset == 1)
        admin.create_group(group, broker=cluster.broker.address)
        admin.set_offset(group, sent.queue, 1_000)

    finding = wait(cluster, "above the last message", "--group", group)
    follow(finding)

    assert finding["numbers"]["max_offset"] == 1
    assert gone(cluster, "illegal", "--group", group)


@pytest.mark.feature("F106")
def test_a_group_below_the_first_message_of_a_java_broker_is_told_and_reset(
    cluster: Cluster, tmp_path: Path
) -> None:
    root = tmp_path / "broker"
    unpack("cleaned", root).rename(root / "store")  # its first segments are deleted
    asked = "--group", "Clean_cg"

    with java_broker(tmp_path, namesrv=cluster.namesrv, root=root, settings=settings("cleaned")):
        wait(cluster, "below the first message", *asked)
        found = [one for one in look(cluster, *asked) if one["subject"] == "offsets"]
        for finding in found:
            follow(finding)
        reset = gone(cluster, "illegal", *asked)

    assert [one["numbers"]["offset"] for one in found] == [40, 40, 40, 30]
    assert all(one["numbers"]["deleted_unread"] > 0 for one in found)
    assert reset


@pytest.mark.feature("F111")
def test_members_with_different_subscriptions_on_a_java_broker_are_told(cluster: Cluster) -> None:
    topic, group = fresh("Doctor"), fresh("doctor-group")
    cluster.create_topic(topic, 2)

    def ignore(message: object) -> None:
        """Take what comes."""

    with Admin(cluster.namesrv) as admin:
        admin.create_group(group, broker=cluster.broker.address)
    with (
        Consumer(cluster.namesrv, group, {topic: "A"}, ignore),
        Consumer(cluster.namesrv, group, {topic: "B"}, ignore),
    ):
        finding = wait(cluster, "different subscriptions", "--group", group)
        follow(finding)

    assert finding["where"] == f"group {group}, {topic}"


@pytest.mark.feature("F105")
def test_a_topic_that_a_java_name_server_has_no_route_of_is_told(cluster: Cluster) -> None:
    topic = fresh("Nowhere")

    finding = wait(cluster, "no route", "--topic", topic)

    assert finding["command"] == f"orbitmq topic create {topic} --namesrv {cluster.namesrv}"


def test_a_java_broker_that_advertises_an_address_of_another_network_is_told(
    cluster: Cluster, tmp_path: Path
) -> None:
    port, root = free_port(), tmp_path / "broker"
    here = broker_settings(root, port, cluster.namesrv, "broker-away")
    settings = {**here, **SMALL_BROKER, "brokerIP1": "127.0.0.2"}
    config = write_settings(root / "broker.conf", settings)
    command = java_command(BROKER_MAIN, "-c", str(config), home=root)
    advertised = f"127.0.0.2:{port}"

    def is_listed() -> bool:
        with Admin(cluster.namesrv) as admin:
            return advertised in [one.address for one in admin.brokers(runtime=False)]

    broker = ServerProcess("broker-away", command, port, root, is_listed)

    with running(broker):
        finding = wait(cluster, "advertised address")

    assert finding["where"] == f"broker-away (id 0), {advertised}"
    assert finding["severity"] == "critical"
