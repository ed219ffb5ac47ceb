"""Servers and channels over real sockets: requests both ways, limits, peers that misbehave."""

import asyncio
import logging
import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from async_run import run_async, until
from orbitmq.errors import RequestTimeoutError, TooManyRequestsError, UnreachableError
from orbitmq.net.channels import Channels, SilentHandler, parse_address
from orbitmq.net.config import NetConfig
from orbitmq.net.connection import Connection
from orbitmq.net.server import Server
from orbitmq.units import KiB, MiB
from orbitmq.wire.command import Command, Encoding
from orbitmq.wire.frame import encode_command


class Echo(SilentHandler):
    """Answers every request with its own body; remembers how requests came."""

    def __init__(self) -> None:
        self.reads: list[int] = []
        self.open: list[Connection] = []
        self.closed: list[Connection] = []
        self.answer_bytes = 0

    def on_open(self, connection: Connection) -> None:
        self.open.append(connection)

    def on_commands(self, connection: Connection, requests: list[Command]) -> None:
        self.reads.append(len(requests))
        for request in requests:
            if request.is_oneway or request.code == 404:
                continue
            body = bytes(self.answer_bytes) if self.answer_bytes else request.body
            connection.send_parts(request.answer(fields={"code": str(request.code)}), [body])

    def on_close(self, connection: Connection, error: Exception | None) -> None:
        self.closed.append(connection)


@asynccontextmanager
async def echo_server(**limits: Any) -> AsyncIterator[tuple[Server, Echo]]:
    handler = Echo()
    server = Server(handler, NetConfig(**limits))
    await server.start("127.0.0.1", 0)
    try:
        yield server, handler
    finally:
        await server.stop()


async def raw(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(server.host, server.port)


async def end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):  # the server was faster
        await writer.wait_closed()


@pytest.mark.parametrize("encoding", list(Encoding))
def test_a_request_gets_its_answer_in_the_encoding_it_was_asked_in(encoding: Encoding) -> None:
    async def main() -> None:
        async with echo_server() as (server, _):
            channels = Channels()
            answer = await channels.request(
                server.address, Command(17, {"a": "b"}, b"hello", encoding=encoding), 3000
            )
            await channels.close()
        assert (answer.code, answer.body, answer.fields) == (0, b"hello", {"code": "17"})
        assert answer.encoding is encoding

    run_async(main)


def test_requests_in_flight_are_answered_each_to_its_own_future() -> None:
    async def main() -> None:
        async with echo_server() as (server, _):
            channels = Channels()
            bodies = [str(number).encode() for number in range(500)]
            answers = await asyncio.gather(
                *(channels.request(server.address, Command(1, body=body), 3000) for body in bodies)
            )
            assert [answer.body for answer in answers] == bodies
            assert len(server.connections) == 1
            await channels.close()

    run_async(main)


def test_all_frames_of_one_read_are_handed_over_together() -> None:
    async def main() -> None:
        async with echo_server() as (server, handler):
            reader, writer = await raw(server)
            frames = [encode_command(Command(1, opaque=n, body=b"x")) for n in range(10)]
            writer.write(b"".join(frames))
            await reader.readexactly(8)
            assert handler.reads == [10]
            await end(writer)

    run_async(main)


def test_the_server_can_ask_its_client() -> None:
    async def main() -> None:
        async with echo_server() as (server, handler):
            channels = Channels(Echo())
            await channels.get(server.address)
            await until(lambda: handler.open)
            answer = await handler.open[0].request(Command(40, body=b"who?"), 3000)
            assert answer.body == b"who?"
            await channels.close()

    run_async(main)


def test_no_answer_in_time_is_an_error_and_a_late_one_is_dropped() -> None:
    async def main() -> None:
        async with echo_server() as (server, handler):
            channels = Channels()
            async with asyncio.timeout(10):
                with pytest.raises(RequestTimeoutError):
                    await channels.request(server.address, Command(404), 30)
            handler.open[0].send(Command(0, opaque=1, flag=1))
            answer = await channels.request(server.address, Command(1, body=b"next"), 3000)
            assert answer.body == b"next"
            await channels.close()

    run_async(main)


def test_a_broken_connection_fails_what_waits_and_the_next_request_connects_again() -> None:
    async def main() -> None:
        async with echo_server() as (server, handler):
            channels = Channels()
            await channels.get(server.address)
            waiting = asyncio.ensure_future(channels.request(server.address, Command(404), 3000))
            await until(lambda: handler.reads)
            handler.open[0].abort()
            with pytest.raises(UnreachableError, match="broke"):
                await waiting
            answer = await channels.request(server.address, Command(1, body=b"again"), 3000)
            assert answer.body == b"again"
            await channels.close()

    run_async(main)


def test_nobody_there_is_unreachable() -> None:
    async def main() -> None:
        async with echo_server() as (server, _):
            address = server.address
        channels = Channels()
        with pytest.raises(UnreachableError, match="no connection"):
            await channels.request(address, Command(1), 3000)
        await channels.close()

    run_async(main)


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:port", "host:0", "host:65536"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UnreachableError, match="is no address"):
        parse_address(text)


def test_more_pending_requests_than_allowed_are_refused_at_once() -> None:
    async def main() -> None:
        async with echo_server() as (server, _):
            channels = Channels(config=NetConfig(pending_requests_max=2))
            connection = await channels.get(server.address)
            waiting = [connection.request(Command(404), 3000) for _ in range(2)]
            with pytest.raises(TooManyRequestsError):
                await connection.request(Command(1), 3000)
            await channels.close()
            for future in waiting:
                with pytest.raises(UnreachableError):
                    await future

    run_async(main)


def test_one_connection_more_than_allowed_is_closed_and_the_others_stay() -> None:
    async def main() -> None:
        async with echo_server(connections_max=1) as (server, handler):
            channels = Channels()
            await channels.request(server.address, Command(1), 3000)
            reader, writer = await raw(server)
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            await end(writer)
            assert (
                await channels.request(server.address, Command(1, body=b"x"), 3000)
            ).body == b"x"
            assert len(handler.open) == 1
            await channels.close()

    run_async(main)


def test_a_silent_connection_is_closed() -> None:
    async def main() -> None:
        async with echo_server(idle_ms=40) as (server, _):
            reader, writer = await raw(server)
            assert await reader.read() == b""
            await end(writer)

    run_async(main)


GARBAGE = {
    "text": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "negative length": struct.pack(">iI", -5, 0) + b"abcdefgh",
    "too long": struct.pack(">iI", 16 * MiB, 0),
    "header longer than the frame": struct.pack(">iI", 8, 500) + b"abcd",
    "unknown encoding": struct.pack(">iI", 8, 7 << 24 | 2) + b"{}  ",
    "no JSON": struct.pack(">iI", 8, 4) + b"}{}{",
    "TLS": bytes.fromhex("1603010200010001fc0303"),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_closes_its_connection_with_one_log_line_and_no_other(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with echo_server() as (server, _):
            channels = Channels()
            await channels.request(server.address, Command(1), 3000)
            reader, writer = await raw(server)
            with caplog.at_level(logging.INFO, "orbitmq.net"):
                writer.write(GARBAGE[name])
                assert await reader.read() == b""
            await end(writer)
            assert (
                await channels.request(server.address, Command(1, body=b"x"), 3000)
            ).body == b"x"
            await channels.close()

    run_async(main)
    lines = [record for record in caplog.records if "closed:" in record.getMessage()]
    assert len(lines) == 1


def test_requests_before_the_garbage_are_answered() -> None:
    async def main() -> None:
        async with echo_server() as (server, _):
            reader, writer = await raw(server)
            good = encode_command(Command(1, opaque=9, body=b"good"))
            writer.write(good + struct.pack(">iI", -1, 0))
            assert (await reader.read()).endswith(b"good")
            await end(writer)

    run_async(main)


def test_a_peer_that_does_not_read_is_not_read_from_and_costs_bounded_memory() -> None:
    async def main() -> None:
        limits = {"write_buffer_bytes": 256 * KiB, "commands_per_turn": 4}
        async with echo_server(**limits) as (server, handler):
            handler.answer_bytes = 1 * MiB
            reader, writer = await raw(server)
            writer.write(b"".join(encode_command(Command(1, opaque=n)) for n in range(300)))
            await until(lambda: handler.open and handler.open[0]._paused)
            for _ in range(50):  # time enough to go on, if it would
                await asyncio.sleep(0)
            handled = sum(handler.reads)
            assert handled < 100  # the rest waits for the peer to read
            got = 0
            while got < 300 * MiB:
                got += len(await reader.read(4 * MiB))
            assert sum(handler.reads) == 300
            await end(writer)

    run_async(main, seconds=60)


class PausedTransport:
    """Keeps what a connection does to its transport."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def get_extra_info(self, name: str) -> Any:
        return None if name == "socket" else ("127.0.0.1", 50_001)

    def set_write_buffer_limits(self, high: int) -> None: ...

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")


def test_nothing_is_read_from_a_peer_until_it_reads() -> None:
    async def main() -> None:
        transport, connection = PausedTransport(), Connection(Echo(), NetConfig())
        connection.connection_made(transport)  # type: ignore[arg-type]

        connection.pause_writing()
        paused = list(transport.calls)
        connection.resume_writing()

        assert paused == ["pause"]
        assert transport.calls == ["pause", "resume"]

    run_async(main)


def test_a_peer_that_never_reads_is_given_up() -> None:
    async def main() -> None:
        limits = {"write_buffer_bytes": 64 * KiB, "write_buffer_bytes_max": 1 * MiB}
        async with echo_server(**limits) as (server, handler):
            handler.answer_bytes = 32 * MiB  # more than the kernel keeps for it
            _, writer = await raw(server)
            writer.write(encode_command(Command(1)))

            await until(lambda: handler.closed)

            await end(writer)

    run_async(main)


def test_what_was_sent_leaves_before_the_connection_is_closed() -> None:
    async def main() -> None:
        async with echo_server() as (server, handler):
            reader, writer = await raw(server)
            await until(lambda: handler.open)

            handler.open[0].send(Command(40, body=b"last"))
            handler.open[0].close()

            assert (await reader.read()).endswith(b"last")
            await end(writer)

    run_async(main)


def test_tls_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with echo_server() as (server, _):
            reader, writer = await raw(server)
            writer.write(GARBAGE["TLS"])
            assert await reader.read() == b""
            await end(writer)

    with caplog.at_level(logging.INFO, "orbitmq.net"):
        run_async(main)
    assert "TLS is not spoken" in caplog.text


def test_a_machine_that_does_not_answer_is_given_up_in_time() -> None:
    async def main() -> None:
        with ExitStack() as stack:
            deaf = stack.enter_context(socket.socket())
            deaf.bind(("127.0.0.1", 0))
            deaf.listen(0)
            for _ in range(8):  # nobody accepts: when its queue is full the next ones hear nothing
                one = stack.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex(deaf.getsockname())
            channels = Channels(None, NetConfig(connect_timeout_ms=50))

            async with asyncio.timeout(15):
                with pytest.raises(UnreachableError, match="no connection within 50 ms"):
                    await channels.get(f"127.0.0.1:{deaf.getsockname()[1]}")

            await channels.close()

    run_async(main)


def test_a_stopped_server_sends_what_it_has_answered() -> None:
    async def main() -> None:
        async with echo_server() as (server, handler):
            reader, writer = await raw(server)
            writer.write(encode_command(Command(1, opaque=1, body=b"last")))
            await until(lambda: handler.reads)
            await server.stop()
            assert (await reader.read()).endswith(b"last")
            await end(writer)

    run_async(main)


def test_random_bytes_never_hurt_a_good_connection() -> None:
    chance = random.Random(5)

    async def main() -> None:
        async with echo_server() as (server, _):
            channels = Channels()
            for _ in range(100):
                reader, writer = await raw(server)
                frame = bytearray(encode_command(Command(1, {"topic": "T"}, b"body")))
                for _ in range(3):
                    frame[chance.randrange(len(frame))] = chance.randrange(256)
                writer.write(bytes(frame))
                writer.write_eof()
                with suppress(ConnectionResetError):
                    await asyncio.wait_for(reader.read(), 5)
                await end(writer)
                answer = await channels.request(server.address, Command(1, body=b"x"), 3000)
                assert answer.body == b"x"
            await channels.close()

    run_async(main)


class Taking(Echo):
    """Takes a first frame as bytes, if it is whole."""

    def __init__(self) -> None:
        super().__init__()
        self.offered: list[int] = []

    def take_bytes(self, connection: Connection, data: bytes) -> int:
        self.offered.append(len(data))
        taken = 4 + int.from_bytes(data[:4])
        if len(self.offered) > 1 or taken > len(data):
            return 0
        connection.send(Command(0, {"code": "taken"}, b"", opaque=1, flag=1))
        return taken


def test_a_handler_that_takes_bytes_sees_them_before_they_are_commands() -> None:
    async def main() -> None:
        handler = Taking()
        server = Server(handler, NetConfig())
        await server.start("127.0.0.1", 0)
        reader, writer = await raw(server)
        first, second = (encode_command(Command(7, {}, b"x" * n, opaque=n)) for n in (10, 5000))
        writer.write(first + second[:100])
        await until(lambda: handler.offered)
        writer.write(second[100:])
        answers = []
        for _ in range(2):
            length = int.from_bytes(await reader.readexactly(4))
            answers.append(await reader.readexactly(length))
        assert b"taken" in answers[0]
        assert answers[1].endswith(b"x" * 5000)
        # The rest of the read is decoded; what waits for more is offered again when it is whole.
        assert handler.offered == [len(first) + 100, len(second)]
        await end(writer)
        await server.stop()

    run_async(main)
