"""The clusters that the client tests run on; a server starts when the first test asks for it."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from compat.java_cluster import java_broker, java_namesrv
from compat.java_store import why_not as why_no_java
from compat.our_cluster import our_broker, our_namesrv
from compat.server_process import ServerProcess, await_route, create_topic

# With this in the environment, the tests of ours also run on RocketMQ's own: what must fail there is
# a fault of the test.
BASELINE: Final = bool(os.environ.get("ORBITMQ_COMPAT_BASELINE"))
KINDS: Final = ("ours", "java") if BASELINE else ("ours",)
BY_SQL: Final = {"enablePropertyFilter": "true"}  # ours filters so by default
RECALL: Final = {"recallMessageEnable": "true"}
MIXED_KINDS: Final = ("java-namesrv", "java-broker")


@dataclass
class Cluster:
    """A name server and the broker that the test's topics are on."""

    kind: str
    namesrv: str
    broker: ServerProcess

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create a topic on the broker and wait for its route."""
        create_topic(self.broker.address, topic, queues)
        await_route(self.namesrv, topic)


@dataclass
class Clusters:
    """Starts servers once and ends them together.

    Two name servers and two brokers, one of each ours, and each broker registered at both: who has the
    address of one name server and a topic of one broker has any of the four combinations. "ours" is a
    cluster of its own, where topics can make themselves.
    """

    directory: Path
    stack: ExitStack
    _started: dict[str, ServerProcess] = field(default_factory=dict)
    _ours: Cluster | None = None
    _ours_lock: threading.Lock = field(default_factory=threading.Lock)
    _mixed_lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, kind: str) -> Cluster:
        """Return a cluster: "ours", "java", or mixed and named by its Java part.

        Tests on different clusters may ask at the same time. Skips the test where Java is missing.
        """
        if kind == "ours":
            with self._ours_lock:
                return self._our_cluster()
        if reason := why_no_java():
            pytest.skip(reason)
        with self._mixed_lock:
            self._start_mixed()
        namesrv = "java-namesrv" if kind in ("java", "java-namesrv") else "our-namesrv"
        broker = "java-broker" if kind in ("java", "java-broker") else "our-broker"
        return Cluster(kind, self._started[namesrv].address, self._started[broker])

    def _our_cluster(self) -> Cluster:
        if self._ours is None:
            directory = self.directory / "ours"
            namesrv = self.stack.enter_context(our_namesrv(directory))
            broker = self.stack.enter_context(
                our_broker(directory, namesrv=namesrv.address, settings=RECALL)
            )
            self._ours = Cluster("ours", namesrv.address, broker)
        return self._ours

    def _start_mixed(self) -> None:
        if self._started:
            return
        enter, directory = self.stack.enter_context, self.directory / "mixed"
        with ThreadPoolExecutor(2) as pool:
            ours, java = pool.map(enter, [our_namesrv(directory), java_namesrv(directory)])
            both = f"{ours.address};{java.address}"
            brokers = [
                our_broker(directory, namesrv=both, name="broker-ours"),
                java_broker(
                    directory, namesrv=both, name="broker-java", settings={**BY_SQL, **RECALL}
                ),
            ]
            our_one, java_one = pool.map(enter, brokers)
        self._started = {
            "our-namesrv": ours,
            "java-namesrv": java,
            "our-broker": our_one,
            "java-broker": java_one,
        }


@contextmanager
def clusters_below(directory: Path) -> Iterator[Clusters]:
    """Yield the clusters; whatever was started ends with the body."""
    with ExitStack() as stack:
        yield Clusters(directory, stack)
