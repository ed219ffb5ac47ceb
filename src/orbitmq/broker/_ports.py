"""Ports: a broker's two ports, held while its store is opened.

A record carries the broker's port, so the port is needed before the store is opened; and whoever starts a
broker twice should hear of it before a long recovery, not after.
"""

import socket
from typing import Final, Self

from orbitmq.broker.config import FAST_PORT_GAP
from orbitmq.errors import UnreachableError

_TRIES: Final = 100


class Ports:
    """Two bound sockets that do not listen. A server may listen on the same ports meanwhile."""

    def __init__(self, host: str, port: int) -> None:
        """Bind both; port 0 takes a free pair. UnreachableError: another program has one of them."""
        self._sockets: list[socket.socket] = []
        self._host = host
        for _ in range(1 if port else _TRIES):
            try:
                self.port = self._bind(port)
                self.fast_port = self._bind(self.port - FAST_PORT_GAP)
            except OSError as cause:
                self.close()
                error = cause
            else:
                return
        what = f"cannot listen there and on port - {FAST_PORT_GAP}: {error.strerror or error}"
        step = "Choose another port (listenPort), or end the program that has it."
        raise UnreachableError(f"{host}:{port}", what, step) from error

    def _bind(self, port: int) -> int:
        family, _, _, _, address = socket.getaddrinfo(
            self._host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        self._sockets.append(bound)
        # With this option on both, a second socket may be bound there as long as one only listens.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        return int(bound.getsockname()[1])

    def close(self) -> None:
        """Let go of the ports, once the servers listen."""
        sockets, self._sockets = self._sockets, []
        for bound in sockets:
            bound.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
