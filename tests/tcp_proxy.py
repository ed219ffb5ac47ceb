"""A way between two programs that a test can cut: bytes are passed on, or lost without a word."""

import socket
import threading
from contextlib import suppress
from typing import Final

_READ_BYTES: Final = 1 << 16
_SECONDS: Final = 0.05


class TcpProxy:
    """Passes on what comes to an address. While it is cut it passes on nothing, and closes nothing."""

    def __init__(self, listen: tuple[str, int], to: tuple[str, int]) -> None:
        self._to = to
        self._server = socket.create_server(listen)
        self.port = int(self._server.getsockname()[1])
        self._open = threading.Event()
        self._open.set()
        self._ended = False
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._open.clear()

    def heal(self) -> None:
        """Pass on again; connections that were there are closed, as after a long cut."""
        sockets, self._sockets = self._sockets, []
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open.set()

    def close(self) -> None:
        self._ended = True
        self._server.close()
        self.heal()

    def _accept(self) -> None:
        while not self._ended:
            try:
                here, _ = self._server.accept()
            except OSError:
                return
            self._sockets.append(here)
            threading.Thread(target=self._pass, args=(here,), daemon=True).start()

    def _pass(self, here: socket.socket) -> None:
        with here:
            self._open.wait()
            try:
                there = socket.create_connection(self._to, timeout=5)
            except OSError:
                return
            with there:
                there.settimeout(None)
                self._sockets.append(there)
                back = threading.Thread(target=self._copy, args=(there, here), daemon=True)
                back.start()
                self._copy(here, there)
                back.join()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(_READ_BYTES):
                self._open.wait()
                target.sendall(data)
        except OSError:
            pass
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
