"""Name servers behind sockets."""

import asyncio
import struct
import threading

import pytest

from async_run import run_async
from golden_frames import decode_command
from namesrv_world import registration, told
from orbitmq.errors import UnreachableError
from orbitmq.namesrv.config import NamesrvConfig
from orbitmq.namesrv.server import NameServer
from orbitmq.net.channels import Channels
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.wire.bodies.route import ClusterInfo, TopicRoute
from orbitmq.wire.command import Command, Encoding
from orbitmq.wire.frame import encode_command
from orbitmq.wire.headers.kv import GetKv, PutKv
from orbitmq.wire.headers.route import GetRoute


def config(**settings) -> NamesrvConfig:
    return NamesrvConfig(host="127.0.0.1", port=0, **settings)


async def ask(channels, server, code, header=None, body=b""):
    fields = None if header is None else header.write()
    return await channels.request(server.address, Command(code, fields, body), 3000)


async def until(holds) -> None:
    """Wait for something that another part of the loop does."""
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came to be")


async def register(channels, server, name="broker-a", **fields):
    answer = await ask(
        channels, server, 103, registration(name, **fields), told("TBW102", "Orders").encode()
    )
    assert answer.code == 0


def test_several_name_servers_side_by_side():
    async def main():
        servers = [NameServer(config()) for _ in range(2)]
        for server in servers:
            await server.start()
        assert servers[0].port != servers[1].port
        broker, client = Channels(), Channels()
        for server in servers:
            await register(broker, server, "broker-a")
        await register(broker, servers[1], "broker-b")

        found = []
        for server in servers:
            answer = await ask(client, server, 105, GetRoute(topic="Orders"))
            route = TopicRoute.decode(answer.body)
            found.append([data.broker_name for data in route.broker_datas])
        assert found == [["broker-a"], ["broker-a", "broker-b"]]

        await servers[0].stop()
        assert (await ask(client, servers[1], 106)).code == 0
        with pytest.raises(UnreachableError):
            await ask(client, servers[0], 106)
        await servers[1].stop()
        await broker.close()
        await client.close()

    run_async(main)


def test_a_broker_is_forgotten_when_its_connection_closes():
    async def main():
        server = NameServer(config())
        await server.start()
        broker, client = Channels(), Channels()
        await register(broker, server)
        assert ClusterInfo.decode((await ask(client, server, 106)).body).broker_addr_table

        await broker.close()
        await until(lambda: not server.routes.brokers)

        assert (await ask(client, server, 105, GetRoute(topic="Orders"))).code == 17
        await client.close()
        await server.stop()

    run_async(main)


def test_a_silent_broker_is_forgotten_and_its_connection_closed():
    async def main():
        clock = FakeClock()
        server = NameServer(config(scan_interval_ms=5), clock=clock)
        await server.start()
        broker = Channels()
        await register(broker, server)
        connection = await broker.get(server.address)

        clock.advance(120_000)
        server.scan()
        assert list(server.routes.brokers) == ["broker-a"]
        clock.advance(1)
        await until(lambda: not server.routes.brokers)  # found by the scan that runs by itself
        await until(lambda: connection.closed)

        await broker.close()
        await server.stop()

    run_async(main)


def test_the_key_value_config_outlives_the_name_server(tmp_path):
    path = tmp_path / "kvConfig.json"

    async def main(code, header):
        server, client = NameServer(config(kv_config_path=path)), Channels()
        await server.start()
        answer = await ask(client, server, code, header)
        await client.close()
        await server.stop()
        return answer

    put = run_async(lambda: main(100, PutKv(namespace="n", key="k", value="v")))
    got = run_async(lambda: main(101, GetKv(namespace="n", key="k")))

    assert put.code == 0
    assert got.fields == {"value": "v"}


def test_changes_of_the_key_value_config_are_saved_in_their_order(tmp_path):
    path = tmp_path / "kvConfig.json"

    async def main():
        server, client = NameServer(config(kv_config_path=path)), Channels()
        await server.start()
        puts = [PutKv(namespace="n", key="k", value=str(i)) for i in range(50)]
        answers = await asyncio.gather(*(ask(client, server, 100, put) for put in puts))
        assert {answer.code for answer in answers} == {0}
        await client.close()
        await server.stop()

    run_async(main)
    assert b'"k":"49"' in path.read_bytes()


def test_garbage_closes_its_connection_and_no_other():
    async def main():
        server, client = NameServer(config()), Channels()
        await server.start()
        await register(client, server)
        for garbage in (
            b"GET / HTTP/1.1\r\n\r\n",
            struct.pack(">i", -1),
            b"\0\0\0\x08\0\0\0\x04{]{]",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(garbage)
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()

        assert (await ask(client, server, 105, GetRoute(topic="Orders"))).code == 0
        await client.close()
        await server.stop()

    run_async(main)


@pytest.mark.parametrize("encoding", list(Encoding))
def test_many_requests_in_one_write_are_answered_in_order(encoding):
    async def main():
        server = NameServer(config())
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        requests = [Command(106, opaque=i, encoding=encoding) for i in range(200)]
        writer.write(b"".join(map(encode_command, requests)))
        for i in range(200):
            size = await reader.readexactly(4)
            raw = size + await reader.readexactly(int.from_bytes(size, "big"))
            answer = decode_command(raw)
            assert (answer.code, answer.opaque, answer.encoding) == (0, i, encoding)
        writer.close()
        await writer.wait_closed()
        await server.stop()

    run_async(main)


def test_a_port_that_is_taken_is_named():
    async def main():
        server = NameServer(config())
        await server.start()
        other = NameServer(NamesrvConfig(host="127.0.0.1", port=server.port))
        with pytest.raises(UnreachableError, match=f"127.0.0.1:{server.port}: cannot listen"):
            await other.start()
        await server.stop()

    run_async(main)


@pytest.mark.parametrize("with_file", [True, False])
def test_changed_settings_are_there_after_a_restart(tmp_path, with_file):
    own = tmp_path / "namesrv.conf"
    own.write_text("# ours\nlistenPort=0\nneedWaitForService=true\n")
    flags = {"kvConfigPath": tmp_path / "kv.json", "bindAddress": "127.0.0.1", "listenPort": 0}

    async def run(code, body=b""):
        server = NameServer(NamesrvConfig.load(own if with_file else None, flags))
        await server.start()
        channels = Channels()
        answer = await channels.request(server.address, Command(code, {}, body), 5000)
        await channels.close()
        await server.stop()
        return answer

    changed = run_async(lambda: run(318, b"orderMessageEnable=true\nserverWorkerThreads=9\n"))
    after = run_async(lambda: run(319)).body.decode()

    assert changed.code == 0
    assert "orderMessageEnable=true\n" in after
    assert "serverWorkerThreads=9\n" in after
    assert own.read_text().startswith("# ours\nlistenPort=0\nneedWaitForService=true\n")
    assert own.read_text().endswith("serverWorkerThreads=9\n") is with_file


def test_a_value_is_answered_when_it_is_on_disk(tmp_path):
    writing, go_on = threading.Event(), threading.Event()

    async def main():
        server, channels = NameServer(config(kv_config_path=tmp_path / "kv.json")), Channels()
        await server.start()
        save = server.kv.save

        def slow(table):
            writing.set()
            go_on.wait(20)
            save(table)

        server.kv.save = slow
        try:
            header = PutKv(namespace="N", key="k", value="v")
            put = asyncio.ensure_future(ask(channels, server, 100, header))
            await until(writing.is_set)
            await ask(channels, server, 106)  # answered behind it, on the same connection
            early = put.done()
            go_on.set()
            answer = await put
        finally:
            go_on.set()
            await channels.close()
            await server.stop()
        return early, answer.code

    assert run_async(main) == (False, 0)
    assert '"k"' in (tmp_path / "kv.json").read_text()
