"""Servers as service managers run them: a process, its log, and what it says on NOTIFY_SOCKET."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from command import json_lines
from orbitmq.net.channels import Channels
from orbitmq.wire.command import Command

PATIENCE_S = 30.0


class Manager:
    """The socket of a service manager, in the file system or in Linux's abstract namespace."""

    def __init__(self, address: str) -> None:
        self.said: list[dict[str, str]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self._socket.settimeout(PATIENCE_S)

    def wait_for(self, name: str, value: str = "1") -> dict[str, str]:
        """Return the next notice that says so."""
        while True:
            text = self._socket.recv(4096).decode()
            notice = dict(line.split("=", 1) for line in text.splitlines())
            self.said.append(notice)
            if notice.get(name) == value:
                return notice

    def close(self) -> None:
        self._socket.close()


class ServerProcess:
    """A running server."""

    def __init__(self, process: "subprocess.Popen[str]", manager: Manager, errors: Path) -> None:
        self.process, self.manager, self.errors = process, manager, errors
        self.started = manager.wait_for("READY") if process.poll() is None else {}
        assert process.stdout is not None
        self.ready: dict[str, str] = json.loads(process.stdout.readline())

    def log(self, file: Path | None = None) -> list[dict[str, Any]]:
        return json_lines((file or self.errors).read_text())

    def events(self, event: str, file: Path | None = None) -> list[dict[str, Any]]:
        return [line for line in self.log(file) if line["event"] == event]

    def stop(self) -> int:
        """Ask it to stop, as a service manager does; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        self.manager.wait_for("STOPPING")
        return self.process.wait(PATIENCE_S)


@contextmanager
def server_process(
    folder: Path, command: Sequence[object], address: str = "", **environment: str
) -> Iterator[ServerProcess]:
    """Run a server that says as JSON when it is ready; kill it if it is left at the end."""
    address = address or str(folder / "notify")
    manager, errors = Manager(address), folder / "errors.txt"
    with errors.open("w") as sink:
        process = subprocess.Popen(
            [*map(str, command), "--output", "json"],
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
            env={**os.environ, "NOTIFY_SOCKET": address, **environment},
        )
    try:
        yield ServerProcess(process, manager, errors)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()
        manager.close()


def until(holds: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)  # sleep: another process has to do something


async def ask(channels: Channels, address: str, code: int, **given: Any) -> Command:
    """Send a request and return its answer."""
    return await channels.request(address, Command(code, **given), 10_000)
