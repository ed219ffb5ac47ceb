"""What a service manager hears of a server: ready, stopping, still alive (systemd's sd_notify protocol)."""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping

logger = logging.getLogger(__name__)


class ServiceManager:
    """Whoever set NOTIFY_SOCKET; nobody, if it is not set. Belongs to the event loop's thread."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._watch_s = _watchdog_seconds(environment)
        self._timer: asyncio.TimerHandle | None = None

    def starting(self, status: str) -> None:
        """Say what the start is busy with."""
        self._say(STATUS=status)

    def ready(self, status: str) -> None:
        """Say that clients are served; from now on say regularly that the loop is alive."""
        self._say(READY="1", STATUS=status)
        if self._watch_s:
            self._beat()

    def stopping(self) -> None:
        """Say that the end has begun. The loop stays watched: a stop that hangs is noticed too."""
        self._say(STOPPING="1", STATUS="stopping")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        self._say(WATCHDOG="1")
        self._timer = asyncio.get_running_loop().call_later(self._watch_s / 2, self._beat)

    def _say(self, **state: str) -> None:
        if not self._address:
            return
        # "@name" is a socket in Linux's abstract namespace, written with a zero byte.
        address = f"\0{self._address[1:]}" if self._address[0] == "@" else self._address
        text = "\n".join(f"{name}={value}" for name, value in state.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)  # a manager that does not listen must not stop the loop
                sender.sendto(text.encode(), address)
        except OSError as error:
            logger.warning("the service manager is not reached: %s", error)


def _watchdog_seconds(environment: Mapping[str, str]) -> float:
    """Return within which time the manager wants to hear of us; 0: it does not."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0
    text = environment.get("WATCHDOG_USEC", "")
    return int(text) / 1_000_000 if text.isdecimal() else 0
