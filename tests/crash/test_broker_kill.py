"""A broker is killed at random moments under load, again and again; nothing acknowledged may be missing.

ORBITMQ_BROKER_KILLS sets the number of kills (5 by default), ORBITMQ_CRASH_SEED other moments.
"""

import os
import random
import time
from pathlib import Path

import pytest

from compat.live_load import Load, QueueReader, running_load
from compat.our_cluster import our_broker, our_namesrv
from compat.server_process import ServerProcess, await_route, create_topic
from orbitmq.wire.bodies.dialect import loads

pytestmark = pytest.mark.crash

KILLS = int(os.environ.get("ORBITMQ_BROKER_KILLS", "5"))
SEED = int(os.environ.get("ORBITMQ_CRASH_SEED", "0"))
TOPIC, GROUP = "Killed", "killed-group"
QUEUES = 4


@pytest.mark.timeout(120 + 20 * KILLS)
def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(tmp_path: Path) -> None:
    with our_namesrv(tmp_path) as namesrv:
        with our_broker(tmp_path, namesrv=namesrv.address) as broker:
            create_topic(broker.address, TOPIC, QUEUES)
            await_route(namesrv.address, TOPIC)
            ends = _load_and_kill(namesrv.address, broker)
        # Everybody has said goodbye: the group is at the end of each queue.
        assert _consumer_offsets(broker) == ends


def _load_and_kill(namesrv: str, broker: ServerProcess) -> dict[int, int]:
    """Kill as often as wanted and check everything; return the end of each queue."""
    chance = random.Random(f"broker {SEED}")
    with running_load(namesrv, TOPIC, GROUP) as load, QueueReader(load) as reader:
        for number in range(KILLS):
            _kill_and_restart(broker, load, chance)
            if number % 5 == 4:
                reader.check_new()
        load.await_acknowledged(100)
        load.stop_sending()
        load.await_consumed()
        stored = reader.check_all()
        assert stored >= len(load.ledger.acknowledged) > 100 * KILLS
        return {queue.queue_id: end for queue, end in reader.ends.items()}


def _kill_and_restart(broker: ServerProcess, load: Load, chance: random.Random) -> None:
    load.await_acknowledged(chance.randrange(100, 1500))
    if chance.random() < 0.5:
        load.await_handled(chance.randrange(1, 500))
    time.sleep(chance.uniform(0, 0.01))  # sleep: any moment will do
    broker.kill()
    _check_consumer_offsets(broker, load)
    while chance.random() < 0.25:  # sleep: recovery is as easily interrupted as service
        broker.launch()
        time.sleep(chance.uniform(0, 1.0))
        broker.kill()
    broker.start()


def _check_consumer_offsets(broker: ServerProcess, load: Load) -> None:
    """What the broker would start from: nothing below it that the consumer was not given."""
    with load.ledger.lock:
        handled = {queue.queue_id: set(offsets) for queue, offsets in load.ledger.handled.items()}
    for queue_id, offset in _consumer_offsets(broker).items():
        unseen = set(range(offset)) - handled.get(queue_id, set())
        assert not unseen, f"queue {queue_id} is at {offset}, not consumed: {sorted(unseen)[:5]}"


def _consumer_offsets(broker: ServerProcess) -> dict[int, int]:
    path = broker.root / "store" / "config" / "consumerOffset.json"
    if not path.exists():
        return {}
    table = loads(path.read_bytes())["offsetTable"].get(f"{TOPIC}@{GROUP}", {})
    return {int(queue_id): offset for queue_id, offset in table.items()}
