"""`orbitmq topic`: list, stats, check, create, delete."""

import json
import time

import pytest

from cluster_commands import Cluster, lines
from command import run
from orbitmq.client import Admin, Consumer
from orbitmq.doctor.topic_queues import queue_range_text
from orbitmq.errors import InvalidMessageError, NoRouteError
from orbitmq.testing import Broker


def test_an_empty_cluster_says_how_to_begin():
    with Broker() as broker:
        cluster = Cluster(broker)

        table, as_json = cluster.command("topic", "list"), cluster.json("topic", "list")

    assert (table.exit_code, table.stdout) == (0, "")
    assert "orbitmq topic create" in table.stderr
    assert as_json == []


def test_list_tells_queues_and_messages(cluster):
    topic = cluster.create(cluster.name(), queues=3)
    cluster.send(topic, "a", "b")

    row = next(row for row in lines(cluster.output("topic", "list")) if row[0] == topic)
    value = next(one for one in cluster.json("topic", "list") if one["topic"] == topic)

    assert row[1:6] == ["broker-a", "3", "3", "disk", "2"]
    assert value["brokers"] == ["broker-a"]
    assert (value["read_queues"], value["write_queues"], value["messages"]) == (3, 3, 2)
    assert value["last_ms"] > 0


def test_list_hides_what_brokers_made_for_themselves(cluster):
    names = {one["topic"] for one in cluster.json("topic", "list")}
    everything = {one["topic"] for one in cluster.json("topic", "list", "--all")}

    assert "TBW102" in everything - names
    assert "SCHEDULE_TOPIC_XXXX" in everything - names


def test_stats_tell_offsets_of_each_queue_and_the_groups(cluster):
    topic, group = cluster.create(cluster.name(), queues=2), cluster.name("group")
    cluster.send(topic, "a", "b", "c", key="same")
    cluster.consume(topic, group, 3)

    text = cluster.output("topic", "stats", topic)
    value = cluster.json("topic", "stats", topic)

    assert f"3 messages in 2 queues\ngroups: {group}\n" in text
    assert "broker-a: log offsets 0 to " in text
    assert sorted(one["max_offset"] for one in value["queues"]) == [0, 3]
    assert [one["min_offset"] for one in value["queues"]] == [0, 0]
    assert value["groups"] == [group]
    assert value["dispatch"][0]["broker"] == "broker-a"


@pytest.mark.parametrize("command", ["stats", "check", "delete"])
def test_an_unknown_topic_is_one_clear_line_and_exit_code_3(cluster, command):
    result = cluster.command("topic", command, "Nowhere", *(["--yes"] * (command == "delete")))

    assert isinstance(result.exception, NoRouteError)
    assert str(result.exception).startswith("topic Nowhere: ")
    assert "orbitmq topic create" in str(result.exception)
    assert result.exception.exit_code == 3
    assert result.stdout == ""


def test_create_makes_a_topic_and_changes_one(cluster):
    topic = cluster.name()

    made = cluster.output("topic", "create", topic, "--queues", 2)
    changed = cluster.output("topic", "create", topic, "--queues", 5, "--perm", 4)

    with Admin(cluster.namesrv) as admin:
        config = admin.topic_config(topic, "broker-a")
    assert made == f"{topic}: 2 read and 2 write queues, perm 6, on broker-a\n"
    assert changed == f"{topic}: 5 read and 5 write queues, perm 4, on broker-a\n"
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (5, 5, 4)


def test_create_takes_queues_to_read_and_to_write_apart(cluster):
    topic = cluster.name()

    cluster.output("topic", "create", topic, "--read-queues", 4, "--write-queues", 2, "--ordered")

    with Admin(cluster.namesrv) as admin:
        config = admin.topic_config(topic, "broker-a")
    assert (config.read_queue_nums, config.write_queue_nums, config.order) == (4, 2, True)


def test_create_with_an_attribute(cluster):
    topic = cluster.name()

    cluster.output("topic", "create", topic, "--attribute", "queue.type=BatchCQ")

    with Admin(cluster.namesrv) as admin:
        assert admin.topic(topic).attributes["queue.type"] == "BatchCQ"


def test_a_dry_run_of_create_says_what_and_changes_nothing(cluster):
    topic, other = cluster.name(), cluster.create(cluster.name(), queues=2)

    create = cluster.output("topic", "create", topic, "--queues", 2, "--dry-run")
    change = cluster.output("topic", "create", other, "--queues", 7, "--dry-run")

    topics = {one["topic"]: one["write_queues"] for one in cluster.json("topic", "list")}
    assert create == f"would create {topic}: 2 read and 2 write queues, perm 6, on broker-a\n"
    assert change.startswith(f"would change {other}: 7 read and 7 write queues")
    assert topic not in topics
    assert topics[other] == 2


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["bad topic"], InvalidMessageError),
        (["TBW102x", "--queues", "0"], None),
        (["T", "--perm", "9"], None),
        (["T", "--attribute", "nonsense"], None),
    ],
    ids=["name", "no queue", "perm", "attribute"],
)
def test_create_refuses_what_cannot_be(cluster, arguments, error):
    result = cluster.command("topic", "create", *arguments)

    if error is None:
        assert result.exit_code == 2
    else:
        assert isinstance(result.exception, error)
        assert result.exception.exit_code == 2


def test_delete_takes_a_topic_away(cluster):
    topic = cluster.create(cluster.name())
    cluster.send(topic, "a")

    result = cluster.command("topic", "delete", topic, "--yes")

    assert result.exit_code == 0
    assert result.stderr == f"orbitmq: {topic} is deleted\n"
    assert topic not in {one["topic"] for one in cluster.json("topic", "list")}


def test_delete_asks_first_and_without_a_terminal_wants_yes(cluster):
    topic = cluster.create(cluster.name())
    cluster.send(topic, "a")

    result = cluster.command("topic", "delete", topic)

    assert result.exit_code == 2
    assert f"Delete {topic} with 1 message?" in result.stderr
    assert "--yes" in result.stderr
    assert cluster.json("topic", "stats", topic)["queues"]


def test_a_dry_run_of_delete_changes_nothing(cluster):
    topic = cluster.create(cluster.name())
    cluster.send(topic, "a", "b")

    assert cluster.output("topic", "delete", topic, "--dry-run") == (
        f"would delete {topic} with 2 messages\n"
    )
    assert topic in {one["topic"] for one in cluster.json("topic", "list")}


def test_nobody_at_the_address_is_one_clear_line_and_exit_code_3():
    result = run("topic", "list", "--namesrv", "127.0.0.1:1")

    assert result.returncode == 3
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("orbitmq: 127.0.0.1:1: name server: no connection")
    assert "orbitmq up" in result.stderr
    assert "--namesrv" in result.stderr


def test_the_address_may_come_from_the_environment():
    result = run("topic", "list", ORBITMQ_NAMESRV_ADDR="127.0.0.1:1")

    assert result.returncode == 3
    assert "127.0.0.1:1" in result.stderr


def test_an_address_that_is_none_has_exit_code_2():
    result = run("topic", "list", "--namesrv", "here:there")

    assert result.returncode == 2
    assert "must look like host:port" in result.stderr


# --- check ---


def test_check_of_topics_that_fit_finds_nothing(cluster):
    topic = cluster.create(cluster.name(), queues=2)

    assert cluster.output("topic", "check", topic) == "1 topic looked at, nothing found\n"
    assert cluster.json("topic", "check", topic) == []


@pytest.mark.feature("F91")
def test_check_finds_messages_that_nobody_can_read(cluster):
    topic = cluster.create(cluster.name(), read_queues=2, write_queues=4)
    exposed = cluster.command("topic", "check", topic, "--output", "json")
    cluster.send(topic, *"abcdefgh")

    table = cluster.command("topic", "check", topic)
    found = cluster.command("topic", "check", topic, "--output", "json")

    assert '"kind":"exposed","queue_ids":[2,3],"messages":0' in exposed.stdout
    assert '"kind":"unreadable","queue_ids":[2,3],"messages":4' in found.stdout
    assert {exposed.exit_code, table.exit_code, found.exit_code} == {1}
    assert "4 messages that nobody can read" in table.stdout
    assert f"orbitmq topic create {topic} --queues 4" in table.stdout


@pytest.mark.feature("F91")
def test_check_finds_queues_and_members_that_wait_in_vain(cluster):
    topic = cluster.create(cluster.name(), read_queues=4, write_queues=2)
    group = cluster.name("group")
    cluster.send(topic, "a", "b")
    members = [Consumer(cluster.namesrv, group, topic, start_from="first") for _ in range(2)]
    with members[0], members[1]:
        idle = member_with(members, {2, 3})
        table = cluster.command("topic", "check", topic)
        found = cluster.command("topic", "check", topic, "--output", "json")

    assert (table.exit_code, found.exit_code) == (1, 1)
    assert [one["kind"] for one in json.loads(found.stdout)][-1] == "idle member"
    assert [one["queue_ids"] for one in json.loads(found.stdout)] == [[2, 3], [2, 3]]
    assert f"{idle} of group {group} has no other queues: it waits in vain." in table.stdout


def member_with(members: list[Consumer], wanted: set[int]) -> str:
    """Wait until one of them has exactly these queues; return who."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for one in members:
            if {q.queue_id for q in one.queues if not q.topic.startswith("%")} == wanted:
                return one.client_id
        time.sleep(0.02)
    raise AssertionError(f"nobody has {wanted}: {[one.queues for one in members]}")


@pytest.mark.feature("F91")
def test_check_tells_when_the_rest_of_a_shrunk_topic_is_read(cluster):
    topic, group = cluster.create(cluster.name(), queues=4), cluster.name("group")
    cluster.send(topic, *"abcdefgh")
    with Admin(cluster.namesrv) as admin:
        admin.create_group(group)
        admin.reset_offsets(group, topic, "earliest")
    cluster.create(topic, read_queues=4, write_queues=2)

    before = cluster.command("topic", "check", topic, "--output", "json").stdout
    cluster.consume(topic, group, 8)
    after = cluster.command("topic", "check", topic, "--output", "json").stdout

    assert '"kind":"draining","queue_ids":[2,3],"messages":4' in before
    assert '"kind":"idle","queue_ids":[2,3],"messages":4' in after


@pytest.mark.parametrize(
    ("ids", "text"), [([3], "3"), ([2, 3], "2 3"), ([4, 5, 6], "4-6"), ([4, 6, 7], "4 6 7")]
)
def test_queue_ids_for_people(ids, text):
    assert queue_range_text(ids) == text
