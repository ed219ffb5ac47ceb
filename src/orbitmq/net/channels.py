"""Outgoing connections by address: one each, made when it is first needed and again after it broke."""

import asyncio
import logging

from orbitmq.errors import UnreachableError
from orbitmq.net.config import NetConfig
from orbitmq.net.connection import Connection, ConnectionHandler
from orbitmq.wire.command import Command

_log = logging.getLogger(__name__)


class SilentHandler(ConnectionHandler):
    """For those who are never asked anything: requests of the peer are not answered."""

    def on_commands(self, connection: Connection, requests: list[Command]) -> None:
        codes = sorted({request.code for request in requests})
        _log.debug("%s: requests that nobody handles: %s", connection.peer, codes)


class Channels:
    """Connections to other programs. Belongs to its loop's thread."""

    def __init__(
        self, handler: ConnectionHandler | None = None, config: NetConfig | None = None
    ) -> None:
        self._handler: ConnectionHandler = handler or SilentHandler()
        self._config = config or NetConfig()
        self._open: dict[str, Connection] = {}
        self._opening: dict[str, asyncio.Task[Connection]] = {}
        self._retired: set[Connection] = set()
        self._closed = False

    @property
    def addresses(self) -> list[str]:
        return list(self._open)

    def get_nowait(self, address: str) -> Connection | None:
        """Return the connection to this address if there is one."""
        connection = self._open.get(address)
        return connection if connection is not None and not connection.closed else None

    async def get(self, address: str) -> Connection:
        """Return the connection to this address, a new one if there is none. UnreachableError."""
        connection = self.get_nowait(address)
        if connection is not None:
            return connection
        if self._closed:
            raise UnreachableError(address, "this client is closed")
        task = self._opening.get(address)
        if task is None:
            task = asyncio.ensure_future(self._connect(address))
            self._opening[address] = task
            task.add_done_callback(lambda done: self._opened(address, done))
        return await asyncio.shield(task)

    def _opened(self, address: str, task: "asyncio.Task[Connection]") -> None:
        self._opening.pop(address, None)
        if not task.cancelled():
            task.exception()  # those who waited got it; if nobody did, nobody needs it

    async def _connect(self, address: str) -> Connection:
        host, port = parse_address(address)
        loop = asyncio.get_running_loop()
        step = "Is the program running there, and may this machine reach it?"
        try:
            async with asyncio.timeout(self._config.connect_timeout_ms / 1000):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._handler, self._config, on_lost=self._lost), host, port
                )
        except TimeoutError:
            what = f"no connection within {self._config.connect_timeout_ms} ms"
            raise UnreachableError(address, what, step) from None
        except OSError as cause:
            what = f"no connection: {cause.strerror or cause}"
            raise UnreachableError(address, what, step) from cause
        if self._closed:
            connection.close()
            raise UnreachableError(address, "this client is closed")
        connection.owner_data["address"] = address
        self._open[address] = connection
        return connection

    def _lost(self, connection: Connection) -> None:
        self._retired.discard(connection)
        address = connection.owner_data.get("address", "")
        if self._open.get(address) is connection:
            del self._open[address]

    async def request(self, address: str, command: Command, timeout_ms: float) -> Command:
        """Send a request and wait for the answer; connecting counts towards the timeout. WireError."""
        connection = self.get_nowait(address)
        if connection is None:
            loop = asyncio.get_running_loop()
            started = loop.time()
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    connection = await self.get(address)
            except TimeoutError:
                what = f"no connection within {timeout_ms:.0f} ms"
                raise UnreachableError(address, what) from None
            timeout_ms = max(timeout_ms - (loop.time() - started) * 1000, 1)
        return await connection.request(command, timeout_ms)

    async def oneway(self, address: str, command: Command) -> None:
        """Send a request that is not answered. UnreachableError: there is no connection."""
        (await self.get(address)).oneway(command)

    def retire(self, address: str, after_ms: float) -> None:
        """Make a new connection at the next request; the old one may finish what is on its way."""
        connection = self._open.pop(address, None)
        if connection is not None:
            self._retired.add(connection)
            asyncio.get_running_loop().call_later(after_ms / 1000, connection.close)

    async def close(self) -> None:
        """Close everything; later calls fail."""
        self._closed = True
        for task in list(self._opening.values()):
            task.cancel()
        closing = [*self._open.values(), *self._retired]
        for connection in closing:
            connection.close()
        waits = [asyncio.ensure_future(connection.wait_closed()) for connection in closing]
        if waits:
            await asyncio.wait(waits, timeout=1)
        for connection in closing:
            connection.abort()


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of "host:port" or "[v6]:port". UnreachableError: it is neither."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UnreachableError(address, "is no address", "Write host:port, as in 127.0.0.1:9876.")
    return host.removeprefix("[").removesuffix("]"), int(port)
