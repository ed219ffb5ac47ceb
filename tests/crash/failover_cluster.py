"""Brokers of one name, a name server and perhaps an etcd, as processes, and ways between them to cut.

Each broker tells others an address of its own (127.0.0.2, 127.0.0.3 ...), at which a proxy listens; it
listens at the same port of 127.0.0.1 itself, where its producers reach it however it is cut off.
"""

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from command import ORBITMQ
from compat.java_cluster import broker_settings, running, write_settings
from compat.our_cluster import SMALL_BROKER, our_namesrv
from compat.server_process import (
    ServerProcess,
    ask,
    await_route,
    create_topic,
    free_port,
    is_registered,
)
from crash.copies import COPIED_TWICE, TOPIC, WAIT_SECONDS, check_copies, left_if_failed
from crash.failover_history import FailoverHistory, Told
from etcd_server import etcd_server
from live_broker import letters, send_header
from orbitmq.errors import OrbitError
from orbitmq.net.channels import Channels
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from tcp_proxy import TcpProxy

QUEUES: Final = 2
BY_HAND: Final = {"haHousekeepingInterval": "1500"}  # so soon replicas notice that it is silent
BY_ETCD: Final = {"haMaxTimeSlaveNotCatchup": "1000", "failoverLeaseMs": "2000"}


class Ack(NamedTuple):
    """An acknowledgement of one broker."""

    broker: int
    asked: float
    told: float


class Node:
    """One broker, and the ways from and to it."""

    def __init__(self, number: int, root: Path, namesrv_port: int, etcd_port: int = 0) -> None:
        port, host = free_port(), f"127.0.0.{number + 2}"
        self.direct, self.address = f"127.0.0.1:{port}", f"{host}:{port}"
        here = "127.0.0.1"
        self._to_namesrv = TcpProxy((here, 0), (here, namesrv_port))
        self._ways = [TcpProxy((host, port + at), (here, port + at)) for at in (-2, 0, 1)]
        self._ways.append(self._to_namesrv)
        namesrv = f"{here}:{namesrv_port}"
        role = {"brokerRole": "SLAVE" if number else "SYNC_MASTER", "brokerId": str(number)}
        own = {"brokerIP1": host, **({} if etcd_port else BY_HAND)}
        if etcd_port:
            self._ways.append(TcpProxy((here, 0), (here, etcd_port)))
            own |= {**BY_ETCD, "failover": f"etcd://{here}:{self._ways[-1].port}"}
        place = root / f"broker-{number}"
        way = f"{here}:{self._to_namesrv.port}"
        known = {**broker_settings(place, port, way, "broker-f"), **SMALL_BROKER}
        config = write_settings(place / "broker.conf", {**known, **COPIED_TWICE, **role, **own})
        command = [str(ORBITMQ), "broker", "run", "--config", str(config)]
        self.process = ServerProcess(
            f"broker {number}", command, port, place, lambda: is_registered(self.address, namesrv)
        )

    def cut_off(self) -> None:
        for way in self._ways:
            way.cut()

    def heal(self) -> None:
        for way in self._ways:
            way.heal()

    def signal(self, number: signal.Signals) -> None:
        assert self.process.process is not None
        os.kill(self.process.process.pid, number)

    def close(self) -> None:
        for way in self._ways:
            way.close()

    def told(self) -> dict[str, Any]:
        """Return what it says of its role and its failover; nothing, if it says nothing."""
        try:
            code, _, body = ask(self.direct, RequestCode.GET_EPOCHS)
        except (OSError, ValueError):
            return {}
        return dict(json.loads(body)) if code == 0 else {}


class DirectSender(threading.Thread):
    """Sends to one broker, whatever name servers say, each message once."""

    def __init__(self, cluster: "FailoverCluster", number: int) -> None:
        super().__init__(daemon=True)
        self._cluster, self._number = cluster, number
        self._address = cluster.nodes[number].direct

    def run(self) -> None:
        asyncio.run(self._send())

    async def _send(self) -> None:
        channels, number, history = Channels(), 0, self._cluster.history
        while not self._cluster.ended.is_set():
            body, number = f"direct{self._number}-{number}", number + 1
            header = send_header(TOPIC, number % QUEUES)
            padded = body.encode().ljust(200, b" ")
            command = Command(RequestCode.SEND_MESSAGE_V2, letters(header), padded)
            history.ask(body)
            try:
                answer = await channels.request(self._address, command, 3_000)
            except OrbitError:
                history.fail()
                await asyncio.sleep(0.05)
                continue
            if answer.code == 0:
                asked, fields = history.asked[body], answer.fields or {}
                place = int(fields["queueId"]), int(fields["queueOffset"])
                history.tell(body, Told(*place, True))
                self._cluster.acks.append(Ack(self._number, asked, time.monotonic()))
            await asyncio.sleep(0.004 if answer.code == 0 else 0.03)
        await channels.close()


class FailoverCluster:
    """All of it, and what was acknowledged."""

    def __init__(self, etcd: ServerProcess | None, namesrv: str, nodes: list[Node]) -> None:
        self._etcd, self.namesrv, self.nodes = etcd, namesrv, nodes
        self.history, self.acks, self.ended = FailoverHistory(), list[Ack](), threading.Event()
        self._senders: list[DirectSender] = []

    @property
    def etcd(self) -> ServerProcess:
        assert self._etcd is not None
        return self._etcd

    def begin(self) -> None:
        self._senders = [DirectSender(self, number) for number in range(len(self.nodes))]
        for sender in self._senders:
            sender.start()

    def end(self) -> None:
        self.ended.set()
        for sender in self._senders:
            sender.join()

    @property
    def primary(self) -> int:
        """The broker that is the primary by its own words, and has the lease if there is one."""
        for number, node in enumerate(self.nodes):
            told = node.told()
            if told.get("primary") and (told.get("failover") or {"leaseMs": 1}).get("leaseMs"):
                return number
        return -1

    def await_whole(self) -> int:
        """Wait until one has the lease and all are in sync; return which one has it."""

        def is_whole() -> bool:
            found = self.primary
            if found < 0:
                return False
            told = self.nodes[found].told().get("failover") or {}
            return len(told.get("inSync", ())) == len(self.nodes)

        self.wait(is_whole)
        return self.primary

    def await_acks(self, broker: int, more: int = 20) -> float:
        """Wait until a broker has acknowledged so many more; return when the first of them was told."""
        return self._await_acks({broker}, more)[0].told

    def await_acks_of_another(self, broker: int, more: int = 20) -> Ack:
        """Wait until others than this one have acknowledged so many more; return the first of them."""
        return self._await_acks(set(range(len(self.nodes))) - {broker}, more)[0]

    def _await_acks(self, brokers: set[int], more: int) -> list[Ack]:
        before = len(self.acks)

        def news() -> list[Ack]:
            return [ack for ack in self.acks[before:] if ack.broker in brokers]

        self.wait(lambda: len(news()) >= more)
        return news()

    def check(self) -> None:
        """End all sends, and compare what is read with what was acknowledged, and all logs."""
        self.end()
        check_copies(self.namesrv, self.history, [node.process for node in self.nodes])

    def wait(self, condition: Any) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "\n".join(n.process.tail() for n in self.nodes)
            time.sleep(0.02)


@contextmanager
def failover_cluster(
    root: Path, brokers: int, *, has_etcd: bool = True
) -> Iterator[FailoverCluster]:
    """Run so many brokers, all in sync, with a topic, and producers that send to each of them."""
    with ExitStack() as stack:
        etcd = etcd_server(root) if has_etcd else None
        if etcd is not None:
            stack.enter_context(running(etcd))
        namesrv = stack.enter_context(our_namesrv(root))
        port = etcd.port if etcd is not None else 0
        nodes = [Node(number, root, namesrv.port, port) for number in range(brokers)]
        for node in nodes:
            stack.callback(node.close)
            stack.callback(node.process.kill)
            node.process.launch()
        for node in nodes:
            node.process._await_ready()
        cluster = FailoverCluster(etcd, namesrv.address, nodes)
        cluster.wait(lambda: cluster.primary >= 0)
        create_topic(nodes[cluster.primary].direct, TOPIC, QUEUES)
        await_route(namesrv.address, TOPIC)
        if has_etcd:
            cluster.await_whole()
        cluster.begin()
        stack.callback(cluster.end)
        stack.enter_context(left_if_failed(cluster.history, root))
        yield cluster
