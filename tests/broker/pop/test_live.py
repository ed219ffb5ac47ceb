"""Pops through the front door: a broker on a socket, its timer wheel, its files, a stop and a start."""

import asyncio
from pathlib import Path

from async_run import until
from live_broker import live_broker, run_live
from orbitmq.files.state_file import read_state
from orbitmq.wire.codes import ResponseCode
from pop_talk import PopTalk

TOPIC, GROUP = "Orders", "Cid"


def test_a_message_is_popped_acknowledged_or_comes_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, revive_ms=100) as broker:
            talk = PopTalk(broker.address, TOPIC, GROUP)
            await talk.send("done", "again", "later")
            taken = await talk.pop(invisible_ms=1_500, queue_id=0)
            assert taken.bodies == ["done", "again", "later"]
            assert (await talk.ack(taken.messages[0])).code == 0
            assert (await talk.renew(taken.messages[2], 4_500)).code == 0
            again = await talk.pop(poll_ms=8_000, invisible_ms=60_000)
            assert again.bodies == ["again"]
            assert again.messages[0].record.reconsume_times == 1
            assert (await talk.ack(again.messages[0])).code == 0
            later = await talk.pop(poll_ms=8_000, invisible_ms=60_000)
            assert later.bodies == ["later"]
            empty = await talk.pop(poll_ms=300)
            assert empty.code == ResponseCode.POLLING_TIMEOUT

    run_live(main)


def test_a_pop_waits_for_a_message(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as broker:
            talk = PopTalk(broker.address, TOPIC, GROUP)
            await talk.send("first")
            assert (await talk.pop()).bodies == ["first"]
            waiting = asyncio.ensure_future(talk.pop(poll_ms=8_000))
            await until(lambda: len(broker.context.pop.polls))
            await talk.send("second")
            assert (await waiting).bodies == ["second"]

    run_live(main)


def test_check_points_survive_a_stop(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as broker:
            talk = PopTalk(broker.address, TOPIC, GROUP)
            await talk.send(*"abc")
            taken = await talk.pop(invisible_ms=2_000)
            assert (await talk.ack(taken.messages[1])).code == 0
        state = read_state(tmp_path / "config" / "consumerOffset.json")
        assert state["offsetTable"][f"{TOPIC}@{GROUP}"]["0"] == 3
        async with live_broker(tmp_path, revive_ms=100) as broker:
            talk = PopTalk(broker.address, TOPIC, GROUP)
            seen: list[str] = []
            while len(seen) < 2:
                taken = await talk.pop(poll_ms=8_000)
                seen += taken.bodies
                for message in taken.messages:
                    await talk.ack(message)
            assert sorted(seen) == ["a", "c"]
            assert (await talk.pop(poll_ms=200)).bodies == []

    run_live(main)


def test_an_ordered_batch_is_kept_over_a_stop(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as broker:
            talk = PopTalk(broker.address, TOPIC, GROUP)
            await talk.send(*"ab")
            taken = await talk.pop(invisible_ms=2_000, order=True, count=1)
            assert taken.bodies == ["a"]
        async with live_broker(tmp_path) as broker:
            talk = PopTalk(broker.address, TOPIC, GROUP)
            assert (await talk.pop(order=True)).bodies == []
            again = await talk.pop(order=True, poll_ms=8_000)
            assert again.bodies == ["a", "b"]
            assert again.answer.order_count_info == "0 qo0%0 1;0 0 0"

    run_live(main)


def test_the_buffer_is_written_by_a_stop(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, pop_buffer=True) as broker:
            talk = PopTalk(broker.address, TOPIC, GROUP)
            await talk.send(*"ab")
            taken = await talk.pop(invisible_ms=6_000)
            assert (await talk.ack(taken.messages[0])).code == 0
            assert len(broker.context.pop.engine.buffer) == 1
        async with live_broker(tmp_path, revive_ms=100) as broker:
            talk = PopTalk(broker.address, TOPIC, GROUP)
            assert (await talk.pop(poll_ms=9_500)).bodies == ["b"]

    run_live(main)
