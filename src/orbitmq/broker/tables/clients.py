"""ClientConnection: one client of a group, and the connection that it speaks on."""

from dataclasses import dataclass

from orbitmq.net.connection import Connection


@dataclass(slots=True)
class ClientConnection:
    """A client as its heartbeats describe it."""

    connection: Connection
    client_id: str
    language: str
    version: int
    heard_ms: int  # when its last heartbeat came
