"""One queue fetched from a scripted broker: what is asked where, and how long failures wait."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from async_run import run_async, until
from orbitmq.client.consumer.config import ConsumerConfig, Model
from orbitmq.client.consumer.context import ConsumerContext
from orbitmq.client.consumer.fetcher import QueueFetcher
from orbitmq.client.consumer.offset_store import RemoteOffsets
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.subscription import subscription
from orbitmq.client.core.broker_api import PullResult, PullStatus
from orbitmq.clock import SystemClock
from orbitmq.errors import RequestTimeoutError, ResponseError, UnreachableError
from orbitmq.format.properties import encode_properties
from orbitmq.format.record import encode_record
from orbitmq.message import LOOPBACK, AppendRequest
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.headers.pull import PullHeader

QUEUE = MessageQueue("Orders", "broker-a", 0)


def record(offset: int, topic: str = "Orders", **properties: str) -> bytes:
    request = AppendRequest(topic, 0, b"body%d" % offset, encode_properties(properties))
    return encode_record(
        request, queue_offset=offset, log_offset=offset * 200, store_ms=1, store_host=LOOPBACK
    )


def found(*records: bytes, next_offset: int, broker_id: int = 0) -> PullResult:
    body = b"".join(records)
    return PullResult(PullStatus.FOUND, next_offset, 0, 100, broker_id, body, "broker-a")


def empty(status: PullStatus, next_offset: int) -> PullResult:
    return PullResult(status, next_offset, 5, 50, 0, b"", "broker-a")


class Script:
    """A core whose broker answers from a list, and then not at all."""

    def __init__(self, *answers: PullResult | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, PullHeader]] = []
        self.heartbeats = 0
        self.clock = SystemClock()
        self.brokers = self.routes = self

    async def pull(
        self, address: str, header: PullHeader, *, timeout_ms: float, lite: bool
    ) -> PullResult:
        self.asked.append((address, header))
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def find_address(self, broker_name: str, topic: str, broker_id: int = 0) -> str:
        return {0: "primary:1", 1: "replica:1"}.get(broker_id, "primary:1")

    async def heartbeat(self) -> int:
        self.heartbeats += 1
        return 1


class Run:
    """One fetcher, run until a condition holds."""

    def __init__(
        self, script: Script, expression: str = "*", *, paused: bool = False, **given: Any
    ) -> None:
        given.setdefault("pull_failed_wait_ms", 1)
        self.script, self.paused = script, paused
        config = ConsumerConfig(group="demo", **given)
        offsets = RemoteOffsets("demo", script, script)
        topics = {topic: subscription(topic, expression, 7) for topic in ("Orders", "%RETRY%demo")}
        self.context = ConsumerContext(script, config, offsets, topics)
        self.messages: list[Any] = []
        self.illegal: list[int] = []

    def until(self, condition: Callable[["Run"], bool], queue: MessageQueue = QUEUE) -> "Run":
        async def main() -> None:
            self.held = ProcessQueue(queue, 0, self.script.clock)
            self.resumed = asyncio.Event()
            if not self.paused:
                self.resumed.set()
            fetcher = QueueFetcher(
                self.context,
                self.held,
                resumed=self.resumed,
                queue_count=lambda topic: 2,
                on_messages=lambda held, messages: self.messages.extend(messages),
                on_illegal_offset=self._illegal,
            )
            task = asyncio.ensure_future(fetcher.run())
            await until(lambda: condition(self))
            task.cancel()
            await asyncio.wait([task])

        run_async(main, seconds=10)
        return self

    def _illegal(self, held: ProcessQueue, offset: int) -> None:
        self.illegal.append(offset)
        held.drop()


def asked(count: int) -> Callable[[Run], bool]:
    return lambda run: len(run.script.asked) >= count


def test_pulls_go_on_behind_what_came():
    script = Script(found(record(0), record(1), next_offset=2), found(record(2), next_offset=5))

    run = Run(script).until(asked(3))

    assert [header.queue_offset for _, header in script.asked] == [0, 2, 5]
    assert [message.body for message in run.messages] == [b"body0", b"body1", b"body2"]
    assert run.messages[0].properties["MAX_OFFSET"] == "100"
    assert run.messages[0].broker_name == "broker-a"


def test_the_next_pull_goes_where_the_last_answer_said():
    script = Script(found(record(0), next_offset=1, broker_id=1), found(record(1), next_offset=2))

    Run(script).until(asked(3))

    assert [address for address, _ in script.asked] == ["primary:1", "replica:1", "primary:1"]


def test_a_replica_that_does_not_answer_is_left_again():
    script = Script(found(record(0), next_offset=1, broker_id=1), RequestTimeoutError("r", "late"))

    Run(script).until(asked(3))

    assert [address for address, _ in script.asked] == ["primary:1", "replica:1", "primary:1"]


def test_an_offset_that_is_not_there_is_reported_and_the_loop_ends():
    run = Run(Script(empty(PullStatus.OFFSET_ILLEGAL, 5))).until(lambda run: bool(run.illegal))

    assert run.illegal == [5]


@pytest.mark.parametrize("status", [PullStatus.NO_NEW, PullStatus.NO_MATCH])
def test_an_empty_answer_moves_the_consumer_offset_when_nothing_is_held(status):
    run = Run(Script(empty(status, 9))).until(asked(2))

    assert run.held.progress == 9
    assert (run.script.asked[1][1].sys_flag, run.script.asked[1][1].commit_offset) == (3, 9)


def test_an_empty_answer_does_not_pass_a_message_that_is_still_handled():
    run = Run(Script(found(record(0), next_offset=1), empty(PullStatus.NO_MATCH, 9))).until(
        asked(3)
    )

    assert run.held.progress is None
    assert run.held.consumer_offset == 0
    assert [header.sys_flag for _, header in run.script.asked] == [2, 2, 2]


def test_messages_with_another_tag_are_not_handed_on():
    script = Script(found(record(0, TAGS="BB"), record(1, TAGS="Aa"), next_offset=2))

    run = Run(script, "Aa").until(asked(2))

    assert [message.queue_offset for message in run.messages] == [1]


def test_a_message_of_the_retry_topic_shows_its_own_topic():
    retry = MessageQueue("%RETRY%demo", "broker-a", 0)
    script = Script(found(record(0, "%RETRY%demo", RETRY_TOPIC="Orders"), next_offset=1))

    run = Run(script).until(asked(2), retry)

    assert run.messages[0].topic == "Orders"


@pytest.mark.parametrize(
    ("failure", "heartbeats"),
    [
        pytest.param(ResponseError(24, "no subscription"), 1, id="a broker that forgot us"),
        pytest.param(ResponseError(25, "old subscription"), 1, id="an old subscription"),
        pytest.param(ResponseError(215, "slow down"), 0, id="flow control"),
        pytest.param(ResponseError(1, "broken"), 0, id="any other answer"),
        pytest.param(UnreachableError("b", "gone"), 0, id="no connection"),
    ],
)
def test_a_failed_pull_is_repeated_at_the_same_place(failure, heartbeats):
    script = Script(failure, found(record(0), next_offset=1))

    run = Run(script).until(asked(3))

    assert [header.queue_offset for _, header in script.asked] == [0, 0, 1]
    assert script.heartbeats == heartbeats
    assert len(run.messages) == 1


def test_a_broken_body_is_a_failed_pull():
    broken = found(record(0)[:-3], next_offset=1)

    run = Run(Script(broken, found(record(0), next_offset=1))).until(asked(3))

    assert len(run.messages) == 1


def test_the_expression_goes_along_if_that_is_configured():
    script = Script()

    Run(script, "TagA", expression_in_pull=True).until(asked(1))

    header = script.asked[0][1]
    assert (header.subscription, header.sys_flag) == ("TagA", 6)


def test_no_offset_is_told_by_a_broadcasting_pull():
    script = Script(empty(PullStatus.NO_MATCH, 9))

    Run(script, model=Model.BROADCASTING).until(asked(2))

    assert (script.asked[1][1].sys_flag, script.asked[1][1].commit_offset) == (2, 0)


@pytest.mark.parametrize(
    ("limit", "pulls"),
    [
        pytest.param({"prefetch_count": 3}, 2, id="4 are more than 3"),
        pytest.param({"prefetch_count": 4}, 3, id="4 are not more than 4"),
        pytest.param({"prefetch_bytes": 19}, 2, id="20 bytes are more than 19"),
        pytest.param({"prefetch_bytes": 20}, 3, id="20 bytes are not more than 20"),
        pytest.param({"prefetch_span": 2}, 2, id="3 is 3 ahead of 0"),
        pytest.param({"prefetch_span": 3}, 3, id="not more than 3 ahead"),
    ],
)
def test_no_more_is_pulled_when_more_is_held_than_the_limit(limit, pulls):
    answers = [found(record(n), record(n + 1), next_offset=n + 2) for n in (0, 2, 4, 6)]

    run = Run(Script(*answers), **limit).until(lambda run: run.held.count >= 2 * pulls)

    assert (len(run.script.asked), run.held.count) == (pulls, 2 * pulls)


def test_the_limit_of_a_topic_is_shared_by_its_queues():
    script = Script(found(*(record(n) for n in range(6)), next_offset=6))

    run = Run(script, prefetch_topic_count=10).until(lambda run: run.held.count == 6)

    assert len(script.asked) == 1  # 10 for two queues: 6 of them are too many for one
    assert run.held.count == 6


def test_nothing_is_pulled_while_it_is_paused_and_all_when_it_is_resumed():
    script = Script(found(record(0), next_offset=1))
    seen: list[int] = []

    def resume_after_some_turns(run: Run) -> bool:
        seen.append(len(script.asked))
        if len(seen) == 5:
            run.resumed.set()
        return len(script.asked) == 2

    Run(script, paused=True).until(resume_after_some_turns)

    assert seen[:5] == [0] * 5


def test_an_orderly_queue_is_not_pulled_without_its_lock():
    script = Script(found(record(0), next_offset=1))
    count = 0

    def some_turns(run: Run) -> bool:
        nonlocal count
        count += 1
        return count > 20

    Run(script, orderly=True).until(some_turns)

    assert script.asked == []
