"""The two ports of a broker."""

import socket

import pytest

from orbitmq.broker._ports import Ports
from orbitmq.errors import UnreachableError

HOST = "127.0.0.1"


def listen(port: int) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((HOST, port))
    server.listen()
    return server


def test_a_free_pair_is_found_and_can_be_listened_on_while_it_is_held() -> None:
    with Ports(HOST, 0) as ports:
        assert ports.port - ports.fast_port == 2
        for port in (ports.port, ports.fast_port):
            listen(port).close()


def test_a_port_that_somebody_listens_on_cannot_be_had() -> None:
    with Ports(HOST, 0) as free:
        port = free.port
    with listen(port):
        for taken in (port, port + 2):
            with pytest.raises(UnreachableError, match="listenPort"):
                Ports(HOST, taken)
    Ports(HOST, port).close()
