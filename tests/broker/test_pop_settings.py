"""Every setting of pop consumption and of assignment, from a broker.conf to what it changes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.pop.test_assignment import assigned, world_of
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.pop.check_point import decode_check_point
from orbitmq.broker.pop.revive import AGAIN_SECONDS
from orbitmq.wire.codes import ResponseCode
from pop_world import GROUP, INVISIBLE_MS, TOPIC, PopWorld

POP_FIELDS = (
    *("revive_ms", "pop_polls_each", "pop_polls_max", "pop_buffer", "pop_buffer_stay_ms"),
    *("pop_buffer_timeout_ms", "pop_buffer_size", "pop_buffer_steps", "pop_batch_ack"),
    *("retry_topic_v2", "retry_topic_both", "pop_retry_percent", "pop_actual_retry_topic"),
    *("pop_in_flight_limit", "pop_in_flight_max", "pop_init_in_memory", "pop_order_notify"),
    *("pop_give_up", "server_assignment", "default_request_mode", "default_share_queues"),
)


def world_from(tmp_path: Path, lines: str) -> PopWorld:
    """Return a broker as a broker.conf with these lines makes it."""
    file = tmp_path / "broker.conf"
    file.write_text(lines + "\n")
    config = BrokerConfig.load(file, {"storePathRootDir": tmp_path / "other"})
    given = {name: getattr(config, name) for name in POP_FIELDS}
    return world_of(tmp_path / "store", "a", "bb", "ccc", "dddd", **given)


def retries(world: PopWorld) -> object:
    world.send("a")
    world.pop()
    world.pass_time(INVISIBLE_MS + 4_000)
    names = (f"%RETRY%{GROUP}{sign}{TOPIC}" for sign in "_+")
    return tuple(world.store.max_offset(name, 0) for name in names)


def first_of_retry(world: PopWorld) -> object:
    retries(world)
    world.send("new")
    (message,) = world.pop(max_msg_nums=1).messages
    return message.body


def older_retries(world: PopWorld) -> object:
    world.config.retry_topic_v2 = False
    retries(world)
    world.config.retry_topic_v2 = True
    return any(world.pop().bodies for _ in range(60))


def topic_of_retry(world: PopWorld) -> object:
    retries(world)
    return world.pop().messages[0].record.topic


def waiting(world: PopWorld) -> object:
    client = world.connect()
    command = world.pop_command(poll_time=15_000)
    world.handler.on_commands(client, [command])  # type: ignore[list-item,arg-type]
    world.handler.on_commands(client, [world.pop_command(poll_time=15_000)])  # type: ignore[list-item,arg-type]
    world.turn()
    return [answer.code for answer in client.take()]


def written(world: PopWorld) -> object:
    """Return after how many seconds the check points of two pops are written."""
    world.send("a", "b", queue_id=0)
    for _ in range(2):
        world.pop(max_msg_nums=1, invisible_time=50_000)
    seconds: list[int] = []
    for second in range(30):
        seconds += [second] * (len(world.written()) - len(seconds))
        world.pass_time(1_000)
    return seconds


def acks_written(world: PopWorld) -> object:
    world.send("a", "b", "c", queue_id=0)
    for message in world.pop(invisible_time=50_000).messages[:2]:
        world.ack(message)
    world.pass_time(15_000)
    return [record.tags for _, record in world.written()]


def in_flight(world: PopWorld) -> object:
    world.send("a", "b", queue_id=0)
    return [len(world.pop(max_msg_nums=1).messages) for _ in range(2)]


def from_end(world: PopWorld) -> object:
    world.send("a", "b", queue_id=0)
    return world.pop(init_mode=1).bodies


def order_timers(world: PopWorld) -> object:
    world.send("a", queue_id=0)
    world.pop(order=True)
    return len(world.pops._order_timers._timers)


def tries(world: PopWorld) -> object:
    world.send("a", queue_id=0)
    world.pop()
    point = decode_check_point(world.written()[0][1].body)
    point.puts = str(len(AGAIN_SECONDS))
    world.pops.revive.tick()
    world.pops.revive._put_again(world.pops.revive._queues[0], point, 0)
    world.settle()
    return len(world.written())


def assignment(world: PopWorld) -> object:
    rows = assigned(world, "bb")["messageQueueAssignments"]
    return json.dumps([(row["messageQueue"]["queueId"], row["mode"]) for row in rows])


FULL = ResponseCode.POLLING_FULL
MERGE = "enablePopBufferMerge=true"
CASES: list[tuple[str, Callable[[PopWorld], object], object, object]] = [
    ("reviveInterval=100000", retries, (1, 0), (0, 0)),
    ("popPollingSize=0", waiting, [], [FULL]),
    ("maxPopPollingSize=0", waiting, [], [FULL, FULL]),
    (MERGE, written, [0, 0], [10, 10]),
    (f"{MERGE}\npopCkStayBufferTime=5000", written, [0, 0], [5, 5]),
    (f"{MERGE}\npopCkStayBufferTimeOut=45000", written, [0, 0], [5, 5]),
    (f"{MERGE}\npopCkMaxBufferSize=0", written, [0, 0], [0, 10]),
    (f"{MERGE}\npopCkOffsetMaxQueueSize=1", written, [0, 0], [0, 10]),
    (f"{MERGE}\nenablePopBatchAck=true", acks_written, ["ck", "ack", "ack"], ["ck", "bAck"]),
    ("enableRetryTopicV2=true", retries, (1, 0), (0, 1)),
    ("retrieveMessageFromPopRetryTopicV1=false", older_retries, True, False),
    ("popFromRetryProbability=100", first_of_retry, None, "a"),
    ("popFromRetryProbability=0", first_of_retry, None, "new"),
    ("popResponseReturnActualRetryTopic=true", topic_of_retry, TOPIC, f"%RETRY%{GROUP}_{TOPIC}"),
    ("enablePopMessageThreshold=true\npopInflightMessageThreshold=0", in_flight, [1, 1], [1, 0]),
    ("enablePopMessageThreshold=true", in_flight, [1, 1], [1, 1]),
    ("initPopOffsetByCheckMsgInMem=false", from_end, ["a", "b"], ["b"]),
    ("enableNotifyAfterPopOrderLockRelease=false", order_timers, 1, 0),
    ("skipWhenCKRePutReachMaxTimes=true", tries, 2, 1),
    (
        "serverLoadBalancerEnable=false",
        assignment,
        '[[1, "PULL"]]',
        '[[0, "PULL"], [1, "PULL"], [2, "PULL"], [3, "PULL"]]',
    ),
    ("defaultMessageRequestMode=POP", assignment, '[[1, "PULL"]]', '[[-1, "POP"]]'),
    (
        "defaultMessageRequestMode=POP\ndefaultPopShareQueueNum=1",
        assignment,
        '[[1, "PULL"]]',
        '[[1, "POP"], [2, "POP"]]',
    ),
]


@pytest.mark.parametrize(
    ("lines", "look", "without", "expected"), CASES, ids=[case[0] for case in CASES]
)
def test_setting_makes_a_difference(
    tmp_path: Path,
    lines: str,
    look: Callable[[PopWorld], object],
    without: object,
    expected: object,
) -> None:
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
    with world_from(tmp_path / "with", lines) as world:
        assert look(world) == expected
    if without is not None:
        with world_from(tmp_path / "without", "") as world:
            assert look(world) == without
