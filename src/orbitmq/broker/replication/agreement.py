"""Agreement: a replica looks at the epochs of its primary before it takes the first byte of its log.

The connection to the HA port is open by then, so it is this start of the primary that answers: epochs change
at starts only. A primary that knows nothing of epochs (RocketMQ's) is followed as its protocol has it, by
a replica that knows of none either.

the primary's answer                                  | what the replica does
the log here is a beginning of its log                | keeps its epochs, durably, and follows
it is older than what is known here, or another log   | refuses it, with a sentence
the log here has an end that was never its, since a   | wishes that end cut (`store/cut.py`), and has the
  promotion came in between                           |   broker started again
"""

import socket
from typing import Final, NamedTuple

from orbitmq.broker.replication.succession import Succession
from orbitmq.errors import FieldError, RemoteProtocolError, ResponseError
from orbitmq.net.channels import parse_address
from orbitmq.store.epochs import Divergence, Epoch, checked, compare
from orbitmq.store.store import MessageStore
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.replication import EpochsAnswer
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder, encode_command

ASK_MS: Final = 3 * SECOND_MS


class CutError(RemoteProtocolError):
    """The log has to be cut first; the broker is started again for that."""


class Agreed(NamedTuple):
    """What a primary told whose log goes on from ours."""

    log_end: int = 0
    token: int = 0  # what it wants to hear first at its HA port; 0: nothing


class Agreement:
    """What a replica knows of its primary's epochs. Belongs to the replica's thread."""

    def __init__(self, succession: Succession, store: MessageStore, name: str) -> None:
        self._succession, self._store, self._name = succession, store, name

    def reach(self, address: str, hello: bytes = b"") -> Agreed:
        """Find out that the log of the broker at this address goes on from ours; return where it ends.

        `hello` says who asks.
        RemoteProtocolError: it does not. CutError: it does when ours was cut. Without an address, or of a
        broker without epochs, nothing is found out.
        """
        its = self._ask(address, hello) if address else None
        mine = self._succession.epochs
        if its is None:
            if mine.epochs:
                what = "its epochs are not known" if address else "no name server tells where it is"
                step = "so nobody knows whether its log goes on from this one"
                raise RemoteProtocolError(f"{what}, {step}")
            return Agreed()
        if not its.primary or its.broker_name != self._name:
            raise RemoteProtocolError(f"{address} is not the primary of {self._name}")
        try:
            epochs = checked([Epoch(row.number, row.start, row.id) for row in its.epochs])
        except ValueError as error:
            raise RemoteProtocolError(f"its epochs cannot be: {error}") from error
        end = self._store.max_log_offset
        self._follow(compare(mine, end, epochs, its.log_end), address, end)
        self._succession.adopt(epochs)
        return Agreed(its.log_end, its.token)

    def _follow(self, found: Divergence, address: str, end: int) -> None:
        if found.refusal:
            raise RemoteProtocolError(found.refusal)
        if found.cut < 0:
            return
        if found.cut < self._store.min_log_offset:
            what = f"both logs are equal up to {found.cut} only, and this one begins behind that"
            raise RemoteProtocolError(f"{what}: give this replica an empty store")
        count = end - found.cut
        cause = (
            f"{count} bytes that the primary {address} does not have: it was promoted before them"
        )
        self._succession.wish_cut(found.cut, cause)
        raise CutError(f"the log is cut at {found.cut}: it ended with {cause}")

    def _ask(self, address: str, hello: bytes) -> EpochsAnswer | None:
        """Ask for epochs; None: such a broker has none."""
        with socket.create_connection(parse_address(address), ASK_MS / 1000) as connection:
            connection.settimeout(ASK_MS / 1000)
            command = Command(RequestCode.GET_EPOCHS, {}, hello, opaque=1)
            connection.sendall(encode_command(command))
            answer = _read(connection)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark or "", address)
        try:
            return EpochsAnswer.decode(bytes(answer.body))
        except FieldError as error:
            raise RemoteProtocolError(f"its epochs cannot be understood: {error}") from error


def _read(connection: socket.socket) -> Command:
    decoder = FrameDecoder()
    while True:
        data = connection.recv(1 << 16)
        if not data:
            raise ConnectionError("it closed the connection when asked for its epochs")
        commands = decoder.receive(data)
        if decoder.error is not None:
            raise decoder.error
        if commands:
            return commands[0]
