"""Brokers that copy one log: settings of kill rounds, and what must hold when everything is over."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from crash.failover_history import FailoverHistory
from orbitmq.client import Admin, PullConsumer
from orbitmq.errors import UnreachableError

TOPIC: Final = "Failover"
WAIT_SECONDS: Final = 60.0
COPIED_TWICE: Final = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "haSendHeartbeatInterval": "500",
    "stateSyncInterval": "200",
    "inSyncReplicas": "2",
    "slaveTimeout": "1000",
}
"""Of brokers that acknowledge what two have."""


class BrokerProcess(Protocol):
    """What is asked of a broker here."""

    @property
    def address(self) -> str: ...

    @property
    def root(self) -> Path: ...

    def tail(self) -> str: ...


def check_copies(namesrv: str, history: FailoverHistory, brokers: Sequence[BrokerProcess]) -> None:
    """Look that what was acknowledged is there, once, in order, and that all logs have the same bytes."""
    with Admin(namesrv) as admin:
        end = await_equal(brokers, admin)
    assert list(history.problems(read_queues(namesrv))) == []
    first, *others = (log_bytes(broker, end) for broker in brokers)
    assert all(other == first for other in others)


def await_equal(brokers: Sequence[BrokerProcess], admin: Admin) -> int:
    """Wait until all logs end at one offset; return it."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        ends = {_log_end(broker, admin) for broker in brokers}
        if len(ends) == 1 and (end := ends.pop()) >= 0:
            return end
        tails = "\n".join(broker.tail() for broker in brokers)
        assert time.monotonic() < deadline, f"{ends}\n{tails}"
        time.sleep(0.05)


def _log_end(broker: BrokerProcess, admin: Admin) -> int:
    """Return where a log ends; -1: the broker is just starting again, in another role."""
    with suppress(UnreachableError):
        return int(admin.broker_runtime(broker.address)["commitLogMaxOffset"])
    return -1


def log_bytes(broker: BrokerProcess, end: int) -> bytes:
    files = sorted((broker.root / "store" / "commitlog").iterdir())
    assert int(files[0].name) == 0
    return b"".join(file.read_bytes() for file in files)[:end]


def read_queues(namesrv: str) -> dict[int, list[str]]:
    """Return what each queue holds."""
    read: dict[int, list[str]] = {}
    with PullConsumer(namesrv, "reader", auto_commit=False) as reader:
        for queue in reader.topic_queues(TOPIC):
            bodies: list[str] = []
            while found := reader.pull(queue, len(bodies), count=32).messages():
                bodies += [message.body.decode().rstrip() for message in found]
            read[queue.queue_id] = bodies
    return read


@contextmanager
def left_if_failed(history: FailoverHistory, directory: Path) -> Iterator[None]:
    """Leave the history behind, as history.jsonl, if the test fails."""
    try:
        yield
    except BaseException:
        (directory / "history.jsonl").write_text("\n".join(history.lines()) + "\n")
        raise
