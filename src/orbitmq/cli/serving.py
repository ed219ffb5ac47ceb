"""What the commands that run servers share: log options, signals, who hears what it does."""

import logging
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbitmq.cli.output import Output, print_ready

if TYPE_CHECKING:
    from orbitmq.logs.server_log import ServerLog

logger = logging.getLogger("orbitmq.server")

LogLevel = Annotated[
    str | None,
    typer.Option(help="debug, info, warning or error (logLevel); default info."),
]
LogFile = Annotated[
    Path | None,
    typer.Option(
        dir_okay=False,
        help="Log to this file as JSON lines (logFile) instead of standard error; it is rotated by size "
        "(logFileBytes, logFileCount) and opened again on SIGHUP.",
    ),
]


def log_flags(level: str | None, file: Path | None) -> dict[str, object]:
    """Return the settings that the log options set."""
    return {"logLevel": level, "logFile": None if file is None else file.absolute()}


class Serving:
    """A server's process: when it is to stop, and who hears what it is doing."""

    def __init__(self, log: "ServerLog") -> None:
        import asyncio

        from orbitmq.cli.service_manager import ServiceManager

        self.log = log
        self.stop = asyncio.Event()
        self._manager = ServiceManager()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)

    def starting(self, text: str) -> None:
        """Say what the start is busy with."""
        logger.info("starting: %s", text)
        self._manager.starting(text)

    def ready(self, value: dict[str, str], text: str, output: Output) -> None:
        """Say that clients are served: to people or programs, to the log, to the service manager."""
        print_ready(value, text, output)
        # A log record has a `name` already.
        logger.info("ready", extra={{"name": "broker_name"}.get(k, k): v for k, v in value.items()})
        self._manager.ready(", ".join(f"{name} {it}" for name, it in value.items()))

    def stopping(self, text: str = "stopping") -> None:
        """Say that the end has begun."""
        logger.info(text)
        self._manager.stopping()

    def ended(self) -> None:
        self._manager.close()

    def _hang_up(self) -> None:
        """Open the log file again; without one the terminal is gone, and that ends a server."""
        if self.log.config.file is None:
            self.stop.set()
        else:
            self.log.reopen()


def run_serving(log: "ServerLog", main: Callable[[Serving], Coroutine[Any, Any, None]]) -> None:
    """Run a server to its end."""
    from orbitmq.net.loop import run_server

    async def serve() -> None:
        serving = Serving(log)
        try:
            await main(serving)
        finally:
            serving.ended()

    run_server(serve())


@contextmanager
def server_log() -> "Iterator[ServerLog]":
    """Give the process's log; what is logged before its settings are known waits for them."""
    from orbitmq.logs.server_log import ServerLog

    with ServerLog() as log:
        yield log
