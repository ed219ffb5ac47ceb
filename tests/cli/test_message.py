"""`orbitmq message`: send, tail, get, query."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cluster_commands import Cluster
from command import ORBITMQ, json_lines, run
from orbitmq.cli.message import BODY_SHOWN
from orbitmq.errors import InvalidMessageError, NoRouteError, Sql92SyntaxError


def stored(cluster: Cluster, topic: str) -> list[dict]:
    count = sum(one["messages"] for one in cluster.json("topic", "stats", topic)["queues"])
    tail = cluster.command(
        *("message", "tail", topic, "--from", "earliest", "--count", count, "--output", "json")
    )
    return json_lines(tail.stdout)


# --- send ---


def test_send_takes_text_tag_keys_and_properties(cluster):
    topic = cluster.name()

    text = cluster.output(
        *("message", "send", topic, "grüße", "--tag", "TagA", "--key", "k1", "--key", "k2"),
        *("--property", "color=red", "--property", "note=a=b"),
    )

    (message,) = stored(cluster, topic)
    assert text == f"{message['message_id']}  broker-a, queue {message['queue_id']}, offset 0\n"
    assert message["body"] == "grüße"
    assert (message["tag"], message["keys"]) == ("TagA", ["k1", "k2"])
    assert message["properties"]["color"] == "red"
    assert message["properties"]["note"] == "a=b"


def test_send_tells_in_json_where_it_is(cluster):
    topic = cluster.name()

    value = cluster.json("message", "send", topic, "hello")

    (message,) = stored(cluster, topic)
    assert value["status"] == "SEND_OK"
    assert value["queue_offset"] == 0
    assert value["message_id"] == message["message_id"]
    assert value["offset_id"] == message["offset_id"]


def test_send_makes_a_message_of_each_line_of_input(cluster):
    topic = cluster.name()

    text = cluster.output("message", "send", topic, text="one\ntwo\r\n\nthree")
    as_json = cluster.output("message", "send", topic, "--output", "json", text="four\n")

    assert text == f"3 messages sent to {topic}\n"
    assert json.loads(as_json)["status"] == "SEND_OK"
    assert sorted(one["body"] for one in stored(cluster, topic)) == ["four", "one", "three", "two"]


def test_messages_with_one_order_key_are_in_one_queue_in_order(cluster):
    topic = cluster.create(cluster.name(), queues=4)
    bodies = [f"step {number}" for number in range(10)]

    cluster.output("message", "send", topic, "--order-key", "order-17", text="\n".join(bodies))

    messages = stored(cluster, topic)
    assert len({one["queue_id"] for one in messages}) == 1
    assert [one["body"] for one in messages] == bodies


def test_a_delayed_message_comes_later(cluster):
    topic = cluster.create(cluster.name(), queues=1)
    begin = time.time()

    cluster.output("message", "send", topic, "later", "--delay-level", 1)
    at_once = cluster.json("topic", "stats", topic)["queues"][0]["messages"]
    cluster.command("message", "tail", topic, "--from", "earliest", "--count", 1)

    assert at_once == 0 or time.time() - begin > 1
    (message,) = stored(cluster, topic)
    assert message["store_ms"] / 1000 >= begin + 0.99


def test_send_refuses_what_no_broker_takes(cluster):
    no_name = cluster.command("message", "send", "bad topic", "x")
    no_body = cluster.command("message", "send", "Orders", "")
    no_pair = cluster.command("message", "send", "Orders", "x", "--property", "nonsense")
    reserved = cluster.command("message", "send", "Orders", "x", "--property", "TAGS=x")

    assert isinstance(no_name.exception, InvalidMessageError)
    assert isinstance(no_body.exception, InvalidMessageError)
    assert no_pair.exit_code == 2
    assert "NAME=VALUE" in no_pair.stderr
    assert isinstance(reserved.exception, InvalidMessageError)


def test_send_works_as_a_process_with_a_pipe(cluster):
    topic = cluster.name()
    command = [str(ORBITMQ), "message", "send", topic]
    environment = {**os.environ, "ORBITMQ_NAMESRV_ADDR": cluster.namesrv}

    result = subprocess.run(
        command, input="a\nb\n", env=environment, capture_output=True, text=True, check=False
    )

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"2 messages sent to {topic}\n"


@pytest.mark.parametrize("command", ["send", "tail", "query"])
def test_nobody_at_the_address_is_one_clear_line_and_exit_code_3(command):
    options = {"send": ["x"], "query": ["--key", "k"]}.get(command, [])

    result = run("message", command, "Orders", *options, "--namesrv", "127.0.0.1:1")

    assert result.returncode == 3
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert "127.0.0.1:1: name server: no connection" in result.stderr
    assert "orbitmq up" in result.stderr


# --- tail ---


@contextmanager
def tail_process(cluster: Cluster, topic: str, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a tail and wait until it watches."""
    command = [str(ORBITMQ), "message", "tail", topic, "--namesrv", cluster.namesrv, *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert f"watching {topic}" in process.stderr.readline()
            yield process
        finally:
            process.kill()


def test_tail_shows_what_comes_and_ends_at_ctrl_c(cluster):
    topic = cluster.create(cluster.name(), queues=2)
    cluster.send(topic, "before")
    with tail_process(cluster, topic) as process:
        cluster.send(topic, "hello", tag="TagA", keys=["k1"])
        first = process.stdout.readline()
        cluster.send(topic, "there")
        second = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)

    assert first.rstrip().endswith("TagA k1  hello")
    assert re.search(r"  broker-a/[01]@\d  ", first)
    assert second.rstrip().endswith("-  there")
    assert (process.returncode, out) == (0, "")
    assert err == "orbitmq: 2 messages shown\n"


def test_tail_of_wanted_tags_stops_after_a_count(cluster):
    topic = cluster.create(cluster.name(), queues=2)
    options = ["--tags", "TagA || TagC", "--count", "2", "--output", "json"]
    with tail_process(cluster, topic, *options) as process:
        for tag in ("TagB", "TagA", "TagB", "TagC", "TagA"):
            cluster.send(topic, tag, tag=tag)
        out, _ = process.communicate(timeout=30)

    assert process.returncode == 0
    assert [one["tag"] for one in json_lines(out)] == ["TagA", "TagC"]


@pytest.mark.feature("F28")
def test_tail_of_what_an_expression_selects(cluster):
    topic = cluster.create(cluster.name(), queues=1)
    for price in (2, 4, 3, 5):
        given = ("--property", f"price={price}")
        cluster.command("message", "send", topic, f"for {price}", *given)

    shown = cluster.command(
        *("message", "tail", topic, "--sql", "price > 3 AND TAGS IS NULL", "--from", "earliest"),
        *("--count", 2, "--output", "json"),
    )

    assert [one["body"] for one in json_lines(shown.stdout)] == ["for 4", "for 5"]


def test_tail_by_an_expression_that_is_none_says_where(cluster):
    topic = cluster.create(cluster.name(), queues=1)

    wrong = cluster.command("message", "tail", topic, "--sql", "price >")
    both = cluster.command("message", "tail", topic, "--sql", "a = 1", "--tags", "A")

    assert isinstance(wrong.exception, Sql92SyntaxError)
    assert "not understood at character 8" in str(wrong.exception)
    assert both.exit_code == 2
    assert "exclude each other" in both.stderr


def test_a_tail_whose_reader_goes_away_ends(cluster):
    topic = cluster.create(cluster.name(), queues=1)
    with tail_process(cluster, topic) as process:
        cluster.send(topic, "one")
        assert "one" in process.stdout.readline()
        process.stdout.close()
        cluster.send(topic, "two")
        process.wait(30)
        errors = process.stderr.read()

    assert "Traceback" not in errors


def test_tail_from_the_beginning_or_a_time(cluster):
    topic = cluster.create(cluster.name(), queues=1)
    cluster.send(topic, "a", "b", "c")
    (_, second, _) = stored(cluster, topic)
    time.sleep(0.002)  # sleep: store times are milliseconds, and the next one is to be later
    cluster.send(topic, "d")
    *_, last = stored(cluster, topic)

    def bodies(start: object, count: int) -> list[str]:
        words = ["--from", start, "--count", count, "--output", "json"]
        return [one["body"] for one in json_lines(cluster.output("message", "tail", topic, *words))]

    assert bodies("earliest", 4) == ["a", "b", "c", "d"]
    assert bodies("now-1h", 1) == ["a"]
    assert bodies(last["store_ms"], 1) == ["d"]
    assert second["store_ms"] < last["store_ms"]


def test_tail_touches_no_group(cluster):
    topic, group = cluster.create(cluster.name(), queues=1), cluster.name("group")
    cluster.send(topic, "a")
    cluster.consume(topic, group, 1)
    cluster.send(topic, "b")
    groups = cluster.json("group", "list")

    cluster.output("message", "tail", topic, "--from", "earliest", "--count", 2)

    assert cluster.json("group", "list") == groups
    assert cluster.json("topic", "stats", topic)["groups"] == [group]
    assert cluster.consume(topic, group, 1) == ["b"]


def test_tail_of_an_unknown_topic_or_time_says_so(cluster):
    no_topic = cluster.command("message", "tail", "Nowhere")
    no_time = cluster.command("message", "tail", cluster.create(cluster.name()), "--from", "then")

    assert isinstance(no_topic.exception, NoRouteError)
    assert no_time.exit_code == 2
    assert "write a time" in no_time.stderr


@pytest.mark.parametrize(
    ("body", "shown"),
    [("x" * 100, "x" * BODY_SHOWN + "... (100 bytes)"), ("a\tb\x1b[31m", "a.b.[31m")],
    ids=["long", "control characters"],
)
def test_tail_shows_bodies_without_harm(cluster, body, shown):
    topic = cluster.create(cluster.name(), queues=1)
    cluster.send(topic, body)

    line = cluster.output("message", "tail", topic, "--from", "earliest", "--count", 1)

    assert line.rstrip("\n").endswith("  " + shown)


# --- get, query ---


def test_get_finds_a_message_by_either_id(cluster):
    topic = cluster.name()
    sent = cluster.send(topic, "hello", tag="TagA", keys=["k1"])[0]

    by_offset_id = cluster.json("message", "get", sent.offset_id)
    by_message_id = cluster.json("message", "get", sent.message_id, "--topic", topic)
    table = cluster.output("message", "get", sent.offset_id)

    assert by_offset_id == by_message_id
    assert by_offset_id["body"] == "hello"
    assert sent.message_id in table
    assert "property TAGS" in table


def test_get_of_nothing_has_exit_code_1_and_a_hint(cluster):
    result = cluster.command("message", "get", "7F0000010A0B0C0D0E0F")

    assert result.exit_code == 1
    assert "say --topic" in result.stderr


def test_query_finds_messages_by_key_and_time(cluster):
    topic = cluster.name()
    cluster.send(topic, "a", "b", keys=["k1"])
    cluster.send(topic, "c", keys=["k1", "k2"])

    def query(*options: object) -> list[str]:
        result = cluster.command("message", "query", topic, *options, "--output", "json")
        return sorted(one["body"] for one in json_lines(result.stdout))

    assert query("--key", "k1") == ["a", "b", "c"]
    assert query("--key", "k2") == ["c"]
    assert query("--key", "k1", "--from", "now-1h", "--to", "now") == ["a", "b", "c"]
    assert query("--key", "k1", "--to", "now-1h") == []
    assert len(query("--key", "k1", "--max", 1)) == 1
    table = cluster.output("message", "query", topic, "--key", "k2")
    assert "k1 k2" in table


def test_query_without_a_hit_has_exit_code_1(cluster):
    topic = cluster.create(cluster.name())

    result = cluster.command("message", "query", topic, "--key", "nothing")

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == f"orbitmq: no message with key nothing in {topic}\n"


def test_query_in_an_unknown_topic_says_so(cluster):
    result = cluster.command("message", "query", "Nowhere", "--key", "k")

    assert isinstance(result.exception, NoRouteError)


# --- delays ---


def test_send_with_a_delay_tells_the_handle_and_recall_takes_it(cluster):
    topic = cluster.name()

    text = cluster.output("message", "send", topic, "later", "--delay", "15m")
    told = cluster.json("message", "send", topic, "later", "--deliver-at", "now")

    handle = text.splitlines()[1].removeprefix("recall handle ")
    message_id = text.split()[0]
    recalled = cluster.output("message", "recall", topic, handle)
    assert recalled == f"{message_id} will not be delivered\n"
    assert told["recall_handle"] == "", "its time has come: it does not wait"


@pytest.mark.parametrize("text", ["soon", "5", "5 m", "-5s"])
def test_a_delay_that_is_none_is_told(cluster, text):
    shown = cluster.command("message", "send", "T", "x", f"--delay={text}")

    assert shown.exit_code == 2
    assert "500ms, 90s, 15m, 2h or 1d" in shown.output
