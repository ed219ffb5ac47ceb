"""A real etcd: leases, changes, watches; answers that are none; and what tools tell of brokers under it."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from async_run import run_async, until
from cluster_commands import Cluster
from compat.java_cluster import running
from compat.server_process import ServerProcess
from doctor.live_cluster import ClusterDoctor, wait_until
from etcd_server import etcd_server, why_no_etcd
from orbitmq.broker.failover.etcd import EtcdCoordinator
from orbitmq.broker.failover.place import parse_place
from orbitmq.client import Admin
from orbitmq.errors import WireError
from orbitmq.testing import Broker
from orbitmq.wire.bodies.failover import FailoverState, Member, Seen

pytestmark = pytest.mark.feature("F84")
needs_etcd = pytest.mark.skipif(why_no_etcd() is not None, reason=why_no_etcd() or "")

A, B = Member(id="A", address="a:1"), Member(id="B", address="b:1")
FIRST = FailoverState(epoch=1, primary=A, in_sync=(A, B))
SECOND = FailoverState(epoch=2, primary=B, in_sync=(B,))


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = etcd_server(tmp_path_factory.mktemp("etcd"))
    with running(server):
        yield server


@contextmanager
def coordinators(*ways: tuple[str, ...]) -> Iterator[list[EtcdCoordinator]]:
    """Make a coordinator of each name and its servers; all are closed, or a loop does not end."""
    with ExitStack() as stack:
        places = ((name, parse_place(f"etcd://{','.join(servers)}")) for name, *servers in ways)
        made = [EtcdCoordinator(place, "cluster/1", name, 2_000) for name, place in places]
        for one in made:
            stack.callback(one.close)
        yield made


@needs_etcd
def test_one_of_two_gets_the_place_and_its_end_is_told(etcd: ServerProcess) -> None:
    async def main(one: EtcdCoordinator, other: EtcdCoordinator, another: EtcdCoordinator) -> None:
        assert (await one.look())[:3] == (None, 0, "")
        empty = await one.look()
        mine, its = await one.grant(1), await other.grant(2_500)
        assert mine.ms >= 1_000
        assert its.ms >= 3_000
        revision = await one.take(empty, FIRST, "A", mine.id)
        assert revision > 0
        assert await other.take(empty, SECOND, "B", its.id) == 0
        seen = await other.look()
        assert seen[:3] == (FIRST, revision, "A")
        assert await other.take(seen._replace(holder=""), SECOND, "B", its.id) == 0
        assert await one.take(seen, FIRST, "A", mine.id) > revision  # the same once more
        seen = await one.look()
        changed = FailoverState(epoch=1, primary=A, in_sync=(A,))
        assert await one.change(seen, changed) > 0
        assert await one.change(seen, FIRST) == 0
        assert await one.keep(mine.id) == mine.ms

        seen = await other.look()
        waiting = asyncio.ensure_future(other.wait_change(seen))
        await one.revoke(mine.id)
        await asyncio.wait_for(waiting, 10)
        assert await one.keep(mine.id) == 0
        seen = await other.look()
        assert seen[:3] == (changed, seen.revision, "")
        assert await other.take(seen, SECOND, "B", its.id) > 0
        with pytest.raises(WireError, match="lease not found"):
            await one.take(await one.look(), FIRST, "A", 12345)
        assert (await another.look()).state is None
        for each in (one, other, another):
            await each.revoke(12345)  # no assert: what is gone may be ended again

    async def closing() -> None:
        # The first server does not answer: the next one is asked.
        ways = ("two", "127.0.0.1:9", etcd.address), ("two", etcd.address)
        with coordinators(*ways, ("another", etcd.address)) as made:
            await main(*made)

    run_async(closing)


@needs_etcd
def test_a_lease_that_nobody_keeps_ends(etcd: ServerProcess) -> None:
    async def main() -> None:
        with coordinators(("ends", etcd.address)) as (one,):
            lease = await one.grant(1_000)
            await one.take(await one.look(), FIRST, "A", lease.id)

            async def is_gone() -> bool:
                return not (await one.look()).holder

            await until(is_gone)
            assert (await one.look()).state == FIRST

    run_async(main)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{{{",
        b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{"kvs":[{}]} ',
        b'HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n{"kvs":[{"key":1}]}',
        b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"header":1',
        b"HTTP/1.1 503 Busy\r\nContent-Length: 17\r\n\r\n" + b'{"error": "busy"}',
        b"nonsense\r\n\r\n",
    ],
)
def test_an_answer_that_is_none_is_an_error_of_the_coordinator(said: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with coordinators(("lies", address)) as (asked,):
            calls: list[Callable[[], Any]] = [
                asked.look,
                lambda: asked.grant(1_000),
                lambda: asked.wait_change(Seen()),
            ]
            for call in calls:
                with pytest.raises(WireError):
                    await call()
        server.close()

    run_async(main)


@needs_etcd
def test_tools_tell_who_may_take_over_and_what_to_do_when_nobody_may(
    etcd: ServerProcess, tmp_path: Path
) -> None:
    by_etcd = {"failover": f"etcd://{etcd.address}/tools", "failoverLeaseMs": "2000"}
    lonely = {"brokerRole": "SYNC_MASTER", "haMaxTimeSlaveNotCatchup": "200"}
    replica = {**by_etcd, "brokerId": "1", "brokerRole": "SLAVE", "stateSyncInterval": "100"}
    with Broker(tmp_path / "one", settings={**by_etcd, **lonely}) as one:
        cluster, ask = Cluster(one), ClusterDoctor(one.namesrv)
        cluster.create("Orders", queues=1)
        alone = ask.wait("nobody could take over from the primary")
        settings = replica | {"namesrvAddr": one.namesrv}
        with Broker(tmp_path / "other", settings=settings) as other, Admin(one.namesrv) as admin:
            wait_until(lambda: all(c.failover and c.failover.may for c in admin.replicas()))
            lines = cluster.output("broker", "replicas", "--output", "json").splitlines()
            whole = [json.loads(line)["failover"] for line in lines]
            table = cluster.output("broker", "replicas")
            services = cluster.output("broker", "services", other.address)
            other.stop()
            wait_until(lambda: ask.gone("does not follow") and not ask.gone("nobody could take"))
            cluster.send("Orders", "only one has this")
            first = one.address
            with one.down():
                other.start()
                there = other.address
                vacant = ask.wait("nobody may take over")
                unhelped = admin.replicas()
                ask.follow(vacant)
                wait_until(lambda: any(c.is_primary and not c.error for c in admin.replicas()))
            assert all(c.failover is None or not c.failover.lease_ms for c in unhelped)

    assert alone["severity"] == "warning"
    assert {one["lease_ms"] > 0 for one in whole} == {True, False}
    assert all(one["may_be_primary"] and len(one["in_sync"]) == 2 for one in whole)
    assert "has the lease for" in table
    assert "may take over" in table
    assert "failover" in services
    assert vacant["severity"] == "critical"
    assert first in vacant["meaning"]
    assert f"broker promote {there} --force" in vacant["command"]
