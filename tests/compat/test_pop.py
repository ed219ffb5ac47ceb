"""Pop with RocketMQ's own programs: its push consumer on our broker, its broker beside and after ours."""

import asyncio
import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import pytest

from compat.client_kinds import Clients
from compat.java_cluster import FLUSH_TIMERS, java_broker, java_command, server_jars
from compat.java_store import needs_java
from compat.maven import HERE, compiled
from compat.our_cluster import our_broker, our_namesrv
from compat.server_process import ServerProcess, await_route, create_topic, free_port
from live_broker import LiveClient, run_live
from orbitmq.wire.codes import RequestCode
from pop_talk import PopTalk
from pop_world import Taken

pytestmark = [pytest.mark.compat, needs_java]

COUNT: Final = 60
ORDERED_POP: Final = HERE / "ordered" / "OrderedPop.java"
Starts = Callable[..., AbstractContextManager[ServerProcess]]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ServerProcess]]:
    directory = tmp_path_factory.mktemp("pop")
    with (
        our_namesrv(directory) as namesrv,
        our_broker(directory, namesrv=namesrv.address) as broker,
    ):
        yield namesrv.address, broker


def set_pop(broker: str, topic: str, group: str, share: int = 0) -> None:
    mode = {"topic": topic, "consumerGroup": group, "mode": "POP", "popShareQueueNum": share}

    async def told() -> int:
        code = RequestCode.SET_MESSAGE_REQUEST_MODE
        return (await LiveClient(broker).ask(code, body=json.dumps(mode).encode())).code

    assert run_live(told) == 0


def test_rocketmqs_push_consumers_pop_from_our_broker(
    ours: tuple[str, ServerProcess], clients: Clients
) -> None:
    """Two share a topic, each message reaches one; another group fails each once and gets it again."""
    namesrv, broker = ours
    client = clients.get("java-new-json", namesrv)
    create_topic(broker.address, "Popped", 4)
    await_route(namesrv, "Popped")
    for group in ("pop-share", "pop-fail"):
        set_pop(broker.address, "Popped", group)
    client.send(topic="Popped", count=COUNT, body="old-")
    members = [client.subscribe(topic="Popped", group="pop-share", pop="true") for _ in range(2)]
    failing = client.subscribe(topic="Popped", group="pop-fail", pop="true", fail=1)
    client.send(topic="Popped", count=COUNT, body="new-")
    wanted = {f"{age}-{number}" for age in ("old", "new") for number in range(COUNT)}

    def got() -> list[str]:
        return members[0].bodies("got") + members[1].bodies("got")

    client.program.wait(lambda: set(got()) == wanted, 60, lambda: f"{len(got())} of {len(wanted)}")
    assert Counter(got()) == Counter(wanted)
    # Each fails once, which makes it invisible for ten more seconds.
    failing.wait("got", 2 * len(wanted), 90)
    rows = failing.of("got")
    assert {row["body"] for row in rows if row["times"] == 0} == wanted
    assert {row["body"] for row in rows if row["times"] == 1} == wanted
    for member in (*members, failing):
        member.leave()


def test_a_java_client_pops_in_order(ours: tuple[str, ServerProcess], tmp_path: Path) -> None:
    """Each queue's messages are done in the order of their sends, also those that were given back."""
    namesrv, broker = ours
    queues, count = 2, 12
    create_topic(broker.address, "InOrder", queues)
    await_route(namesrv, "InOrder")
    classes = str(compiled(ORDERED_POP, server_jars()))
    arguments = [
        namesrv,
        "broker-a",
        broker.address,
        "InOrder",
        "in-order",
        str(queues),
        str(count),
    ]

    told = subprocess.run(
        java_command(ORDERED_POP.stem, *arguments, home=tmp_path, heap="256m", classes=classes),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    lines = [line.split() for line in told.stdout.splitlines()]
    assert lines[-1:] == [["end"]], told.stdout[-2000:] + told.stderr[-2000:]
    rows = [(int(queue), int(number), int(times), how) for queue, number, times, how in lines[:-1]]
    for queue in range(queues):
        mine = [row for row in rows if row[0] == queue]
        assert [number for _, number, _, how in mine if how == "done"] == list(range(count))
        again = {number: times for _, number, times, how in mine if how == "done" and times}
        assert set(again) >= {number for number in range(count) if number % 3 == 2}
        assert all(times >= 1 for times in again.values())


def facts(taken: Taken) -> dict[str, Any]:
    """Return what an answer says, without times."""
    return {
        "code": taken.code,
        "remark": taken.remark,
        "bodies": taken.bodies,
        "times": [message.record.reconsume_times for message in taken.messages],
        "topics": [message.record.topic for message in taken.messages],
        "starts": taken.answer.start_offset_info,
        "offsets": taken.answer.msg_offset_info,
        "order": taken.answer.order_count_info,
        "rest": taken.answer.rest_num,
        "revive": taken.answer.revive_qid if taken.answer.revive_qid == 999 else "some",
    }


async def until_found(talk: PopTalk, **given: Any) -> Taken:
    for _ in range(12):
        taken = await talk.pop(poll_ms=2_000, **given)
        if taken.messages:
            return taken
    raise AssertionError("nothing came")


async def conversation(address: str) -> list[Any]:
    """Say the same to any broker; return what it answered."""
    heard: list[Any] = []
    talk = PopTalk(address, "Talked", "talk-group")
    await talk.send(*"abcd")
    await asyncio.sleep(0.5)  # sleep: RocketMQ dispatches when it likes
    taken = await talk.pop(count=3, invisible_ms=60_000, queue_id=0)
    heard.append(facts(taken))
    heard.append((await talk.ack(taken.messages[0])).code)
    renewed = await talk.renew(taken.messages[1], 1_000)
    heard.append(
        (renewed.code, sorted(renewed.fields or {}), (renewed.fields or {})["invisibleTime"])
    )
    heard.append((await talk.renew(taken.messages[2], 60_000)).code)
    again = await until_found(talk, count=1, queue_id=-1, invisible_ms=60_000)
    seen = {*again.bodies}
    while seen != {"b", "d"}:
        again = await until_found(talk, count=1, invisible_ms=60_000)
        seen |= {*again.bodies}
        for message in again.messages:
            heard.append((await talk.ack(message)).code)
    heard.append(sorted(seen))
    empty = facts(await talk.pop())
    heard.append(empty)
    order = PopTalk(address, "Ordered", "order-group")
    await order.send(*"xyz")
    await asyncio.sleep(0.5)  # sleep: RocketMQ dispatches when it likes
    first = await order.pop(count=2, invisible_ms=2_000, order=True, attempt_id="one")
    heard.append(facts(first))
    heard.append(facts(await order.pop(order=True, attempt_id="two")))
    heard.append(facts(await order.pop(count=2, invisible_ms=2_000, order=True, attempt_id="one")))
    await asyncio.sleep(2.2)  # sleep: the invisible time
    second = await order.pop(order=True, invisible_ms=60_000, attempt_id="three")
    heard.append(facts(second))
    heard += [(await order.ack(message)).code for message in second.messages]
    heard.append(facts(await order.pop(order=True)))
    return heard


def test_a_conversation_is_the_same_as_with_rocketmqs_broker(
    ours: tuple[str, ServerProcess], tmp_path: Path
) -> None:
    with (
        our_namesrv(tmp_path) as namesrv,
        java_broker(tmp_path, namesrv=namesrv.address) as java,
    ):
        brokers = (ours[1].address, java.address)
        for address in brokers:
            create_topic(address, "Talked", 1)
            create_topic(address, "Ordered", 1)

        async def both() -> tuple[list[Any], list[Any]]:
            one, two = await asyncio.gather(*map(conversation, brokers))
            return one, two

        our_words, their_words = run_live(both, seconds=120)
        assert our_words == their_words


async def take_some(address: str, stage: int) -> tuple[set[str], set[str]]:
    """Send and pop; return what was acknowledged and what was not."""
    talk = PopTalk(address, "Handed", "hand-group")
    bodies = [f"{stage}-{number}" for number in range(10)]
    await talk.send(*bodies)
    await asyncio.sleep(0.5)  # sleep: RocketMQ dispatches when it likes
    acked: set[str] = set()
    popped: set[str] = set()
    while not {*bodies} <= popped:
        taken = await until_found(talk, invisible_ms=20_000)
        popped |= {*taken.bodies}
        for message in taken.messages[::2]:
            assert (await talk.ack(message)).code == 0
            acked.add(message.body)
    return acked, popped - acked


async def take_rest(address: str, wanted: set[str]) -> Counter[str]:
    """Pop and acknowledge until everything that is wanted came; return how often what came."""
    talk, seen = PopTalk(address, "Handed", "hand-group"), Counter[str]()
    for _ in range(40):
        taken = await talk.pop(poll_ms=2_000, invisible_ms=60_000)
        for message in taken.messages:
            seen[message.body] += 1
            assert (await talk.ack(message)).code == 0
        if wanted <= seen.keys():
            return seen
    raise AssertionError(f"missing: {sorted(wanted - seen.keys())}")


def wait_until_saved(root: Path, offset: int) -> None:
    """Wait for the group's offset on disk: RocketMQ saves ten seconds after its start, then every five."""
    path, deadline = root / "store" / "config" / "consumerOffset.json", time.monotonic() + 60
    while f'"Handed@hand-group":{{0:{offset}' not in (path.read_text() if path.exists() else ""):
        assert time.monotonic() < deadline, path
        time.sleep(0.2)  # sleep: it does not say when it has saved


@pytest.mark.parametrize("first", ["ours", "java"])
def test_waiting_check_points_change_hands(tmp_path: Path, first: str) -> None:
    starts: tuple[Starts, ...] = (our_broker, java_broker)
    with our_namesrv(tmp_path) as namesrv:
        place: dict[str, Any] = {"namesrv": namesrv.address, "settings": FLUSH_TIMERS}
        place |= {"root": tmp_path / "broker", "port": free_port()}
        starts = starts if first == "ours" else starts[::-1]
        with starts[0](tmp_path, **place) as broker:
            create_topic(broker.address, "Handed", 1)
            acked, left = run_live(lambda: take_some(broker.address, 0), seconds=60)
            assert acked
            assert left
            if first == "java":  # it is killed, and saves offsets when its time has come
                wait_until_saved(tmp_path / "broker", len(acked | left))
        with starts[1](tmp_path, **place) as broker:
            seen = run_live(lambda: take_rest(broker.address, left), seconds=110)
        assert left <= seen.keys()
        assert not acked & seen.keys()
