"""GoAway: a server that is about to stop sends its clients elsewhere (GO_AWAY, 1500).

A client that understands it makes a new connection, is not let in any more, and turns to another server;
nothing of its request was done here. Others are served until they leave or the time is over.
"""

from collections.abc import Container
from typing import Final

from orbitmq.net.connection import Connection, ConnectionHandler
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command

UNDERSTOOD_AFTER: Final = 475
"""V5_3_1: clients of later versions understand."""
REMARK: Final = "this server is about to stop: go to another one, or come back when it is up again."


class GoAway(ConnectionHandler):
    """Stands before a handler; requests that are not `kept` and that can be done elsewhere go away."""

    def __init__(self, handler: ConnectionHandler, kept: Container[int]) -> None:
        self._handler, self._kept = handler, kept

    def on_open(self, connection: Connection) -> None:
        self._handler.on_open(connection)

    def on_commands(self, connection: Connection, requests: list[Command]) -> None:
        served = []
        for request in requests:
            if self._is_sent_away(request):
                connection.send(request.answer(ResponseCode.GO_AWAY, REMARK))
            else:
                served.append(request)
        if served:
            self._handler.on_commands(connection, served)

    def on_close(self, connection: Connection, error: Exception | None) -> None:
        self._handler.on_close(connection, error)

    def _is_sent_away(self, request: Command) -> bool:
        # Nobody would hear of a one-way request that is not done.
        understands = request.version > UNDERSTOOD_AFTER and not request.is_oneway
        return understands and request.code not in self._kept
