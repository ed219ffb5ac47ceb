"""Producers on asyncio: tries, failures, time, order."""

import asyncio
import time
from collections import Counter

import pytest

from async_run import run_async, until
from fake_cluster import FakeCluster, hang_up, refuse, silent
from orbitmq.client.core.config import ClientConfig
from orbitmq.client.core.message import Message
from orbitmq.client.producer.producer import AsyncProducer
from orbitmq.client.producer.send_engine import PendingSends
from orbitmq.client.producer.send_result import SendStatus
from orbitmq.client.producer.sending import RETRY_CODES, RetryRule, may_retry
from orbitmq.errors import (
    ClientClosedError,
    ConfigError,
    InvalidMessageError,
    NoRouteError,
    RequestTimeoutError,
    ResponseError,
    SendFailedError,
    TooManyRequestsError,
    UnreachableError,
)
from orbitmq.format.client_batch import decode_client_batch
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Encoding

MESSAGE = Message("T", b"hello", tag="TagA", keys=["k1"])


def run_with_producer(test, brokers=("broker-a",), *, queues=2, **settings):
    async def main():
        async with FakeCluster(list(brokers)) as cluster:
            cluster.add_topic("T", queues=queues)
            address = cluster.namesrv_address
            async with AsyncProducer(address, "PG", **settings) as producer:
                await test(cluster, producer)

    run_async(main)


def script(cluster: FakeCluster, *reactions) -> None:
    """Let the first tries, wherever they go, meet these reactions."""
    shared = list(reactions)
    for broker in cluster.brokers.values():
        broker.script = shared


async def warm_up(producer: AsyncProducer) -> None:
    """Let all connections be there before time is measured."""
    for _ in range(4):
        await producer.send(MESSAGE, timeout_ms=9000)


def all_sends(cluster: FakeCluster):
    return [request for broker in cluster.brokers.values() for request in broker.sends]


@pytest.mark.parametrize("encoding", Encoding)
def test_a_message_is_sent_and_its_place_is_known(encoding):
    async def test(cluster, producer):
        result = await producer.send(MESSAGE)

        assert result.status is SendStatus.OK
        assert result.queue.topic == "T"
        (request,) = cluster.brokers["broker-a"].sends
        assert (request.code, request.body) == (RequestCode.SEND_MESSAGE_V2, b"hello")
        assert request.fields["a"] == "PG"
        assert request.fields["n"] == "broker-a"
        assert result.message_id in request.fields["i"]

    run_with_producer(test, encoding=encoding)


def test_messages_go_round_all_queues():
    async def test(cluster, producer):
        results = [await producer.send(MESSAGE) for _ in range(12)]

        used = Counter(result.queue for result in results)
        assert len(used) == 4
        assert set(used.values()) == {3}

    run_with_producer(test, ["broker-a", "broker-b"])


# --- retries ---


@pytest.mark.parametrize(
    "failure", [hang_up, *(refuse(code) for code in sorted(RETRY_CODES - {1500}))]
)
def test_a_failed_try_is_repeated_on_another_broker_with_the_same_id(failure):
    async def test(cluster, producer):
        script(cluster, failure)

        result = await producer.send(MESSAGE)

        sends = all_sends(cluster)
        assert len(sends) == 2
        assert {request.fields["n"] for request in sends} == {"broker-a", "broker-b"}
        assert len({request.fields["i"] for request in sends}) == 1
        assert result.is_ok

    run_with_producer(test, ["broker-a", "broker-b"])


@pytest.mark.parametrize("code", [13, 26, 29, 3, 604])
def test_other_refusals_are_raised_at_once(code):
    async def test(cluster, producer):
        script(cluster, refuse(code, "because"))

        with pytest.raises(ResponseError, match="because") as caught:
            await producer.send(MESSAGE)
        assert caught.value.code == code
        assert len(all_sends(cluster)) == 1

    run_with_producer(test, ["broker-a", "broker-b"])


def test_after_three_tries_all_of_them_are_told():
    async def test(cluster, producer):
        script(cluster, refuse(2, "busy"), refuse(14, "no disk"), refuse(1, "broken"), refuse(1))

        with pytest.raises(SendFailedError) as caught:
            await producer.send(MESSAGE)

        attempts = caught.value.attempts
        assert [failure.code for _, failure in attempts] == [2, 14, 1]
        names = [name for name, _ in attempts]
        assert names[0] != names[1] != names[2]
        assert caught.value.__cause__ is attempts[-1][1]

    run_with_producer(test, ["broker-a", "broker-b"])


@pytest.mark.parametrize("retries", [0, 1, 4])
def test_the_number_of_tries_can_be_set(retries):
    async def test(cluster, producer):
        script(cluster, *[refuse(2)] * 10)

        with pytest.raises(SendFailedError):
            await producer.send(MESSAGE)
        assert len(all_sends(cluster)) == retries + 1

    run_with_producer(test, retries=retries)


def test_a_broker_that_is_gone_is_left_for_another():
    async def test(cluster, producer):
        await cluster.brokers["broker-a"].stop()

        results = [await producer.send(MESSAGE) for _ in range(6)]

        assert {result.queue.broker_name for result in results} == {"broker-b"}

    run_with_producer(test, ["broker-a", "broker-b"])


def test_all_tries_together_keep_to_the_time():
    async def test(cluster, producer):
        await warm_up(producer)
        before = len(all_sends(cluster))
        script(cluster, *[silent] * 10)
        started = time.monotonic()

        with pytest.raises(SendFailedError) as caught:
            await producer.send(MESSAGE, timeout_ms=100)

        assert time.monotonic() - started < 2.0
        assert isinstance(caught.value.attempts[0][1], RequestTimeoutError)
        assert len(all_sends(cluster)) == before + 1  # the first try had all the time there was

    run_with_producer(test, ["broker-a", "broker-b"])


def test_a_limit_for_each_try_leaves_time_for_the_next():
    async def test(cluster, producer):
        await warm_up(producer)
        before = len(all_sends(cluster))
        script(cluster, silent)

        result = await producer.send(MESSAGE)

        assert result.is_ok
        assert len(all_sends(cluster)) == before + 2

    run_with_producer(test, ["broker-a", "broker-b"], send_timeout_ms=9000, send_try_timeout_ms=250)


def test_a_timeout_can_be_given_for_one_message():
    async def test(cluster, producer):
        await warm_up(producer)
        script(cluster, *[silent] * 3)

        with pytest.raises(SendFailedError):
            await producer.send(MESSAGE, timeout_ms=50)

    run_with_producer(test)


def test_async_sends_are_repeated_without_an_answer_only():
    async def test(cluster, producer):
        script(cluster, hang_up)
        assert (await producer.send_async(MESSAGE)).is_ok
        script(cluster, refuse(2, "busy"))

        with pytest.raises(ResponseError, match="busy"):
            await producer.send_async(MESSAGE)

    run_with_producer(test, ["broker-a", "broker-b"])


def test_rules_of_retries():
    rule, async_rule = RetryRule(3), RetryRule(3, frozenset())

    for failure in (UnreachableError("a", "x"), RequestTimeoutError("a", "x")):
        assert may_retry(failure, rule)
        assert may_retry(failure, async_rule)
    assert not may_retry(TooManyRequestsError("a", "x"), rule)
    for code in (17, 14, 1, 2, 16, 204, 205, 1500):
        assert may_retry(ResponseError(code, ""), rule)
        assert not may_retry(ResponseError(code, ""), async_rule)
    assert not may_retry(ResponseError(13, ""), rule)
    assert not may_retry(ValueError(), rule)


@pytest.mark.parametrize("code", [10, 11, 12])
def test_stored_but_less_safely_is_a_result(code):
    async def test(cluster, producer):
        broker = cluster.brokers["broker-a"]
        broker.script = [lambda connection, request: broker.store(connection, request, code)]

        result = await producer.send(MESSAGE)

        assert not result.is_ok
        assert len(all_sends(cluster)) == 1

    run_with_producer(test)


def test_stored_less_safely_can_mean_another_try():
    async def test(cluster, producer):
        def late(connection, request):
            return cluster.brokers["broker-a"].store(connection, request, 10)

        script(cluster, late, late, late, late)

        result = await producer.send(MESSAGE)

        assert result.status is SendStatus.FLUSH_DISK_TIMEOUT
        assert len(all_sends(cluster)) == 3
        script(cluster, late)
        assert (await producer.send(MESSAGE)).is_ok
        script(cluster, late, refuse(13))  # stored once: not an error
        assert (await producer.send(MESSAGE)).status is SendStatus.FLUSH_DISK_TIMEOUT

    run_with_producer(test, ["broker-a", "broker-b"], retry_when_not_flushed=True)


def test_go_away_is_followed_over_a_new_connection():
    async def test(cluster, producer):
        await producer.send(MESSAGE)
        broker = cluster.brokers["broker-a"]
        broker.script = [refuse(ResponseCode.GO_AWAY)]

        assert (await producer.send(MESSAGE)).is_ok

        assert len(broker.connections) == 2
        assert len(broker.sends) == 3

    run_with_producer(test, retries=0)


def test_go_away_of_many_messages_makes_one_new_connection():
    async def test(cluster, producer):
        await producer.send(MESSAGE)
        broker = cluster.brokers["broker-a"]
        broker.script = [refuse(ResponseCode.GO_AWAY)] * 20

        results = await asyncio.gather(*(producer.send_async(MESSAGE) for _ in range(20)))

        assert len(results) == 20
        assert len(broker.connections) == 2

    run_with_producer(test, retries=0)


def test_a_second_go_away_means_another_broker():
    async def test(cluster, producer):
        script(cluster, *[refuse(ResponseCode.GO_AWAY)] * 2)

        assert (await producer.send(MESSAGE)).is_ok
        assert [request.fields["n"] for request in all_sends(cluster)].count("broker-a") in (1, 2)
        assert len(all_sends(cluster)) == 3

    run_with_producer(test, ["broker-a", "broker-b"])


def test_a_late_answer_to_the_first_try_is_dropped():
    async def test(cluster, producer):
        await warm_up(producer)
        late = []
        script(cluster, lambda connection, request: late.append((connection, request)))

        result = await producer.send(MESSAGE)
        connection, request = late[0]
        connection.send(request.answer(13, "too late"))
        assert (await producer.send(MESSAGE)).is_ok
        assert result.is_ok

    run_with_producer(test, ["broker-a", "broker-b"], send_timeout_ms=9000, send_try_timeout_ms=250)


def test_a_slow_broker_is_avoided_where_that_is_wanted():
    async def test(cluster, producer):
        cluster.brokers["broker-a"].script = [refuse(2)] * 100
        await asyncio.gather(*(producer.send(MESSAGE) for _ in range(4)))

        before = len(cluster.brokers["broker-a"].sends)
        for _ in range(20):
            await producer.send(MESSAGE)

        assert len(cluster.brokers["broker-a"].sends) == before

    run_with_producer(test, ["broker-a", "broker-b"], fault_avoidance=True)


# --- which queue ---


def test_one_key_has_one_queue_and_one_try():
    async def test(cluster, producer):
        results = [await producer.send(MESSAGE, key="order-17") for _ in range(5)]
        assert len({result.queue for result in results}) == 1
        several = [await producer.send(MESSAGE, key=number) for number in range(8)]
        assert len({result.queue for result in several}) == 4

        script(cluster, refuse(2))
        with pytest.raises(SendFailedError) as caught:
            await producer.send(MESSAGE, key="order-17")
        assert len(caught.value.attempts) == 1

    run_with_producer(test, ["broker-a", "broker-b"])


def test_a_queue_or_a_selector_can_be_given():
    async def test(cluster, producer):
        queues = await producer.queues("T")
        assert [queue.queue_id for queue in queues] == [0, 1, 0, 1]

        chosen = await producer.send(MESSAGE, queue=queues[3])
        selected = await producer.send(MESSAGE, selector=lambda given: given[0])

        assert (chosen.queue, selected.queue) == (queues[3], queues[0])
        with pytest.raises(InvalidMessageError, match="only one"):
            await producer.send(MESSAGE, key="a", queue=queues[0])
        with pytest.raises(InvalidMessageError, match="selector must return"):
            await producer.send(MESSAGE, selector=lambda given: 3)  # type: ignore[arg-type]

    run_with_producer(test, ["broker-a", "broker-b"])


def test_a_queue_of_a_broker_that_is_not_there():
    async def test(cluster, producer):
        with pytest.raises(SendFailedError, match="no primary"):
            await producer.send(MESSAGE, queue=MessageQueue("T", "broker-x", 0))

    run_with_producer(test)


# --- routes ---


def test_the_first_message_of_a_new_topic_creates_it():
    async def test(cluster, producer):
        cluster.add_topic("TBW102", queues=8, perm=7)
        assert (await producer.send(Message("New", b"x"))).is_ok
        cluster.add_topic("New", queues=4)

        fields = cluster.brokers["broker-a"].sends[0].fields
        assert (fields["b"], fields["c"], fields["d"]) == ("New", "TBW102", "4")

    run_with_producer(test)


def test_no_route_at_all():
    async def test(cluster, producer):
        with pytest.raises(NoRouteError):
            await producer.send(Message("Nowhere", b"x"))
        cluster.add_topic("Nowhere")  # asked again at the next send
        assert (await producer.send(Message("Nowhere", b"x"))).is_ok

    run_with_producer(test)


def test_no_name_server():
    async def main():
        async with FakeCluster() as cluster:
            address = cluster.namesrv_address
        async with AsyncProducer(address, "PG") as producer:
            with pytest.raises(UnreachableError, match="orbitmq namesrv run"):
                await producer.send(MESSAGE)

    run_async(main)


def test_a_silent_name_server_costs_no_more_than_the_time_given():
    async def test(cluster, producer):
        cluster.namesrv.reactions[RequestCode.GET_ROUTEINFO_BY_TOPIC] = silent

        with pytest.raises(RequestTimeoutError, match="route of topic Other"):
            await producer.send(Message("Other", b"x"), timeout_ms=40)

    run_with_producer(test)


# --- one-way, batch ---


def test_oneway_messages_are_not_answered():
    async def test(cluster, producer):
        await producer.send_oneway(MESSAGE)
        await producer.send_oneway(MESSAGE, key="k")
        await producer.send(MESSAGE)

        assert [r.is_oneway for r in cluster.brokers["broker-a"].sends] == [True, True, False]

    run_with_producer(test)


def test_a_batch_is_one_request_with_a_result_for_each():
    async def test(cluster, producer):
        results = await producer.send_batch([Message("T", b"a"), Message("T", b"b")])

        (request,) = cluster.brokers["broker-a"].sends
        assert request.code == RequestCode.SEND_BATCH_MESSAGE
        assert [one.body for one in decode_client_batch(request.body)] == [b"a", b"b"]
        assert [result.queue_offset for result in results] == [0, 1]
        assert len({result.message_id for result in results}) == 2

    run_with_producer(test)


def test_a_batch_is_repeated_like_a_message():
    async def test(cluster, producer):
        script(cluster, refuse(2))

        assert len(await producer.send_batch([MESSAGE, MESSAGE])) == 2

    run_with_producer(test, ["broker-a", "broker-b"])


# --- life ---


def test_closing_waits_for_what_is_on_its_way():
    async def main():
        async with FakeCluster() as cluster:
            cluster.add_topic("T")
            broker = cluster.brokers["broker-a"]
            producer = await AsyncProducer(cluster.namesrv_address, "PG").open()
            await producer.send(MESSAGE)
            held = []
            broker.script = [lambda connection, request: held.append((connection, request))]
            future = producer.send_async(MESSAGE)
            closing = asyncio.ensure_future(producer.close())
            await until(lambda: held)
            done, _ = await asyncio.wait([closing], timeout=0.1)
            assert not done

            connection, request = held[0]
            connection.send(broker.store(connection, request))

            assert (await future).is_ok
            await closing
            (left,) = broker.of_code(RequestCode.UNREGISTER_CLIENT)
            assert left.fields["producerGroup"] == "PG"

    run_async(main)


def test_closing_does_not_wait_for_ever():
    async def main():
        async with FakeCluster() as cluster:
            cluster.add_topic("T")
            cluster.brokers["broker-a"].script = [silent]
            producer = await AsyncProducer(cluster.namesrv_address, "PG", send_timeout_ms=50).open()
            future = producer.send_async(MESSAGE, timeout_ms=60_000)
            await producer.close()

            with pytest.raises(ClientClosedError):
                await future

    run_async(main)


def test_a_producer_that_is_not_open_says_so():
    async def main():
        producer = AsyncProducer("127.0.0.1:1", "PG")
        with pytest.raises(ClientClosedError, match="async with"):
            await producer.send(MESSAGE)
        async with producer:
            pass
        with pytest.raises(ClientClosedError):
            producer.send_async(MESSAGE)
        await producer.close()

    run_async(main)


def test_a_wrong_group_or_setting_is_refused_at_once():
    with pytest.raises(InvalidMessageError, match="group"):
        AsyncProducer("127.0.0.1:1", "bad group")
    with pytest.raises(ConfigError, match="did you mean"):
        AsyncProducer("127.0.0.1:1", "PG", retrys=2)


def test_too_many_at_once_wait_for_room():
    async def test(cluster, producer):
        await producer.send(MESSAGE)
        results = await asyncio.gather(*(producer.send(MESSAGE) for _ in range(50)))

        assert len(results) == 50

    run_with_producer(test, config=ClientConfig(pending_sends_max=3))


def test_no_room_in_time():
    async def test(cluster, producer):
        await warm_up(producer)
        script(cluster, *[silent] * 5)
        first = asyncio.ensure_future(producer.send(MESSAGE, timeout_ms=200))
        await until(lambda: len(producer.engine.pending) == 1)

        with pytest.raises(RequestTimeoutError, match="more slowly"):
            await producer.send(MESSAGE, timeout_ms=20)
        with pytest.raises(SendFailedError):
            await first

    run_with_producer(test, pending_sends_max=1)


def test_room_goes_to_the_next_when_the_first_has_given_up():
    async def main():
        pending = PendingSends(1)
        on_its_way = Nothing()
        pending.add(on_its_way)
        first = asyncio.create_task(pending.wait_for_room(10_000))
        second = asyncio.create_task(pending.wait_for_room(10_000))
        await asyncio.sleep(0)
        first.cancel()

        pending.remove(on_its_way)

        await asyncio.wait_for(second, 5)

    run_async(main)


class Nothing:
    def abandon(self) -> None:
        pass


def test_a_cancelled_send_leaves_nothing_behind():
    async def test(cluster, producer):
        await warm_up(producer)
        script(cluster, silent)
        task = asyncio.ensure_future(producer.send(MESSAGE, timeout_ms=40))
        await until(lambda: len(producer.engine.pending) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert (await producer.send(MESSAGE)).is_ok
        await until(lambda: len(producer.engine.pending) == 0)

    run_with_producer(test)


def test_thousands_at_once():
    async def test(cluster, producer):
        futures = [producer.send_async(MESSAGE) for _ in range(3000)]
        results = await asyncio.gather(*futures)

        assert len({result.message_id for result in results}) == 3000
        assert len(producer.engine.pending) == 0
        places = {(result.queue, result.queue_offset) for result in results}
        assert len(places) == 3000

    run_with_producer(test)
