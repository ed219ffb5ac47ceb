"""Producers for any thread."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from async_run import run_async
from fake_cluster import FakeCluster, refuse, silent
from orbitmq.client import Message, Producer
from orbitmq.errors import (
    ClientClosedError,
    InvalidMessageError,
    RequestTimeoutError,
    SendFailedError,
)
from orbitmq.wire.bodies.message_queue import MessageQueue

MESSAGE = Message("T", b"hello")


def run_beside_cluster(test, brokers=("broker-a",)):
    """Run the cluster in this loop and a synchronous test in a thread."""

    async def main():
        async with FakeCluster(list(brokers)) as cluster:
            cluster.add_topic("T")
            await asyncio.to_thread(test, cluster)

    run_async(main)


def test_all_ways_to_send():
    def test(cluster):
        with Producer(namesrv=cluster.namesrv_address, group="demo") as producer:
            result = producer.send(Message("T", b"hello", tag="TagA", keys=["k1"]))
            assert result.is_ok
            assert producer.send_async(MESSAGE).result(5).is_ok
            producer.send_oneway(MESSAGE)
            assert len(producer.send_batch([MESSAGE, MESSAGE])) == 2
            assert producer.send(MESSAGE, key="order-17").is_ok
            assert len(producer.queues("T")) == 2
            queue = MessageQueue("T", "broker-a", 1)
            assert producer.send(MESSAGE, queue=queue).queue == queue
            assert producer.send(MESSAGE, selector=lambda queues: queues[0]).queue.queue_id == 0
        assert len(cluster.brokers["broker-a"].sends) == 7

    run_beside_cluster(test)


def test_who_waits_for_the_future_of_a_send_handles_its_answer():
    def test(cluster):
        names = []
        with Producer(cluster.namesrv_address, group="demo") as producer:
            for _ in range(50):
                future = producer.send_async(MESSAGE)
                future.add_done_callback(lambda _: names.append(threading.current_thread()))
                assert future.result(10).is_ok
        assert names.count(threading.current_thread()) > 5

    run_beside_cluster(test)


def test_the_time_of_a_send_counts_from_the_call():
    def test(cluster):
        with Producer(cluster.namesrv_address, group="demo") as producer:
            producer.send(MESSAGE)
            go_on = threading.Event()
            producer.opened_loop.call(go_on.wait)  # the loop has something else to do
            late = producer.send_async(MESSAGE, timeout_ms=20)
            time.sleep(0.05)  # sleep: longer than the send may take
            go_on.set()
            with pytest.raises(RequestTimeoutError, match="before the first try"):
                late.result(10)

    run_beside_cluster(test)


def test_a_send_that_nobody_waits_for_leaves_soon():
    def test(cluster):
        with Producer(cluster.namesrv_address, group="demo") as producer:
            for _ in range(10):
                producer.send(MESSAGE)  # the loop was this thread's a moment ago
                done = threading.Event()
                producer.send_async(MESSAGE).add_done_callback(lambda _, done=done: done.set())
                assert done.wait(10)

    run_beside_cluster(test)


def test_errors_are_those_of_the_async_one():
    def test(cluster):
        with Producer(cluster.namesrv_address, group="demo") as producer:
            for broker in cluster.brokers.values():
                broker.script = [refuse(2)] * 3
            with pytest.raises(SendFailedError):
                producer.send(MESSAGE)
            with pytest.raises(InvalidMessageError):
                producer.send(Message("bad topic", b"x"))
            with pytest.raises(InvalidMessageError):
                producer.send_async(Message("T", b""))

    run_beside_cluster(test)


def test_many_threads_share_one_producer():
    def test(cluster):
        with Producer(cluster.namesrv_address) as producer, ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda n: producer.send(MESSAGE), range(200)))
        assert len({result.message_id for result in results}) == 200
        assert len({(result.queue, result.queue_offset) for result in results}) == 200

    run_beside_cluster(test)


def test_senders_wait_when_too_many_are_on_their_way():
    def test(cluster):
        with Producer(cluster.namesrv_address, pending_sends_max=20) as producer:
            futures = [producer.send_async(MESSAGE) for _ in range(500)]
            assert all(future.result(5).is_ok for future in futures)

            cluster.brokers["broker-a"].script = [silent] * 20
            stuck = [producer.send_async(MESSAGE, timeout_ms=300) for _ in range(20)]
            with pytest.raises(RequestTimeoutError, match="more slowly"):
                producer.send_async(MESSAGE, timeout_ms=30)
            for future in stuck:
                assert future.exception(5) is not None

    run_beside_cluster(test)


def test_a_producer_that_is_not_open_says_so():
    producer = Producer("127.0.0.1:1", group="demo")

    for call in (
        lambda: producer.send(MESSAGE),
        lambda: producer.send_async(MESSAGE),
        lambda: producer.send_batch([MESSAGE]),
        lambda: producer.queues("T"),
    ):
        with pytest.raises(ClientClosedError, match="with"):
            call()
    producer.close()


def test_after_closing_the_thread_is_gone():
    def test(cluster):
        with Producer(cluster.namesrv_address) as producer:
            producer.send(MESSAGE)
        names = [thread.name for thread in threading.enumerate()]
        assert "orbitmq-client" not in names
        with pytest.raises(ClientClosedError):
            producer.send(MESSAGE)
        with producer:  # and it can be opened again
            assert producer.send(MESSAGE).is_ok

    run_beside_cluster(test)


def test_a_closed_producer_has_sent_what_it_was_given():
    def test(cluster):
        with Producer(cluster.namesrv_address) as producer:
            futures = [producer.send_async(MESSAGE) for _ in range(300)]
        assert all(future.done() and future.result().is_ok for future in futures)

    run_beside_cluster(test)


def test_a_cancelled_future_does_no_harm():
    def test(cluster):
        with Producer(cluster.namesrv_address) as producer:
            producer.send(MESSAGE)
            for _ in range(50):
                producer.send_async(MESSAGE).cancel()
            assert producer.send(MESSAGE).is_ok

    run_beside_cluster(test)
