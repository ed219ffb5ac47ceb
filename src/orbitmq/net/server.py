"""A listening socket and the connections that came through it."""

import asyncio
import logging
import os
from collections.abc import Container

from orbitmq.errors import UnreachableError
from orbitmq.net.config import NetConfig
from orbitmq.net.connection import Connection, ConnectionHandler
from orbitmq.net.go_away import GoAway
from orbitmq.net.spin import Spin

_log = logging.getLogger(__name__)


class Server(ConnectionHandler):
    """Accepts connections for a handler, and is theirs until they are in. Belongs to its loop's thread."""

    def __init__(self, handler: ConnectionHandler, config: NetConfig | None = None) -> None:
        self.connections: set[Connection] = set()
        self.host, self.port = "", 0
        self._handler = handler
        self._config = config or NetConfig()
        self._server: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._spin: Spin | None = None
        self._refused = 0

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one. UnreachableError: the address cannot be had."""
        loop = asyncio.get_running_loop()
        self._spin = Spin(loop)
        try:
            self._server = await loop.create_server(
                self._new_connection,
                host,
                port,
                backlog=self._config.backlog,
                reuse_address=True,
            )
        except OSError as cause:
            step = "Choose another port, or end the program that has it."
            what = f"cannot listen: {os.strerror(cause.errno) if cause.errno else cause}"
            raise UnreachableError(f"{host}:{port}", what, step) from cause
        self.host, self.port = self._server.sockets[0].getsockname()[:2]
        self._schedule_sweep(loop)

    def _new_connection(self) -> Connection:
        return Connection(self, self._config, on_lost=self.connections.discard, spin=self._spin)

    def on_open(self, connection: Connection) -> None:
        """Take a connection in, or close it because there are too many: nobody hears of it then."""
        if len(self.connections) >= self._config.connections_max:
            self._refused += 1
            if (
                self._refused & (self._refused - 1) == 0
            ):  # 1st, 2nd, 4th, 8th: not one line for each
                _log.warning(
                    "connection %s: closed: %d connections are open already (%d refused so far)",
                    connection.peer,
                    len(self.connections),
                    self._refused,
                )
            connection.abort()
            return
        self.connections.add(connection)
        connection.use(self._handler)
        self._handler.on_open(connection)

    def _schedule_sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweep = loop.call_later(self._config.idle_ms / 4000, self._close_idle, loop)

    def _close_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        oldest = loop.time() - self._config.idle_ms / 1000
        for connection in [c for c in self.connections if c.active_at < oldest]:
            connection.close(f"silent for {self._config.idle_ms // 1000} s")
        self._schedule_sweep(loop)

    def stop_listening(self) -> None:
        """Accept no more connections; those that are there stay."""
        if self._server is not None:
            self._server.close()

    async def send_away(self, wait_ms: float, kept: Container[int] = ()) -> None:
        """Accept nobody, send away who is there (`GoAway`), and wait so long for them to leave."""
        self.stop_listening()
        handler = GoAway(self._handler, kept)
        leaving = list(self.connections)
        for connection in leaving:
            connection.use(handler)
        if leaving:
            waits = [asyncio.ensure_future(connection.wait_closed()) for connection in leaving]
            await asyncio.wait(waits, timeout=wait_ms / 1000)
            for wait in waits:
                wait.cancel()

    async def stop(self, grace_ms: float = 3000) -> None:
        """Close everything; what was sent gets so long to leave."""
        if self._server is None:
            return
        self.stop_listening()
        if self._sweep is not None:
            self._sweep.cancel()
        closing = list(self.connections)
        for connection in closing:
            connection.close()
        waits = [asyncio.ensure_future(connection.wait_closed()) for connection in closing]
        if waits:
            _, late = await asyncio.wait(waits, timeout=grace_ms / 1000)
            for connection in list(self.connections):
                connection.abort()
            if late:
                await asyncio.wait(late, timeout=1)
        await self._server.wait_closed()
        self._server = None
