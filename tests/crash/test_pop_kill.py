"""A broker is killed at random moments while messages are popped: each is acknowledged or seen again.

ORBITMQ_POP_KILLS sets the number of kills of all three together (20 by default), ORBITMQ_CRASH_SEED other
moments.
"""

import asyncio
import os
import random
import time
from pathlib import Path

import pytest

from compat.our_cluster import SMALL_BROKER, our_namesrv
from compat.server_process import create_topic
from crash.fork_server import ForkServer
from crash.forked_broker import ForkedBroker
from live_broker import run_live
from orbitmq.errors import WireError
from pop_talk import PopTalk

pytestmark = pytest.mark.crash

KILLS = -(-int(os.environ.get("ORBITMQ_POP_KILLS", "20")) // 3)
SEED = int(os.environ.get("ORBITMQ_CRASH_SEED", "0"))
TOPIC, GROUP = "PopKilled", "pop-killed"
QUEUES = 2
SECONDS_MAX = 120 + 30 * KILLS


class Ledger:
    """What was acknowledged to whom, and what was seen."""

    def __init__(self) -> None:
        self.sent: set[str] = set()
        self.seen: set[str] = set()
        self.done: set[str] = set()
        self.is_over = False

    @property
    def missing(self) -> set[str]:
        return self.sent - self.done


async def send_on(address: str, ledger: Ledger, chance: random.Random) -> None:
    client, number = PopTalk(address, TOPIC, GROUP).client, 0
    deadline = time.monotonic() + SECONDS_MAX
    while not ledger.is_over and time.monotonic() < deadline:
        number += 1
        try:
            body, queue_id = f"m{number}", chance.randrange(QUEUES)
            if (await client.send(TOPIC, body.encode(), queue_id)).code == 0:
                ledger.sent.add(body)
        except (WireError, OSError):
            await asyncio.sleep(0.05)  # sleep: until the broker is back
        await asyncio.sleep(0.005)  # sleep: so many a second


async def pop_on(address: str, ledger: Ledger, chance: random.Random, *, ordered: bool) -> None:
    talk = PopTalk(address, TOPIC, GROUP, f"popper-{chance.random()}")
    deadline = time.monotonic() + SECONDS_MAX
    while not (ledger.is_over and not ledger.missing) and time.monotonic() < deadline:
        try:
            taken = await talk.pop(poll_ms=500, invisible_ms=1_500, order=ordered)
            for message in taken.messages:
                ledger.seen.add(message.body)
                if not ledger.is_over and chance.random() < 0.4:
                    continue  # somebody else gets it again
                if (await talk.ack(message)).code == 0:
                    ledger.done.add(message.body)
        except (WireError, OSError):
            await asyncio.sleep(0.05)  # sleep: until the broker is back


async def kill_on(broker: ForkedBroker, ledger: Ledger, chance: random.Random) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(KILLS):
        await asyncio.sleep(chance.uniform(0.1, 1.2))  # sleep: any moment will do
        await loop.run_in_executor(None, broker.kill)
        await loop.run_in_executor(None, broker.start)
    ledger.is_over = True


@pytest.mark.timeout(180 + 40 * KILLS)
@pytest.mark.parametrize(
    ("ordered", "settings"),
    [(False, {}), (False, {"enablePopBufferMerge": "true"}), (True, {})],
    ids=["shared", "buffer", "ordered"],
)
def test_every_popped_message_is_acknowledged_or_seen_again(
    tmp_path: Path, server: ForkServer, ordered: bool, settings: dict[str, str]
) -> None:
    ledger = Ledger()
    chance = random.Random(f"pop {SEED} {ordered} {settings}")
    with our_namesrv(tmp_path) as namesrv:
        given = {**SMALL_BROKER, **settings}
        broker = ForkedBroker(server, tmp_path / "broker", namesrv.address, given)
        broker.start()
        create_topic(broker.address, TOPIC, QUEUES)

        async def main() -> None:
            poppers = [pop_on(broker.address, ledger, chance, ordered=ordered) for _ in range(2)]
            await asyncio.gather(
                send_on(broker.address, ledger, chance),
                kill_on(broker, ledger, chance),
                *poppers,
            )

        try:
            run_live(main, seconds=SECONDS_MAX + 20)
        finally:
            broker.kill()
    assert len(ledger.sent) > 10 * KILLS
    assert ledger.missing == set()
    assert ledger.sent <= ledger.seen
