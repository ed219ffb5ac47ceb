"""`orbitmq group`: list, progress, members, create, delete, reset."""

import json

import pytest

from cluster_commands import Cluster, lines
from orbitmq.client import Admin, Consumer
from orbitmq.errors import NoRouteError, ResponseError
from orbitmq.testing import Broker


@pytest.fixture
def consumed(cluster):
    """A topic with two queues, of whose five messages a group has consumed three."""
    topic, group = cluster.create(cluster.name(), queues=2), cluster.name("group")
    cluster.send(topic, "a", "b", "c")
    cluster.consume(topic, group, 3)
    cluster.send(topic, "d", "e")
    return topic, group


def offsets(cluster: Cluster, group: str, topic: str) -> list[int]:
    found = cluster.json("group", "progress", group, "--topic", topic)
    return [one["consumer_offset"] for one in found["queues"]]


def test_without_groups_it_says_where_they_come_from():
    with Broker() as broker:
        result = Cluster(broker).command("group", "list")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "a consumer makes its own" in result.stderr


def test_list_tells_members_and_lag(cluster, consumed):
    topic, group = consumed

    row = next(row for row in lines(cluster.output("group", "list")) if row[0] == group)
    value = next(one for one in cluster.json("group", "list") if one["group"] == group)

    assert row[1] == "0"
    assert topic in row
    assert (value["lag"], value["members"]) == (2, 0)
    assert topic in value["topics"]


def test_list_hides_the_brokers_own_groups(cluster):
    names = {one["group"] for one in cluster.json("group", "list")}
    everything = {one["group"] for one in cluster.json("group", "list", "--all")}

    assert "TOOLS_CONSUMER" in everything - names


def test_progress_tells_each_queue(cluster, consumed):
    topic, group = consumed

    text = cluster.output("group", "progress", group, "--topic", topic)
    value = cluster.json("group", "progress", group, "--topic", topic)

    assert "lag 2, in flight 0" in text
    assert value["lag"] == 2
    assert sum(one["broker_offset"] for one in value["queues"]) == 5
    assert sum(one["consumer_offset"] for one in value["queues"]) == 3


def filtered(cluster, expression="TagA"):
    """A topic with 8 messages behind the first, 3 of them with TagA, and a group that read the first."""
    topic, group = cluster.create(cluster.name(), queues=1), cluster.name("group")
    for number in range(9):
        cluster.send(topic, f"{number}", tag="TagA" if number < 4 else "TagB")
    cluster.consume(topic, group, 1)
    consumer = Consumer(cluster.namesrv, group, {topic: expression}, start_from="first")
    return topic, group, consumer


def test_lag_counts_what_the_filter_lets_through(cluster):
    topic, group, consumer = filtered(cluster)
    with consumer:
        message = consumer.receive(20)
        value = cluster.json("group", "progress", group, "--topic", topic)
        text = cluster.output("group", "progress", group, "--topic", topic)
        row = next(one for one in cluster.json("group", "list") if one["group"] == group)
        message.ack()

    assert (value["lag"], value["lag_is"]) == (3, "exact")
    (queue,) = value["queues"]
    assert (queue["lag"], queue["lag_is"], queue["broker_offset"]) == (3, "exact", 9)
    assert "lag 3, in flight" in text
    assert (row["lag"], row["lag_is"]) == (3, "exact")


def test_an_estimate_is_said_to_be_one(cluster):
    topic, group, consumer = filtered(cluster)
    settings = {"maxConsumeQueueScan": "1", "maxTransferCountOnMessageInMemory": "1"}
    usual = {"maxConsumeQueueScan": "20000", "maxTransferCountOnMessageInMemory": "32"}
    with consumer, Admin(cluster.namesrv) as admin:
        message = consumer.receive(20)
        admin.update_broker_config("broker-a", settings)
        value = cluster.json("group", "progress", group, "--topic", topic)
        result = cluster.command("group", "progress", group, "--topic", topic)
        admin.update_broker_config("broker-a", {"estimateAccumulation": "false"})
        at_most = cluster.json("group", "progress", group, "--topic", topic)
        bound = cluster.command("group", "progress", group, "--topic", topic)
        admin.update_broker_config("broker-a", {**usual, "estimateAccumulation": "true"})
        message.ack()

    assert (value["lag"], value["lag_is"]) == (8, "estimate")
    assert "lag ~8, in flight" in result.stdout
    assert "~ is an estimate" in result.stderr
    assert (at_most["lag"], at_most["lag_is"]) == (8, "at most")
    assert "lag <=8, in flight" in bound.stdout
    assert "does not say how many pass the filter" in bound.stderr


def test_lag_of_a_group_without_members_counts_all(cluster, consumed):
    topic, group = consumed

    result = cluster.command("group", "progress", group, "--topic", topic)
    value = cluster.json("group", "progress", group, "--topic", topic)

    assert (value["lag"], value["lag_is"]) == (2, "at most")
    assert "lag 2, in flight" in result.stdout
    assert "the lag counts all messages, whatever the group filters" in result.stderr


def test_progress_and_members_tell_who_consumes(cluster, consumed):
    topic, group = consumed
    with Consumer(cluster.namesrv, group, {topic: "TagA || TagB"}) as consumer:
        members = cluster.json("group", "members", group)
        text = cluster.output("group", "members", group)
        progress = cluster.json("group", "progress", group, "--topic", topic)
        client_id = consumer.client_id

    assert [one["client_id"] for one in members["clients"]] == [client_id]
    assert client_id in text
    assert f"{topic}: TAG TagA || TagB" in text
    assert {one["member"] for one in progress["queues"]} <= {client_id, ""}


def test_a_member_that_does_not_tell_its_queues_does_not_hide_the_progress(
    cluster, consumed, monkeypatch
):
    topic, group = consumed

    def refuse(self, group, client_id):
        raise ResponseError(1, "not today")

    monkeypatch.setattr("orbitmq.client.admin.groups.GroupAdmin.running_info", refuse)
    with Consumer(cluster.namesrv, group, topic):
        result = cluster.command("group", "progress", group, "--output", "json")

    assert result.exit_code == 0
    assert "not today" in result.stderr
    assert json.loads(result.stdout)["group"] == group


@pytest.mark.parametrize("command", ["progress", "members", "delete"])
def test_an_unknown_group_is_one_clear_line_and_exit_code_1(cluster, command):
    result = cluster.command("group", command, "nobody")

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == (
        "orbitmq: no broker knows the group nobody: see `orbitmq group list`\n"
    )


def test_create_makes_a_group_and_changes_one(cluster):
    group = cluster.name("group")

    assert cluster.output("group", "create", group, "--retries", 3) == f"{group} on broker-a\n"
    cluster.output("group", "create", group, "--retries", 5, "--no-broadcast")

    with Admin(cluster.namesrv) as admin:
        info = admin.group(group)
    assert (info.retries_max, info.broadcast_enabled) == (5, False)


def test_a_group_that_has_consumed_nothing_says_so(cluster):
    group = cluster.name("group")
    cluster.output("group", "create", group)

    result = cluster.command("group", "progress", group)

    assert result.exit_code == 0
    assert "has not consumed anything yet" in result.stderr


def test_a_dry_run_of_create_changes_nothing(cluster):
    group = cluster.name("group")

    text = cluster.output("group", "create", group, "--retries", 3, "--dry-run")

    assert text == f"would create {group} with 3 retries\n"
    assert group not in {one["group"] for one in cluster.json("group", "list")}


def test_delete_takes_a_group_and_its_offsets_away(cluster, consumed):
    topic, group = consumed

    dry = cluster.output("group", "delete", group, "--dry-run")
    unasked = cluster.command("group", "delete", group)
    still_there = group in {one["group"] for one in cluster.json("group", "list")}
    done = cluster.command("group", "delete", group, "--yes")

    assert dry == f"would delete {group}, 0 members online\n"
    assert unasked.exit_code == 2
    assert still_there
    assert done.stderr == f"orbitmq: {group} is deleted\n"
    assert group not in {one["group"] for one in cluster.json("group", "list")}
    assert group not in cluster.json("topic", "stats", topic)["groups"]


@pytest.mark.parametrize(
    "to", ["earliest", "latest", "now-1h", "2020-01-01", "1577836800000", "now"]
)
def test_reset_puts_a_group_elsewhere(cluster, consumed, to):
    topic, group = consumed
    expected = 5 if to in {"latest", "now"} else 0

    result = cluster.command("group", "reset", group, topic, "--to", to, "--output", "json")

    assert result.exit_code == 0, result.exception
    changes = json.loads(result.stdout)
    assert sum(one["old_offset"] for one in changes) == 3
    assert sum(one["new_offset"] for one in changes) == expected


def test_after_a_reset_messages_come_again(cluster, consumed):
    topic, group = consumed

    table = cluster.output("group", "reset", group, topic, "--to", "earliest")

    assert f"{group} in {topic}" in table
    assert sorted(cluster.consume(topic, group, 5)) == list("abcde")


def test_a_dry_run_of_reset_says_what_and_changes_nothing(cluster, consumed):
    topic, group = consumed
    before = offsets(cluster, group, topic)

    text = cluster.output("group", "reset", group, topic, "--to", "earliest", "--dry-run")

    assert "nothing was changed" in text
    assert offsets(cluster, group, topic) == before


def test_reset_of_one_queue_leaves_the_others(cluster, consumed):
    topic, group = consumed

    changes = cluster.json("group", "reset", group, topic, "--to", "latest", "--queue", 1)

    assert [one["queue_id"] for one in changes] == [1]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(["--to", "yesterday"], "write a time"), ([], "--to")],
    ids=["no time", "nothing"],
)
def test_reset_to_nowhere_has_exit_code_2(cluster, consumed, arguments, text):
    topic, group = consumed

    result = cluster.command("group", "reset", group, topic, *arguments)

    assert result.exit_code == 2
    assert text in result.stderr


def test_reset_in_an_unknown_topic_or_of_an_unknown_group_is_said(cluster, consumed):
    topic, group = consumed

    no_topic = cluster.command("group", "reset", group, "Nowhere", "--to", "earliest")
    no_group = cluster.command("group", "reset", "nobody", topic, "--to", "earliest")

    assert isinstance(no_topic.exception, NoRouteError)
    assert isinstance(no_group.exception, ResponseError)
    assert "orbitmq group create" in str(no_group.exception)
    assert no_group.exception.exit_code == 1
