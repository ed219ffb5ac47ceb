"""A broker in a fork that has everything imported: up in a moment, to be killed at any other."""

import asyncio
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from compat.java_cluster import broker_settings, write_settings
from compat.server_process import free_port, is_registered
from crash.fork_server import ForkServer
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.net.loop import run

START_SECONDS_MAX = 60.0


def serve(config: str) -> None:
    """Serve until killed; for the fork."""

    async def forever() -> None:
        async with Broker(BrokerConfig.load(Path(config), {})):
            await asyncio.Event().wait()

    run(forever())


class ForkedBroker:
    """The test's end of one broker, at the same address with the same files each time it starts."""

    def __init__(
        self, server: ForkServer, root: Path, namesrv: str, settings: Mapping[str, str]
    ) -> None:
        self._server, self._namesrv, self.root = server, namesrv, root
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        given = {**broker_settings(root, port, namesrv, "broker-a"), **settings}
        self._config = write_settings(root / "broker.conf", given)
        self._pid = 0

    def start(self) -> None:
        """Start, and return once it serves."""
        self._pid = self._server.start({"act": "broker", "config": str(self._config)})
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._is_ready():
            assert time.monotonic() < deadline, f"no broker: {self.tail()}"
            time.sleep(0.01)

    def _is_ready(self) -> bool:
        try:
            return is_registered(self.address, self._namesrv)
        except OSError:
            return False

    def kill(self) -> None:
        """End it with SIGKILL: it gets no chance to save anything."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            self._pid = 0
            assert self._server.wait() == -signal.SIGKILL

    def tail(self) -> str:
        """Return the end of what it and those before it have said."""
        return self._server.log.read_text()[-3000:]
