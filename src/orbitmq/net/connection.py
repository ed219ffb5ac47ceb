"""One connection: frames in and out, requests in both directions, limits.

All requests of one read are handed over together, and all answers given meanwhile leave in one write.
A peer that does not read what it asked for is not read from until it does.
"""

import asyncio
import ipaddress
import logging
import socket
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final, Protocol, cast, runtime_checkable

from orbitmq.errors import (
    RemoteProtocolError,
    RequestTimeoutError,
    TooManyRequestsError,
    UnreachableError,
    WireError,
)
from orbitmq.message import Host
from orbitmq.net.config import NetConfig
from orbitmq.net.file_parts import Part, PartSender, views
from orbitmq.net.spin import Spin
from orbitmq.wire.codes import VERSION
from orbitmq.wire.command import ONEWAY_FLAG, Command, Encoding, Opaques
from orbitmq.wire.frame import FrameDecoder, encode_command, encode_prefix

_log = logging.getLogger(__name__)

_TLS_HELLO: Final = 0x16
_ANSWERS_PER_TURN: Final = 8
"""Of more in one read half have their turn later: what the first half starts leaves before, so that the
peer has something to do while the second half is looked at."""
_SWEEP_PAUSE_S: Final = 0.005
"""Requests that were not answered are looked for no more often than this."""


class ConnectionHandler:
    """What happens on connections. Called in the loop's thread; must not block.

    A subclass does nothing with what it does not define.
    """

    def on_open(self, connection: "Connection") -> None:
        """A connection is there; nothing came yet."""

    def on_commands(self, connection: "Connection", requests: list[Command]) -> None:
        """These requests came, in this order. Answer with `connection.send`, now or later."""

    def on_close(self, connection: "Connection", error: Exception | None) -> None:
        """The connection is gone; nothing can be sent any more."""


@runtime_checkable
class TakesBytes(Protocol):
    """A handler that looks at bytes before they are decoded."""

    def take_bytes(self, connection: "Connection", data: bytes) -> int:
        """Handle the frames that these bytes begin with, as far as it likes; return their length."""


OnAnswer = Callable[[Command | WireError], None]
"""Gets what became of a request: the answer, whatever its code, or why there is none. Must not raise."""


_Pending = tuple[OnAnswer, float, int]
"""A request of ours without an answer yet: whom to tell, until when (loop time), and its code."""


class Connection(asyncio.Protocol):
    """One socket. Belongs to its loop's thread."""

    def __init__(
        self,
        handler: ConnectionHandler,
        config: NetConfig,
        *,
        on_lost: "Callable[[Connection], None] | None" = None,
        spin: Spin | None = None,
    ) -> None:
        self.peer = ""
        self.local = ""
        self.peer_host = Host(b"\x00\x00\x00\x00", 0)
        self.encoding = Encoding.JSON
        self.language = "OTHER"
        self.version = VERSION
        self.closed = False
        self.active_at = 0.0  # loop time of the last read or write
        self.owner_data: dict[str, Any] = {}
        self._config, self._on_lost, self._spin = config, on_lost, spin
        self.use(handler)
        self._decoder = FrameDecoder(config.frame_bytes_max)
        self.next_opaque = Opaques().next
        """The number of the next request, for a frame that somebody else makes."""
        self._waiting: dict[int, _Pending] = {}
        self._answers: deque[Command] = deque()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._sweep_at = 0.0
        self._out: list[Part] = []
        self._has_views = False  # something in _out is no bytes
        self._backlog: list[Command] = []
        self._in_turn = False  # a flush follows anyway
        self._paused = False
        self._started = False
        self._loop: asyncio.AbstractEventLoop = cast(asyncio.AbstractEventLoop, None)
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._sender: PartSender = cast(PartSender, None)
        self._gone: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<Connection {self.peer}{' closed' if self.closed else ''}>"

    def use(self, handler: ConnectionHandler) -> None:
        """Have this handler told what happens from now on."""
        self._handler = handler
        self._take_bytes = handler.take_bytes if isinstance(handler, TakesBytes) else None

    # --- what the loop calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._sender = PartSender(self._transport)
        self._loop = asyncio.get_running_loop()
        self._gone = self._loop.create_future()
        self.active_at = self._loop.time()
        self.peer, self.peer_host = _address(transport.get_extra_info("peername"))
        self.local, _ = _address(transport.get_extra_info("sockname"))
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.set_write_buffer_limits(high=self._config.write_buffer_bytes)
        self._handler.on_open(self)

    def data_received(self, data: bytes) -> None:
        self.active_at = monotonic()  # the loop's clock, but not of the beginning of its turn
        if not self._started:
            self._started = True
            if data[0] == _TLS_HELLO:
                self.close("TLS is not spoken on this port; connect without it (useTLS=false)")
                return
        if self._take_bytes is not None and not self._paused and not self._backlog:
            data = self._offer(self._take_bytes, self._decoder.with_waiting(data))
        commands = self._decoder.receive(data)
        if commands:
            self._take(commands)
        if self._decoder.error is not None and not self.closed:
            self._give_up(self._decoder.error)
        if self._spin is not None:
            self._spin.after_read()

    def pause_writing(self) -> None:
        self._paused = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        if self.closed:
            return
        self._drain()
        if not self._paused:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._out.clear()
        self._backlog.clear()
        self._sender.close()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)
        self._handler.on_close(self, exc)
        if self._on_lost is not None:
            self._on_lost(self)
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        while self._answers:
            self._answered(self._answers.popleft())
        pending, self._waiting = self._waiting, {}
        for on_answer, _, _ in pending.values():
            what = "the connection broke before the answer came"
            on_answer(UnreachableError(self.peer, what))

    def _offer(self, take_bytes: Callable[["Connection", bytes], int], data: bytes) -> bytes:
        """Let the handler take what it can; return the rest.

        A peer that was asked sends its next requests right behind its answers: those are taken first.
        """
        rest, self._in_turn = self._answers_first(data), True
        try:
            while rest and not self._paused and not self._backlog and not self.closed:
                taken = take_bytes(self, rest)
                if not taken:
                    break
                left = rest[taken:]
                rest = self._answers_first(left)
                if rest is left:
                    break  # no answers, but nothing for the handler either
        finally:
            self._in_turn = False
        self._flush()
        return rest

    def _answers_first(self, data: bytes) -> bytes:
        """Take the answers that these bytes begin with; return the rest, the same bytes if there are none."""
        if not self._waiting or not data:
            return data
        answers, rest = self._decoder.answers_first(data)
        if answers:
            self._take(answers)
        return rest

    # --- commands that came ---

    def _take(self, commands: list[Command]) -> None:
        last = commands[-1]
        self.encoding, self.language, self.version = last.encoding, last.language, last.version
        requests = [command for command in commands if not command.flag & 1]
        if len(requests) != len(commands):
            is_waiting = bool(self._answers)  # for its turn already
            self._answers.extend(command for command in commands if command.flag & 1)
            if not is_waiting:
                self._deliver()
        if requests:
            self._backlog += requests
            if not self._paused:
                self._drain()

    def _drain(self) -> None:
        """Hand requests over, a few at a time: an answer may be a thousand times its request."""
        step = self._config.commands_per_turn
        self._in_turn = True
        try:
            while self._backlog and not self._paused and not self.closed:
                requests, self._backlog = self._backlog[:step], self._backlog[step:]
                self._handler.on_commands(self, requests)
                self._flush()
        finally:
            self._in_turn = False
        self._flush()

    def _deliver(self) -> None:
        """Hand answers over, a few in each turn of the loop."""
        if not self._in_turn:
            self._flush()
        answers = self._answers
        count = max(len(self._waiting) // 2, _ANSWERS_PER_TURN)
        for _ in range(min(len(answers), count)):
            self._answered(answers.popleft())
        if answers:
            self._loop.call_soon(self._deliver_rest)

    def _deliver_rest(self) -> None:
        # Whoever runs the loop for one answer at a time has calls for it now: they come first.
        self._loop.call_soon(self._deliver)

    def _answered(self, command: Command) -> None:
        one = self._waiting.pop(command.opaque, None)
        if one is None:
            _log.debug(
                "%s: an answer that nobody waits for (any more): %d", self.peer, command.code
            )
            return
        one[0](command)

    # --- sending ---

    def send(self, command: Command) -> None:
        """Send a command; everything sent in one turn of the loop leaves in one write."""
        self.send_frame(encode_command(command))

    def send_frame(self, frame: bytes) -> None:
        """Send bytes that are a whole frame already."""
        if self.closed:
            return
        if not self._out and not self._in_turn:
            self._loop.call_soon(self._flush)
        self._out.append(frame)

    def send_parts(self, command: Command, parts: Sequence[bytes | memoryview]) -> None:
        """Send a command whose body is these parts; they are copied before this returns."""
        size = sum(map(len, parts))
        self.send_frame(b"".join((encode_prefix(command, size), *parts)))

    def send_views(self, command: Command, parts: Sequence[Part]) -> None:
        """Send a command whose body is these parts; they are held, not copied, until they have left."""
        if self.closed:
            return
        self.send_frame(encode_prefix(command, sum(map(len, views(parts)))))
        self._out += parts
        self._has_views = True

    def oneway(self, command: Command) -> None:
        """Send a request that the peer does not answer."""
        command.flag |= ONEWAY_FLAG
        command.opaque = self.next_opaque()
        self.send(command)

    def request(self, command: Command, timeout_ms: float) -> "asyncio.Future[Command]":
        """Send a request; the future gets the answer, whatever its code, or a WireError."""
        future: asyncio.Future[Command] = self._loop.create_future()

        def settle(answer: Command | WireError) -> None:
            if future.done():
                return
            if isinstance(answer, WireError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        self.ask(command, timeout_ms, settle)
        return future

    def ask(self, command: Command, timeout_ms: float, on_answer: OnAnswer) -> None:
        """Send a request; `on_answer` is called once, perhaps at once, with the answer or a WireError."""
        command.opaque = self.next_opaque()
        try:
            frame = encode_command(command)
            self.exchange(command.opaque, command.code, frame, timeout_ms, on_answer)
        except WireError as refused:
            on_answer(refused)

    def exchange(
        self, opaque: int, code: int, frame: bytes, timeout_ms: float, on_answer: OnAnswer
    ) -> None:
        """Send a request that is a frame already; `on_answer` is called once. WireError: not sent."""
        if self.closed:
            raise UnreachableError(self.peer, "the connection is closed")
        waiting = self._waiting
        if len(waiting) >= self._config.pending_requests_max:
            what = f"{len(waiting)} requests wait for answers already"
            raise TooManyRequestsError(self.peer, what)
        deadline = self._loop.time() + timeout_ms / 1000
        if self._sweep_timer is None or deadline < self._sweep_at:
            self._sweep_by(deadline)
        is_alone, is_first = not waiting, not self._out and not self._in_turn
        waiting[opaque] = (on_answer, deadline, code)
        self._out.append(frame)
        if is_first and is_alone:
            self._flush()  # nothing to wait for
        elif is_first:  # what comes later in this turn leaves with it
            self._loop.call_soon(self._flush)

    def _sweep_by(self, deadline: float) -> None:
        """Look for late answers at this time. One timer for all: hardly any request is ever late."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._sweep_at = deadline
        self._sweep_timer = self._loop.call_at(deadline, self._sweep)

    def _sweep(self) -> None:
        self._sweep_timer = None
        now = self._loop.time()
        late = [opaque for opaque, (_, deadline, _) in self._waiting.items() if deadline <= now]
        for opaque in late:
            one = self._waiting.pop(opaque, None)
            if one is not None:
                what = f"no answer in time to request code {one[2]}"
                one[0](RequestTimeoutError(self.peer, what))
        if self._waiting and self._sweep_timer is None:
            earliest = min(deadline for _, deadline, _ in self._waiting.values())
            self._sweep_by(max(earliest, now + _SWEEP_PAUSE_S))

    def _flush(self) -> None:
        if not self._out or self.closed:
            return
        frames, self._out = self._out, []
        self.active_at = self._loop.time()
        if self._has_views:
            self._has_views = False
            self._sender.send(frames)
        else:
            plain = cast(list[bytes], frames)
            self._transport.write(plain[0] if len(plain) == 1 else b"".join(plain))
        if self._paused:
            held = self._transport.get_write_buffer_size()
            if held > self._config.write_buffer_bytes_max:
                self._give_up(RemoteProtocolError(f"{held} bytes wait that it does not read"))

    # --- the end ---

    def close(self, reason: str = "") -> None:
        """Send what is waiting and close."""
        if self.closed:
            return
        if reason:
            _log.info("connection %s: closed: %s", self.peer, reason)
        self._flush()
        self.closed = True
        self._transport.close()

    def _give_up(self, error: WireError) -> None:
        _log.warning("connection %s: closed: %s", self.peer, error)
        self._flush()
        self.closed = True
        if self._paused:
            self._transport.abort()
        else:
            self._transport.close()

    async def wait_closed(self) -> None:
        """Wait until the socket is gone."""
        if self._gone is not None:
            await asyncio.shield(self._gone)

    def abort(self) -> None:
        """Close without sending what is waiting."""
        self.closed = True
        self._transport.abort()


def _address(name: Any) -> tuple[str, Host]:
    """Return a socket's name as text and as a host; Java writes both kinds of address this way."""
    if not isinstance(name, tuple) or len(name) < 2:
        return str(name or "unknown"), Host(b"\x7f\x00\x00\x01", 0)
    address = ipaddress.ip_address(str(name[0]).partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    port = int(name[1])
    text = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
    return text, Host(address.packed, port)
