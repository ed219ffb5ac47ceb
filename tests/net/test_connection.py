"""A connection alone, over a transport that notes what is written."""

import asyncio
from collections.abc import Callable

from orbitmq.net.config import NetConfig
from orbitmq.net.connection import Connection, ConnectionHandler
from orbitmq.wire.command import RESPONSE_FLAG, Command
from orbitmq.wire.frame import FrameDecoder, encode_command


class NotedTransport(asyncio.Transport):
    """Tells what is written, and knows nothing else."""

    def __init__(self, on_write: Callable[[bytes], None]) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.write = on_write

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever held back."""


def test_what_the_first_answers_start_leaves_before_the_others_are_looked_at():
    events: list[str] = []

    async def talk() -> None:
        connection = Connection(ConnectionHandler(), NetConfig())

        def on_write(data: bytes) -> None:
            events.extend(f"sent {c.code}" for c in FrameDecoder().receive(data))

        def ask(code: int) -> None:
            opaque = connection.next_opaque()
            frame = encode_command(Command(code, opaque=opaque))
            connection.exchange(opaque, code, frame, 10_000, lambda answer: on_answer(code))

        def on_answer(code: int) -> None:
            events.append(f"answered {code}")

        connection.connection_made(NotedTransport(on_write))
        for code in range(1, 33):
            ask(code)
        await asyncio.sleep(0)
        answers = [Command(0, opaque=opaque, flag=RESPONSE_FLAG) for opaque in range(1, 33)]
        connection.data_received(b"".join(map(encode_command, answers)))
        # As a thread does that runs the loop for one answer at a time: its next request comes afterwards.
        asyncio.get_running_loop().call_soon(ask, 101)
        for _ in range(10):
            await asyncio.sleep(0)

    asyncio.run(talk())

    assert events.index("answered 1") < events.index("sent 101") < events.index("answered 17")
    assert [event for event in events if event.startswith("answered")] == [
        f"answered {code}" for code in range(1, 33)
    ]


class TakesOdd(ConnectionHandler):
    """Takes frames of requests with an odd code as bytes, one by one; notes the order of everything."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def take_bytes(self, connection: Connection, data: bytes) -> int:
        taken = 4 + int.from_bytes(data[:4])
        (command,) = FrameDecoder().receive(data[:taken]) or [Command(0)]
        if command.is_response or not command.code % 2:
            return 0
        self.events.append(f"taken {command.code}")
        connection.send(command.answer(0))
        return taken

    def on_commands(self, connection: Connection, requests: list[Command]) -> None:
        self.events += [f"request {request.code}" for request in requests]


def test_what_stands_behind_answers_is_offered_as_bytes_in_the_order_in_which_it_came() -> None:
    handler = TakesOdd()
    writes: list[int] = []

    async def talk() -> None:
        connection = Connection(handler, NetConfig())
        connection.connection_made(
            NotedTransport(lambda data: writes.append(len(FrameDecoder().receive(data))))
        )
        for opaque in (1, 2, 3):
            command = Command(326)
            connection.ask(command, 10_000, lambda answer: handler.events.append("answer"))
            assert command.opaque == opaque
        await asyncio.sleep(0)
        writes.clear()
        answer_1, answer_2, answer_3 = (
            encode_command(Command(0, opaque=opaque, flag=RESPONSE_FLAG)) for opaque in (1, 2, 3)
        )
        send_5, send_7, send_9, pull, send_11 = (
            encode_command(Command(code)) for code in (5, 7, 9, 12, 11)
        )
        connection.data_received(answer_1 + send_5 + answer_2 + send_7 + answer_3[:10])
        connection.data_received(answer_3[10:] + send_9 + pull + send_11)
        await asyncio.sleep(0)

    asyncio.run(talk())

    assert handler.events == [
        *("answer", "taken 5", "answer", "taken 7", "answer", "taken 9"),
        # Behind a request that the handler does not take, everything is decoded.
        *("request 12", "request 11"),
    ]
    assert writes == [2, 1]  # what was answered of one read leaves together
