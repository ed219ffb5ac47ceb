"""Pulls: which are refused, what is found, and who waits."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from broker_world import FakeConnection
from message_replay import (
    SENDS,
    MessageWorld,
    pull_command,
    recorded,
    records_of,
    replay,
    send_command,
    without_port,
)
from orbitmq.broker.processors.pull import DISPATCH_MS_MAX, _code
from orbitmq.broker.tables.clients import ClientConnection
from orbitmq.message import GetStatus
from orbitmq.units import HOUR_MS
from orbitmq.wire.bodies.heartbeat import Subscription
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pull import PullAnswer, PullHeader
from orbitmq.wire.pull_flags import PullFlag

SUSPEND = PullFlag.SUBSCRIPTION | PullFlag.SUSPEND
COMMIT = PullFlag.SUBSCRIPTION | PullFlag.COMMIT


def subscribe(
    world: MessageWorld,
    client: FakeConnection,
    topic: str = "Orders",
    expression: str = "*",
    *,
    group: str = "Cid",
    version: int = 10,
    model: str = "CLUSTERING",
    kind: str = "TAG",
) -> None:
    """Let a consumer be online, as its heartbeat would."""
    subscription = Subscription(
        topic=topic, sub_string=expression, sub_version=version, expression_type=kind
    )
    world.context.consumers.register(
        group,
        ClientConnection(
            connection=client,
            client_id="client",
            language="JAVA",
            version=479,
            heard_ms=world.clock.now_ms(),
        ),
        consume_type="CONSUME_PASSIVELY",
        model=model,
        from_where="CONSUME_FROM_FIRST_OFFSET",
        subscriptions=[subscription],
    )
    client.take()  # it is told that it is there


def tagged(tag: str) -> str:
    return f"UNIQ_KEY\x01K\x02TAGS\x01{tag}\x02"


def fill(world: MessageWorld, *tags: str, queue_id: int = 0) -> None:
    client = world.connect()
    for tag in tags:
        replay(
            world,
            client,
            send_command(body=tag.encode(), properties=tagged(tag), queue_id=queue_id),
        )


def answered(answer: Command) -> tuple[int, str | None, PullAnswer]:
    return answer.code, answer.remark, PullAnswer.read(answer.fields)


# --- recordings ---


def test_the_java_pull_consumer_is_answered_as_recorded(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client, producer = world.connect(), world.connect()
        count = 0
        for ask, wanted in recorded("java-json/pull-consumer", *SENDS, 11):
            request = ask.command
            if request.code != 11:
                replay(world, producer, request)
                continue
            if int(request.fields["sysFlag"]) & PullFlag.SUSPEND:
                assert world.tell(client, replace(request)) == []
                continue  # woken by the next recorded send
            answer = replay(world, client, request)
            count += 1
            assert answer is not None
            assert answer.code == wanted.command.code
            assert without_port(answer.remark) == without_port(wanted.command.remark)
            assert answer.fields == wanted.command.fields
            ours = [(r.body, r.property_map) for r in records_of(answer.body)]
            theirs = [(r.body, r.property_map) for r in records_of(wanted.command.body)]
            assert ours == theirs
        assert count == 9
        (woken,) = client.take()
        assert [record.body for record in records_of(woken.body)] == [b"wake"]


def test_faulty_pulls_are_refused_as_recorded(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        for number in range(9):
            given = "colour\x01rot\x02" if number == 0 else ""
            replay(world, client, send_command("GwBasicJ", b"%d" % number, properties=given))
        replay(world, client, send_command("GwPushJ"))
        subscribe(world, client, "GwBasicJ", group="GwRawHb", version=1794770469981)
        count = 0
        for ask, wanted in recorded("raw/answers", 11):
            request = ask.command
            answer = replay(world, client, request)
            assert answer is not None
            assert answer.code == wanted.command.code, request
            count += 1
            if "java." in (wanted.command.remark or ""):
                assert answer.remark
                continue
            assert without_port(answer.remark) == without_port(wanted.command.remark)
            assert answer.fields == wanted.command.fields
            assert len([*records_of(answer.body)]) == len([*records_of(wanted.command.body)])
        assert count >= 18


# --- checks ---


def test_a_broker_that_is_not_readable_answers_no_pull(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        fill(world, "A")
        world.config.take(world.config.changed({"brokerPermission": "2"}))
        answer = replay(world, world.connect(), pull_command())
        assert (answer.code, answer.fields) == (16, {"forbiddenType": "1"})


def test_group_and_topic_can_forbid_pulls(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        fill(world, "A")
        client = world.connect()
        groups, topics = world.context.groups, world.context.topics
        group = groups.get_or_create("Cid")
        groups.put(msgspec.structs.replace(group, consume_enable=False))
        answer = replay(world, client, pull_command())
        assert (answer.code, answer.fields) == (16, {"forbiddenType": "2"})
        groups.put(group)
        topics.put(msgspec.structs.replace(topics.get("Orders"), perm=2))
        answer = replay(world, client, pull_command())
        assert (answer.code, answer.fields) == (16, {"forbiddenType": "3"})


def test_broadcast_and_forbidden_topics_are_checked_of_groups_online(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        fill(world, "A")
        client = world.connect()
        groups = world.context.groups
        subscribe(world, client, model="BROADCASTING")
        by_heartbeat = pull_command(sysFlag=0, subVersion=10)
        assert replay(world, client, by_heartbeat).code == 0
        group = groups.get("Cid")
        groups.put(msgspec.structs.replace(group, consume_broadcast_enable=False))
        assert replay(world, client, by_heartbeat).fields == {"forbiddenType": "4"}
        groups.put(group)
        groups.set_forbidden("Cid", "Orders", 1 << 2)
        assert replay(world, client, by_heartbeat).fields == {"forbiddenType": "5"}


def test_old_clients_without_a_version_of_their_subscription_are_served(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        fill(world, "A")
        client = world.connect()
        subscribe(world, client, version=1794770469981000000)  # nanoseconds, as Go counts
        assert replay(world, client, pull_command(sysFlag=0, subVersion=0)).code == 0


@pytest.mark.feature("F28")
def test_without_the_setting_sql_subscriptions_are_refused_with_words(tmp_path: Path) -> None:
    with MessageWorld(tmp_path, property_filter=False) as world:
        fill(world, "A")
        client = world.connect()
        subscribe(world, client, kind="SQL92", expression="a > 1")
        for request in (
            pull_command(sysFlag=0),
            pull_command(expressionType="SQL92", subscription="a > 1"),
        ):
            answer = replay(world, client, request)
            assert answer.code == 1
            assert "SQL92" in (answer.remark or "")


@pytest.mark.feature("F28")
def test_an_expression_of_a_group_that_is_none_is_refused_with_the_place(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        fill(world, "A")
        client = world.connect()
        for kind, expression, words in (("SQL92", "a >", "character 4"), ("XYZ", "a", "type XYZ")):
            group = f"Of{kind}"
            subscribe(world, client, group=group, kind=kind, expression=expression)
            answer = replay(world, client, pull_command(sysFlag=0, group=group))
            assert answer.code == 27
            assert words in (answer.remark or "")


@pytest.mark.feature("F28")
def test_properties_are_filtered_by_what_the_group_subscribed_to(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        producer, client = world.connect(), world.connect()
        for number in range(6):
            given = f"n\x01{number}\x02" if number != 2 else ""
            replay(world, producer, send_command(body=b"%d" % number, properties=given))
        subscribe(world, client, kind="SQL92", expression="n BETWEEN 1 AND 4 AND n <> 3")

        by_group = replay(world, client, pull_command(sysFlag=0))
        by_request = replay(
            world, client, pull_command(expressionType="SQL92", subscription="n = 5 OR n = 0")
        )
        nothing = replay(world, client, pull_command(expressionType="SQL92", subscription="n > 9"))

        assert [record.body for record in records_of(by_group.body)] == [b"1", b"4"]
        assert [record.body for record in records_of(by_request.body)] == [b"0", b"5"]
        assert by_group.fields["nextBeginOffset"] == "6"
        assert (nothing.code, nothing.fields["nextBeginOffset"]) == (20, "6")


@pytest.mark.feature("F28")
def test_a_pull_passes_over_hundreds_of_messages_that_its_expression_does_not_want(
    tmp_path: Path,
) -> None:
    with MessageWorld(tmp_path) as world:
        producer, client = world.connect(), world.connect()
        for number in range(300):
            given = f"n\x01{number}\x02price\x01{number / 4}\x02"
            replay(world, producer, send_command(body=b"%d" % number, properties=given))
        wanted = "price > 50.0 AND (n = 207 OR n = '250') OR n = 3"

        answer = replay(world, client, pull_command(expressionType="SQL92", subscription=wanted))

        assert [record.body for record in records_of(answer.body)] == [b"3", b"207", b"250"]
        assert answer.fields["nextBeginOffset"] == "300"


@pytest.mark.feature("F28")
def test_a_parked_pull_waits_for_a_message_that_its_expression_selects(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        producer, client = world.connect(), world.connect()
        replay(world, producer, send_command(body=b"first", properties="n\x010\x02"))
        wait = PullFlag.SUBSCRIPTION | PullFlag.SUSPEND
        parked = pull_command(
            sysFlag=int(wait), queueOffset=1, expressionType="SQL92", subscription="n > 3"
        )
        assert world.tell(client, parked) == []

        replay(world, producer, send_command(body=b"three", properties="n\x013\x02"))
        assert client.take() == []
        replay(world, producer, send_command(body=b"four", properties="n\x014\x02"))

        (woken,) = client.take()
        assert [record.body for record in records_of(woken.body)] == [b"four"]


# --- reading ---


@pytest.mark.feature("F26")
def test_tags_are_filtered_by_what_the_group_subscribed_to(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        fill(world, "A", "B", "C", "B", "A")
        client = world.connect()
        subscribe(world, client, expression="B || A")
        answer = replay(world, client, pull_command(sysFlag=0, subVersion=10))
        assert [record.body for record in records_of(answer.body)] == [b"A", b"B", b"B", b"A"]
        answer = replay(world, client, pull_command(subscription="C"))
        assert [record.body for record in records_of(answer.body)] == [b"C"]
        assert PullAnswer.read(answer.fields).next_begin_offset == 5


def test_limits_of_the_store_and_of_the_request_hold(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        fill(world, *(f"T{number}" for number in range(40)))
        client = world.connect()
        for asked, wanted in ((3, 3), (0, 1), (-5, 1), (1 << 40, 32)):
            answer = replay(world, client, pull_command(maxMsgNums=asked))
            assert len(list(records_of(answer.body))) == wanted


@pytest.mark.parametrize(("queue_id", "code"), [(-1, 29), (0, 0), (3, 19), (4, 29)])
def test_only_queues_of_the_topic_can_be_pulled(tmp_path: Path, queue_id: int, code: int) -> None:
    with MessageWorld(tmp_path) as world:
        fill(world, "A")
        assert world.context.topics.get("Orders").read_queue_nums == 4  # type: ignore[union-attr]

        assert replay(world, world.connect(), pull_command(queueId=queue_id)).code == code


@pytest.mark.parametrize(
    "name", ["queueOffset", "maxMsgNums", "commitOffset", "suspendTimeoutMillis", "subVersion"]
)
def test_numbers_out_of_any_range_do_no_harm(tmp_path: Path, name: str) -> None:
    with MessageWorld(tmp_path) as world:
        fill(world, "A")
        client = world.connect()

        codes = [
            replay(world, client, pull_command(**{name: value})).code
            for value in (-(1 << 63), (1 << 63) - 1, 1 << 70, "")
        ]

        taken = ResponseCode.PULL_OFFSET_MOVED if name == "queueOffset" else ResponseCode.SUCCESS
        assert codes == [taken, taken, ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_ERROR]


# --- offsets ---


def test_the_offset_in_a_pull_is_committed_and_where_it_pulled_is_remembered(
    tmp_path: Path,
) -> None:
    with MessageWorld(tmp_path) as world:
        fill(world, "A", "B", "C")
        client, offsets = world.connect(), world.context.offsets
        replay(world, client, pull_command(queueOffset=2, commitOffset=1))
        assert offsets.get("Cid", "Orders", 0) == -1  # without the flag it means nothing
        replay(world, client, pull_command(queueOffset=2, commitOffset=1, sysFlag=int(COMMIT)))
        assert offsets.get("Cid", "Orders", 0) == 1
        assert offsets.pull_offset("Cid", "Orders", 0) == 3
        replay(world, client, pull_command(queueOffset=2, commitOffset=-1, sysFlag=int(COMMIT)))
        assert offsets.get("Cid", "Orders", 0) == 1


def test_a_pending_reset_is_answered_21_once(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        fill(world, "A", "B", "C")
        client, offsets = world.connect(), world.context.offsets
        offsets.reset("Cid", "Orders", 0, 1)
        request = pull_command(queueOffset=3, commitOffset=3, sysFlag=int(COMMIT | SUSPEND))
        code, remark, fields = answered(replay(world, client, request))
        assert (code, remark, fields.next_begin_offset) == (21, "OFFSET_RESET", 1)
        assert (fields.min_offset, fields.max_offset) == (0, 3)
        assert offsets.get("Cid", "Orders", 0) == 1, (
            "what the consumer says is from before the reset"
        )
        answer = replay(world, client, pull_command(queueOffset=1))
        assert [record.body for record in records_of(answer.body)] == [b"B", b"C"]


@pytest.mark.feature("F85")
def test_a_replica_is_suggested_to_those_far_behind_only_if_the_broker_says_so(
    tmp_path: Path,
) -> None:
    with MessageWorld(tmp_path, store={"memory_bytes": 1, "in_memory_ratio": 1}) as world:
        fill(world, "A", "B", "C")
        client = world.connect()
        assert (
            answered(replay(world, client, pull_command(maxMsgNums=1)))[2].suggest_which_broker_id
            == 0
        )
        world.config.take(world.config.changed({"slaveReadEnable": "true"}))
        assert (
            answered(replay(world, client, pull_command(maxMsgNums=1)))[2].suggest_which_broker_id
            == 1
        )


# --- waiting ---


@pytest.mark.feature("F20")
def test_a_pull_waits_for_a_message_and_gets_it(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        fill(world, "A")
        client = world.connect()
        request = pull_command(queueOffset=1, sysFlag=int(SUSPEND))
        assert world.tell(client, request) == []
        assert world.context.long_poll.count == 1
        fill(world, "X", queue_id=1)
        assert client.take() == []
        fill(world, "B")
        (answer,) = client.take()
        assert [record.body for record in records_of(answer.body)] == [b"B"]
        assert world.context.long_poll.count == 0


def test_nobody_is_parked_for_longer_than_an_hour(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        fill(world, "A")
        request = pull_command(
            queueOffset=1, sysFlag=int(SUSPEND), suspendTimeoutMillis=(1 << 63) - 1
        )
        assert world.tell(world.connect(), request) == []
        assert world.context.long_poll.count == 1

        world.clock.advance(HOUR_MS)
        world.context.long_poll.deadlines.expire()

        assert world.context.long_poll.count == 0


def test_a_pull_of_a_queue_that_never_had_a_message_is_woken_by_the_first(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        fill(world, "A", queue_id=1)
        client = world.connect()
        assert world.tell(client, pull_command(queueId=3, sysFlag=int(SUSPEND))) == []
        fill(world, "B", queue_id=3)
        (answer,) = client.take()
        assert [record.body for record in records_of(answer.body)] == [b"B"]


def test_a_pull_from_behind_a_message_that_is_not_dispatched_yet_waits(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        assert [answer.code for answer in world.tell(client, send_command())] == [0]
        assert world.tell(client, pull_command(queueOffset=1, sysFlag=int(SUSPEND))) == []
        assert replay(world, world.connect(), pull_command(queueOffset=2)).code == 21
        fill(world, "B")
        (answer,) = client.take()
        assert [record.body for record in records_of(answer.body)] == [b"B"]


def test_a_pull_has_dispatched_what_it_may_read_and_nothing_for_the_sake_of_others(
    tmp_path: Path,
) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        world.tell(client, send_command(queue_id=1))
        assert [answer.code for answer in world.tell(client, pull_command(queueId=0))] == [19]
        assert world.store.max_offset("Orders", 1) == 0  # still not dispatched

        (answer,) = world.tell(client, pull_command(queueId=1))

        assert (answer.code, len(list(records_of(answer.body)))) == (0, 1)


def test_what_was_acknowledged_before_a_pull_came_is_read_although_dispatch_is_at_it(
    tmp_path: Path,
) -> None:
    """Also by a pull that does not want to wait, unless dispatch takes too long."""
    with MessageWorld(tmp_path) as world:
        client, busy = world.connect(), world.store._dispatch._running
        poll = world.context.long_poll
        world.tell(client, send_command())
        with busy:  # as while the dispatching thread has its turn
            assert world.tell(client, pull_command()) == []
        world.settle()
        (answer,) = client.take()
        assert len(list(records_of(answer.body))) == 1

        world.tell(client, send_command())
        with busy:
            assert world.tell(client, pull_command(queueOffset=1)) == []
            world.clock.advance(DISPATCH_MS_MAX - 1)
            poll.deadlines.expire()
            assert client.take() == []
            world.clock.advance(1)
            poll.deadlines.expire()
        assert [answer.code for answer in client.take()] == [19]


@pytest.mark.feature("F20")
def test_a_pull_in_vain_is_answered_at_its_time(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        fill(world, "A")
        client = world.connect()
        request = pull_command(queueOffset=1, sysFlag=int(SUSPEND), suspendTimeoutMillis=15_000)
        assert world.tell(client, request) == []
        world.later(14_999)
        assert client.take() == []
        world.later(1)
        (answer,) = client.take()
        assert answered(answer)[:2] == (19, "OFFSET_OVERFLOW_ONE")
        assert answered(answer)[2].next_begin_offset == 1


def test_messages_that_are_not_wanted_leave_a_pull_waiting_and_are_not_looked_at_again(
    tmp_path: Path,
) -> None:
    with MessageWorld(tmp_path) as world:
        fill(world, "A")
        client = world.connect()
        request = pull_command(queueOffset=1, sysFlag=int(SUSPEND), subscription="A")
        assert world.tell(client, request) == []
        fill(world, "B", "B")
        assert client.take() == []
        world.later(15_000)
        (answer,) = client.take()
        code, remark, fields = answered(answer)
        assert (code, remark, fields.next_begin_offset) == (20, "NO_MATCHED_MESSAGE", 3)


def test_a_wanted_message_behind_unwanted_ones_wakes_a_pull(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        fill(world, "A")
        client = world.connect()
        world.tell(client, pull_command(queueOffset=1, sysFlag=int(SUSPEND), subscription="A"))
        fill(world, "B", "A")
        (answer,) = client.take()
        assert [record.body for record in records_of(answer.body)] == [b"A"]
        assert answered(answer)[2].next_begin_offset == 3


def test_a_waiting_pull_commits_once_and_not_again_when_it_is_woken(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        fill(world, "A")
        client, offsets = world.connect(), world.context.offsets
        flags = int(SUSPEND | PullFlag.COMMIT)
        world.tell(client, pull_command(queueOffset=1, commitOffset=1, sysFlag=flags))
        assert offsets.get("Cid", "Orders", 0) == 1
        offsets.commit("Cid", "Orders", 0, 2)
        fill(world, "B")
        assert len(client.take()) == 1
        assert offsets.get("Cid", "Orders", 0) == 2


@pytest.mark.feature("F118")
@pytest.mark.parametrize(
    ("given", "wait_ms"),
    [
        ({}, 15_000),  # as the pull asks
        ({"long_polling": False}, 1_000),
        ({"long_polling": False, "short_polling_ms": 300}, 300),
        ({"short_polling_ms": 300}, 15_000),
    ],
)
def test_a_pull_waits_for_its_own_time_or_for_that_of_short_polling(
    tmp_path: Path, given: dict[str, Any], wait_ms: int
) -> None:
    with MessageWorld(tmp_path, **given) as world:
        fill(world, "A")
        client = world.connect()
        pull = pull_command(queueOffset=1, sysFlag=int(SUSPEND), suspendTimeoutMillis=15_000)
        assert world.tell(client, pull) == []
        world.later(wait_ms - 1)
        assert client.take() == []
        world.later(1)
        assert [answer.code for answer in client.take()] == [19]


def test_a_reset_and_a_deleted_topic_wake_those_who_wait(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        fill(world, "A", "B")
        client = world.connect()
        request = pull_command(queueOffset=2, sysFlag=int(SUSPEND))
        assert world.tell(client, request) == []
        world.context.offsets.reset("Cid", "Orders", 0, 1)
        world.context.long_poll.wake("Orders", 0)
        assert [answered(answer)[:2] for answer in client.take()] == [(21, "OFFSET_RESET")]
        assert world.tell(client, request) == []
        world.context.topics.delete("Orders")
        world.context.long_poll.wake("Orders")
        assert [answer.code for answer in client.take()] == [17]


def test_at_the_end_everybody_is_answered_and_nobody_waits_any_more(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        fill(world, "A")
        client = world.connect()
        request = pull_command(queueOffset=1, sysFlag=int(SUSPEND))
        assert world.tell(client, request) == []
        world.context.long_poll.stop()
        assert [answer.code for answer in client.take()] == [19]
        assert [answer.code for answer in world.tell(client, request)] == [19]


def test_statuses_of_the_store_all_have_a_code() -> None:
    header = PullHeader.read(pull_command(queueOffset=5).fields)
    codes = {status: _code(header, status) for status in GetStatus}
    assert codes[GetStatus.NO_MESSAGE_IN_QUEUE] == codes[GetStatus.NO_MATCHED_LOGIC_QUEUE] == 21
    assert set(codes.values()) == {0, 19, 20, 21}
