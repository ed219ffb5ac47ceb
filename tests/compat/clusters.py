"""The clusters that the client tests run on; a server starts when the first test asks for it."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from compat.java_cluster import java_broker, java_namesrv
from compat.our_cluster import our_broker, our_namesrv
from compat.server_process import ServerProcess, await_route, create_topic

# With this in the environment, the tests of ours also run on RocketMQ's own: what must fail there is
# a fault of the test.
BASELINE: Final = bool(os.environ.get("ORBITMQ_COMPAT_BASELINE"))
KINDS: Final = ("ours", "java") if BASELINE else ("ours",)
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

    def get(self, kind: str) -> Cluster:
        """Return a cluster: "ours", "java", or mixed and named by its Java part."""
        if kind == "ours":
            return self._our_cluster()
        self._start_mixed()
        namesrv = "java-namesrv" if kind in ("java", "java-namesrv") else "our-namesrv"
        broker = "java-broker" if kind in ("java", "java-broker") else "our-broker"
        return Cluster(kind, self._started[namesrv].address, self._started[broker])

    def _our_cluster(self) -> Cluster:
        if self._ours is None:
            directory = self.directory / "ours"
            namesrv = self.stack.enter_context(our_namesrv(directory))
            broker = self.stack.enter_context(our_broker(directory, namesrv=namesrv.address))
            self._ours = Cluster("ours", namesrv.address, broker)
        return self._ours

    def _start_mixed(self) -> None:
        if self._started:
            return
        enter, directory = self.stack.enter_context, self.directory / "mixed"
        ours, java = enter(our_namesrv(directory)), enter(java_namesrv(directory))
        both = f"{ours.address};{java.address}"
        self._started = {
            "our-namesrv": ours,
            "java-namesrv": java,
            "our-broker": enter(our_broker(directory, namesrv=both, name="broker-ours")),
            "java-broker": enter(java_broker(directory, namesrv=both, name="broker-java")),
        }


@contextmanager
def clusters_below(directory: Path) -> Iterator[Clusters]:
    """Yield the clusters; whatever was started ends with the body."""
    with ExitStack() as stack:
        yield Clusters(directory, stack)
