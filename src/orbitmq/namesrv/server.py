"""NameServer: the table of routes behind a socket.

Name servers know nothing of each other: brokers register with each, clients ask any.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

from orbitmq.clock import Clock, SystemClock
from orbitmq.errors import OrbitError
from orbitmq.files.settings_file import keep_settings
from orbitmq.namesrv.config import NamesrvConfig
from orbitmq.namesrv.handler import NamesrvHandler
from orbitmq.namesrv.kv_config import KvConfig
from orbitmq.namesrv.routes import RouteTable
from orbitmq.net.connection import Connection
from orbitmq.net.server import Server
from orbitmq.net.tasks import PeriodicJobs
from orbitmq.units import SECOND_MS

if TYPE_CHECKING:
    from orbitmq.logs.server_log import ServerLog

logger = logging.getLogger(__name__)

KEPT_TITLE: Final = (
    "# Settings that were changed while the name server ran. Read at its start, when no configuration\n"
    "# file is given; flags and ORBITMQ_ variables win over them.\n"
)

OnWritten = Callable[[Exception | None], None]


class NameServer:
    """A running name server. Belongs to its loop's thread."""

    def __init__(
        self,
        config: NamesrvConfig | None = None,
        *,
        clock: Clock | None = None,
        log: "ServerLog | None" = None,
    ) -> None:
        self.config = config or NamesrvConfig()
        self.clock = clock or SystemClock()
        self.routes = RouteTable(self.clock)
        self.kv = KvConfig(self.config.kv_config_path)
        self._handler = NamesrvHandler(
            self.config, self.clock, self.routes, self.kv, self._save_kv, self._keep_settings, log
        )
        self._jobs = PeriodicJobs()
        self._server = Server(self._handler, self.config.net)
        # One thread: the files of two changes are written in the order of the changes.
        self._writer = ThreadPoolExecutor(1, "kv-config")
        self._saves: set[asyncio.Task[None]] = set()
        self._scan: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        """Where it listens: "host:port"."""
        return self._server.address

    @property
    def port(self) -> int:
        return self._server.port

    async def start(self) -> None:
        """Read the key-value config and listen. OrbitError: one of them cannot be done."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._writer, self.kv.load)
            await self._server.start(self.config.host, self.config.port)
        except BaseException:
            self._writer.shutdown()
            raise
        self._scan_later()
        self._jobs.add("log of requests", 1 * SECOND_MS, self._handler.request_log.tick)

    async def stop(self, grace_ms: float = 3000) -> None:
        """Save what is being saved, answer, close all connections."""
        self._server.stop_listening()
        if self._scan is not None:
            self._scan.cancel()
            self._scan = None
        config = self._handler.config
        if config.graceful_stop:
            await self._server.send_away(config.graceful_stop_ms)
        if self._saves:
            await asyncio.wait(self._saves)
        await self._server.stop(grace_ms)
        await self._jobs.stop()
        self._handler.request_log.close()
        self._writer.shutdown()

    def scan(self) -> None:
        """Forget the brokers that were silent for too long, and close their connections."""
        for broker in self.routes.expire():
            logger.warning("broker %s: gone, silent for too long", broker.broker_name)
            if isinstance(broker.connection, Connection):
                broker.connection.close("the broker was silent for too long")

    def _scan_later(self) -> None:
        interval = self._handler.config.scan_interval_ms / 1000
        self._scan = asyncio.get_running_loop().call_later(interval, self._scan_and_go_on)

    def _scan_and_go_on(self) -> None:
        self.scan()
        self._scan_later()

    def _save_kv(self, on_written: OnWritten) -> None:
        self._write("the key-value config", partial(self.kv.save, self.kv.snapshot()), on_written)

    def _keep_settings(self, changes: Mapping[str, str], on_written: OnWritten) -> None:
        file = self.config.kept_file
        if file is None:
            on_written(None)
        else:
            write = partial(keep_settings, file, changes, title=KEPT_TITLE)
            self._write("settings", write, on_written)

    def _write(self, what: str, write: Callable[[], None], on_written: OnWritten) -> None:
        task = asyncio.ensure_future(self._write_and_tell(what, write, on_written))
        self._saves.add(task)
        task.add_done_callback(self._saves.discard)

    async def _write_and_tell(
        self, what: str, write: Callable[[], None], on_written: OnWritten
    ) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._writer, write)
        except (OrbitError, OSError) as error:
            logger.exception("%s: could not be saved", what)
            on_written(error)
        else:
            on_written(None)
