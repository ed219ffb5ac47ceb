"""A whole broker inside a test: real sockets on free loopback ports, a store that goes away with it.

with Broker() as broker, Producer(broker.namesrv, "test") as producer:
    producer.send(Message("Orders", b"hello"))
"""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

from orbitmq.broker.broker import Broker as LiveBroker
from orbitmq.broker.config import BrokerConfig
from orbitmq.files.disk import Disk
from orbitmq.namesrv.config import NamesrvConfig
from orbitmq.namesrv.server import NameServer
from orbitmq.net.loop import new_event_loop
from orbitmq.units import MiB

T = TypeVar("T")

LOOPBACK = "127.0.0.1"
# Segments are allocated in full, so a test's store has small ones.
SMALL_STORE = {"mappedFileSizeCommitLog": str(16 * MiB), "maxIndexNum": "200000"}


class Broker:
    """A name server and a broker in a thread of their own. Any thread may use it."""

    def __init__(
        self,
        store: Path | str | None = None,
        *,
        name: str = "broker-a",
        settings: Mapping[str, str] | None = None,
        disk: Disk | None = None,
    ) -> None:
        """`store` is kept if it is given; `settings` are RocketMQ's broker.conf keys.

        `disk` is where the messages go, `FaultyDisk` for example.
        """
        self.name, self.disk = name, disk
        self.namesrv = ""
        self.address = ""
        self._given_store = Path(store) if store is not None else None
        self._settings = dict(settings or {})
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._temporary: Path | None = None
        self._namesrv: NameServer | None = None
        self._broker: LiveBroker | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = f"namesrv={self.namesrv!r}, address={self.address!r}" if self._thread else "stopped"
        return f"Broker({self.name!r}, {state})"

    @property
    def store_path(self) -> Path:
        """Where the messages lie."""
        path = self._given_store or self._temporary
        if path is None:
            raise RuntimeError("the broker has not been started")
        return path

    def start(self) -> None:
        """Start; ready for clients when this returns."""
        if self._thread is not None:
            raise RuntimeError("the broker is running already")
        if self._given_store is None and self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="orbitmq-test-"))
        self._loop = new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="orbitmq-test-broker", daemon=True
        )
        self._thread.start()
        try:
            self._call(self._start())
        except BaseException:
            self.stop()
            raise

    def restart(self) -> None:
        """Stop cleanly and start again on the same store and the same ports; the name server stays."""
        with self.down():
            pass

    @contextmanager
    def down(self) -> Iterator[None]:
        """Stop cleanly for the time of the block; then as `restart`. What do clients do meanwhile?"""
        if self._thread is None:
            raise RuntimeError("the broker is not running")
        self._call(self._stop_broker())
        try:
            yield
        finally:
            self._call(self._start_broker())

    def wait_dispatched(self, timeout: float = 60.0) -> None:
        """Wait until everything that was sent so far is in its queue: an answer may be faster.

        Raises TimeoutError after `timeout` seconds: a test that went on would look at half of its messages.
        """
        if self._thread is None:
            raise RuntimeError("the broker is not running")
        self._call(self._dispatched(timeout))

    async def _dispatched(self, timeout: float) -> None:
        assert self._broker is not None
        store = self._broker.context.store
        loop = asyncio.get_running_loop()
        if not await loop.run_in_executor(None, lambda: store.wait_dispatched(timeout=timeout)):
            behind = store.max_log_offset - store.dispatched_offset
            raise TimeoutError(
                f"the dispatch of {self.name} is {behind} bytes behind after {timeout:g} s: it is held up"
                " or has failed, see the broker's log"
            )

    def stop(self) -> None:
        """Stop cleanly and leave nothing behind. A second call does nothing.

        StoreError: the disk failed, and not all of the store is surely on it.
        """
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        try:
            try:
                self._call(self._stop())
            finally:
                self._call(loop.shutdown_default_executor())  # else its threads outlive the loop
        finally:
            self._loop = self._thread = None
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
            self.namesrv = self.address = ""
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)
                self._temporary = None

    def _call(self, what: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    async def _start(self) -> None:
        self._namesrv = NameServer(NamesrvConfig(host=LOOPBACK, port=0))
        await self._namesrv.start()
        self.namesrv = self._namesrv.address
        await self._start_broker()

    async def _start_broker(self) -> None:
        port = self.address.rpartition(":")[2] or "0"
        settings = {
            **SMALL_STORE,
            "brokerName": self.name,
            "brokerIP1": LOOPBACK,
            "bindAddress": LOOPBACK,
            "listenPort": port,
            "namesrvAddr": self.namesrv,
            "storePathRootDir": str(self.store_path),
            **self._settings,
        }
        self._broker = LiveBroker(BrokerConfig.from_settings(settings), disk=self.disk)
        await self._broker.start()
        self.address = self._broker.address

    async def _stop(self) -> None:
        try:
            await self._stop_broker()
        finally:
            if self._namesrv is not None:
                await self._namesrv.stop()
                self._namesrv = None

    async def _stop_broker(self) -> None:
        if self._broker is not None:
            broker, self._broker = self._broker, None
            await broker.stop()
