"""Each business key is handled once, whatever makes its message come twice."""

import asyncio
import threading
from collections import Counter
from pathlib import Path

import pytest

from async_run import run_async
from consumer_world import consumer_world, names, until
from orbitmq.client import (
    AsyncConsumer,
    AsyncIdempotent,
    Idempotent,
    MemoryKeys,
    Message,
    SqliteKeys,
)
from orbitmq.client.consumer.idempotence import KeyState, KeyStore, business_key
from orbitmq.client.core.message import ReceivedMessage
from orbitmq.client.producer.sending import Sending
from orbitmq.errors import InProgressError, RequestTimeoutError
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.units import MINUTE_MS


def received(keys: str = "k1", topic: str = "T", **properties: str) -> ReceivedMessage:
    found = {"UNIQ_KEY": "ID", **({"KEYS": keys} if keys else {}), **properties}
    return ReceivedMessage(topic, b"", "b", 0, 0, 0, found, 0, 0, "", "", "OFFSET-ID")


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    clock = FakeClock()
    if request.param == "memory":
        keys: KeyStore = MemoryKeys(clock=clock, keep_ms=100_000, claim_ms=1_000)
        yield keys, clock
        return
    with SqliteKeys(tmp_path / "keys.db", clock=clock, keep_ms=100_000, claim_ms=1_000) as keys:
        yield keys, clock


# --- keys ---


def test_the_business_key_is_topic_and_keys_also_after_a_retry():
    assert business_key(received("a b")) == "T:a b"
    assert business_key(received("a b", "%RETRY%G", RETRY_TOPIC="T")) == "T:a b"
    assert business_key(received("")) == "T:ID"


def test_states_of_a_key(store):
    keys, _ = store

    assert keys.claim("k") is KeyState.CLAIMED
    assert keys.claim("k") is KeyState.IN_PROGRESS
    assert keys.claim("other") is KeyState.CLAIMED
    keys.release("k")
    assert keys.claim("k") is KeyState.CLAIMED
    keys.handled("k")
    assert keys.claim("k") is KeyState.HANDLED
    keys.release("k")  # does not undo what is done
    assert keys.claim("k") is KeyState.HANDLED


def test_a_claim_of_somebody_who_is_gone_ends(store):
    keys, clock = store
    keys.claim("k")

    clock.advance(999)
    assert keys.claim("k") is KeyState.IN_PROGRESS
    clock.advance(1)

    assert keys.claim("k") is KeyState.CLAIMED


def test_keys_are_forgotten_after_a_time(store):
    keys, clock = store
    keys.claim("k")
    keys.handled("k")

    clock.advance(99_999)
    assert keys.claim("k") is KeyState.HANDLED
    clock.advance(1)

    assert keys.claim("k") is KeyState.CLAIMED


def test_only_so_many_keys_are_kept_in_memory():
    keys = MemoryKeys(count_max=10)

    for number in range(25):
        keys.claim(str(number))
        keys.handled(str(number))

    assert len(keys) == 10
    assert keys.claim("24") is KeyState.HANDLED
    assert keys.claim("0") is KeyState.CLAIMED


def test_keys_in_a_file_outlast_the_process_and_are_shared(tmp_path):
    clock = FakeClock()
    with SqliteKeys(tmp_path / "keys.db", clock=clock, keep_ms=MINUTE_MS) as first:
        first.claim("k")
        first.handled("k")
        with SqliteKeys(tmp_path / "keys.db", clock=clock) as second:
            assert second.claim("k") is KeyState.HANDLED
            assert second.claim("j") is KeyState.CLAIMED
            assert first.claim("j") is KeyState.IN_PROGRESS
    with SqliteKeys(tmp_path / "keys.db", clock=clock) as third:
        assert third.claim("k") is KeyState.HANDLED
        clock.advance(6 * MINUTE_MS)
        assert third.forget_old() == 2


def test_of_many_threads_one_gets_the_key(store):
    keys, _ = store
    states: list[KeyState] = []
    threads = [threading.Thread(target=lambda: states.append(keys.claim("k"))) for _ in range(16)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert Counter(states) == {KeyState.CLAIMED: 1, KeyState.IN_PROGRESS: 15}


# --- handlers ---


@pytest.mark.feature("F95")
def test_duplicates_are_handled_once(store):
    handled: list[str] = []
    handle = Idempotent(lambda message: handled.append(message.message_id), store[0])

    for _ in range(3):
        handle(received("order-17"))
    handle(received("order-18"))

    assert len(handled) == 2
    assert handle.duplicate_count == 2


def test_a_failed_message_is_handled_when_it_comes_again(store):
    tries: list[int] = []

    def fail_once(message):
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("not yet")
        return "done"

    handle = Idempotent(fail_once, store[0])

    with pytest.raises(ValueError, match="not yet"):
        handle(received())
    assert handle(received()) == "done"
    assert handle(received()) is None
    assert len(tries) == 2


def test_a_copy_that_comes_meanwhile_has_to_come_again(store):
    def nested(message):
        with pytest.raises(InProgressError, match="order-17"):
            handle(received("order-17"))

    handle = Idempotent(nested, store[0])
    handle(received("order-17"))

    assert handle.duplicate_count == 0


def test_another_key_can_be_chosen(store):
    handled: list[object] = []
    handle = Idempotent(handled.append, store[0], key=lambda message: message.properties["order"])

    handle(received("a", order="1"))
    handle(received("b", order="1"))

    assert len(handled) == 1


def test_a_note_in_a_file_is_on_disk_before_the_message_counts_as_handled(tmp_path):
    with SqliteKeys(tmp_path / "keys.db") as keys:
        (level,) = keys._connection.execute("PRAGMA synchronous").fetchone()

    assert level == 2  # FULL: each commit waits for the disk


def test_coroutine_functions(store):
    async def main():
        handled: list[str] = []

        async def work(message):
            await asyncio.sleep(0)
            if message.properties["KEYS"] == "bad" and not handled:
                handled.append("failed")
                raise ValueError("no")
            handled.append(message.message_id)
            return 5

        handle = AsyncIdempotent(work, store[0])
        with pytest.raises(ValueError, match="no"):
            await handle(received("bad"))
        assert await handle(received("bad")) == 5
        assert await handle(received("bad")) is None
        assert handle.duplicate_count == 1

    run_async(main)


# --- where duplicates come from ---


class Once:
    """A handler that notes each key it handles; copies of a consumer share the store of keys."""

    def __init__(self, keys: KeyStore) -> None:
        self.handled: list[str] = []
        self.handle = AsyncIdempotent(self._work, keys)

    async def _work(self, message: ReceivedMessage) -> None:
        self.handled.append(message.keys[0])


@pytest.mark.feature("F95", "F96")
def test_a_send_that_is_repeated_because_its_answer_was_lost(tmp_path: Path, monkeypatch):
    on_answer = Sending._on_answer
    lost: list[str] = []

    def lose_the_first(self, answer):
        if not lost:
            lost.append(self.request.message_id)
            self._failed(RequestTimeoutError("broker", "the answer was lost"))
        else:
            on_answer(self, answer)

    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=2)
            monkeypatch.setattr(Sending, "_on_answer", lose_the_first)
            result = await world.producer.send(Message("Orders", b"x", keys=["order-17"]))
            again = await world.producer.send(Message("Orders", b"x", keys=["order-17"]))
            assert [result.message_id] == lost  # the copy has the same id
            assert again.message_id != result.message_id  # a copy made by the application has not

            once = Once(MemoryKeys())
            given = {"start_from": "first", "workers": 1}  # copies one after the other
            async with AsyncConsumer(world.namesrv, "G", "Orders", handler=once.handle, **given):
                await until(lambda: once.handle.duplicate_count == 2)
            assert once.handled == ["order-17"]

    run_async(main)


@pytest.mark.feature("F96")
def test_an_acknowledgement_that_is_lost(tmp_path: Path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            for name in names(5):
                await world.send("Orders", name, keys=[name])
            once = Once(MemoryKeys())
            offsets = world.broker.context.offsets
            commit = offsets.commit
            offsets.commit = lambda *given, **more: None  # type: ignore[method-assign]
            async with AsyncConsumer(
                world.namesrv, "G", "Orders", handler=once.handle, start_from="first"
            ):
                await until(lambda: len(once.handled) == 5)
            offsets.commit = commit  # type: ignore[method-assign]

            given = {"start_from": "first", "persist_interval_ms": 50}
            async with AsyncConsumer(world.namesrv, "G", "Orders", handler=once.handle, **given):
                await until(lambda: once.handle.duplicate_count == 5)
                await until(lambda: world.offset("G", "Orders", 0) == 5)

            assert sorted(once.handled) == names(5)

    run_async(main, seconds=60)


@pytest.mark.feature("F96")
def test_a_queue_that_changes_hands(tmp_path: Path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=2)
            keys = MemoryKeys()
            first, second = Once(keys), Once(keys)
            for queue_id in (0, 1):
                for name in names(5, f"q{queue_id}-"):
                    await world.send("Orders", name, keys=[name], queue_id=queue_id)
            offsets = world.broker.context.offsets
            commit = offsets.commit
            # What the first member handled is not committed yet when the second one joins.
            offsets.commit = lambda *given, **more: None  # type: ignore[method-assign]
            given = {"start_from": "first"}
            async with AsyncConsumer(world.namesrv, "G", "Orders", handler=first.handle, **given):
                await until(lambda: len(first.handled) == 10)
                async with AsyncConsumer(
                    world.namesrv, "G", "Orders", handler=second.handle, **given
                ):
                    await until(lambda: second.handle.duplicate_count == 5, 20)
            offsets.commit = commit  # type: ignore[method-assign]

            assert sorted(first.handled) == sorted(names(5, "q0-") + names(5, "q1-"))
            assert second.handled == []

    run_async(main, seconds=60)
