"""A store below a folder, with its broker.conf: what tests plant in it, and a broker that runs on it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conf_store import SMALL, ConfStore, broker_conf
from orbitmq.files.disk import Disk
from orbitmq.files.state_file import write_state
from orbitmq.message import AppendRequest
from orbitmq.testing import Broker
from orbitmq.testing.builders import HOST_V4
from orbitmq.testing.fake_clock import FakeClock

HOUR = 3600


def real_clock(ahead_s: int = 0) -> FakeClock:
    """A clock that stands at the present, or so far ahead of it."""
    clock = FakeClock()
    clock.set_now_ms(round((time.time() + ahead_s) * 1000))
    return clock


def keyed(n: int, key: str = "", queue_id: int = 0, size: int = 10) -> AppendRequest:
    properties = f"KEYS\x01{key or f'k{n}'}\x02TAGS\x01t\x02".encode()
    return AppendRequest("Orders", queue_id, bytes(size), properties, born_host=HOST_V4)


class Planted:
    """One store. `words` is how the doctor is asked about it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root, self.conf = folder, folder / "store", folder / "broker.conf"
        self.settings: dict[str, object] = {}

    def write(self, *requests: AppendRequest, ahead_s: int = 0, **given: object) -> "Planted":
        with ConfStore(self.folder, given, clock=real_clock(ahead_s)) as store:
            store.append(*requests)
        self.settings = {**SMALL, **given}
        return self

    def topics(self, **queues: tuple[int, int]) -> None:
        """Write the table of topics: how many read and write queues each has."""
        table = {
            topic: {"topicName": topic, "readQueueNums": read, "writeQueueNums": write, "perm": 6}
            for topic, (read, write) in queues.items()
        }
        self._write("topics.json", {"topicConfigTable": table})

    def offsets(self, **groups: int) -> None:
        """Write where groups stand in queue 0, and that there are such groups."""
        known = {group: {"groupName": group} for group in groups}
        self._write("subscriptionGroup.json", {"subscriptionGroupTable": known})
        table = {f"Orders@{group}": {"0": offset} for group, offset in groups.items()}
        self._write("consumerOffset.json", {"offsetTable": table})

    def _write(self, name: str, value: dict[str, object]) -> None:
        write_state(Disk(), self.root / "config" / name, value)

    @contextmanager
    def broker(self) -> Iterator[Broker]:
        """Run a broker on the store; its broker.conf says where it listens meanwhile."""
        settings = {name: str(value) for name, value in self.settings.items()}
        with Broker(self.root, settings=settings) as broker:
            host, _, port = broker.address.rpartition(":")
            broker_conf(self.folder, {**self.settings, "brokerIP1": host, "listenPort": port})
            yield broker
        broker_conf(self.folder, self.settings)

    @property
    def words(self) -> list[object]:
        return [self.root, "--config", self.conf]
