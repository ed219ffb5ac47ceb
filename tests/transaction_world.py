"""A broker without sockets that does transactions: half messages, their ends, and rounds of checks."""

from typing import Any

from broker_world import FakeConnection
from message_replay import MessageWorld, replay, send_command
from orbitmq.broker.processors.clients import ClientsProcessor
from orbitmq.broker.processors.transaction import TransactionProcessor
from orbitmq.broker.transactions.transactions import GROUP
from orbitmq.format.message_id import decode_offset_id
from orbitmq.message import CHECK_MAX_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from orbitmq.wire.bodies.heartbeat import HeartbeatData, ProducerData
from orbitmq.wire.command import ONEWAY_FLAG, Command
from orbitmq.wire.headers.transaction import COMMIT, ROLLBACK, UNKNOWN

__all__ = ["CHECK_MAX_TOPIC", "COMMIT", "HALF_TOPIC", "OP_HALF_TOPIC", "ROLLBACK", "UNKNOWN"]

PRODUCERS = "Pid"


class TransactionWorld(MessageWorld):
    """A broker that knows everything about messages and transactions; its clock stands still."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.transactions = self.context.transactions
        self.transactions.ops.collects = True  # as of a broker that serves clients
        self.ends = TransactionProcessor(self.context)
        self.route(self.ends, ClientsProcessor(self.context))
        self.client = self.connect()
        self.flushes = True  # after each end, so that it may be listed in an op message

    def half(self, body: bytes = b"paid", *, key: str = "K1", **given: Any) -> Command:
        """Send a half message; return the answer."""
        more = "".join(f"{name}\x01{value}\x02" for name, value in given.pop("more", {}).items())
        text = f"UNIQ_KEY\x01{key}\x02TRAN_MSG\x01true\x02PGROUP\x01{PRODUCERS}\x02{more}"
        given = {"f": 4, "g": self.clock.now_ms(), "queue_id": 1} | given
        answer = replay(self, self.client, send_command(body=body, properties=text, **given))
        assert answer is not None
        assert answer.code == 0, answer.remark
        return answer

    def end(
        self, of: Command, state: int = COMMIT, *, oneway: bool = False, **given: Any
    ) -> Command | None:
        """End the transaction of a half message, or of a question of the broker's."""
        request = end_command(of, state, **given)
        if oneway:
            request.flag |= ONEWAY_FLAG
        answer = replay(self, self.client, request)
        if self.flushes:
            self.store.flush_log()
        return answer

    def join(self, group: str = PRODUCERS) -> FakeConnection:
        """Return the connection of a new producer of the group."""
        client = self.connect()
        data = HeartbeatData(client_id=client.peer, producer_data_set=[ProducerData(group)])
        self.tell(client, Command(34, body=data.encode(), opaque=1))
        return client

    def round(self, later_ms: float = 31_000) -> None:
        """Let time pass and have a whole round of checks done, if it is due."""
        self.clock.advance(later_ms)
        self.settle()
        self.transactions.tick()
        while self.in_round:
            self.transactions.tick()
        self.settle()

    @property
    def in_round(self) -> bool:
        return self.transactions._checks.in_round

    def bodies(self, queue_id: int = 1, topic: str = "Orders") -> list[bytes]:
        """Return what consumers of a queue get."""
        return [record.body for record in self.records(topic, queue_id)]

    def ops(self) -> list[bytes]:
        """Return the bodies of all op messages."""
        return [record.body for record in self.records(OP_HALF_TOPIC)]

    def offsets(self) -> tuple[int, int]:
        """Return the two offsets that are saved."""
        table = self.context.offsets
        return table.get(GROUP, HALF_TOPIC, 0), table.get(GROUP, OP_HALF_TOPIC, 0)


def end_command(of: Command, state: int, **given: Any) -> Command:
    """Return an END_TRANSACTION as the Java client makes it."""
    known = of.fields or {}
    is_question = of.code == 39
    fields = {
        "producerGroup": PRODUCERS,
        "tranStateTableOffset": known["tranStateTableOffset" if is_question else "queueOffset"],
        "commitLogOffset": known["commitLogOffset"]
        if is_question
        else str(decode_offset_id(known["msgId"])[1]),
        "commitOrRollback": str(state),
        "fromTransactionCheck": "true" if is_question else "false",
        "msgId": known["transactionId"],
        "transactionId": known["transactionId"],
    }
    fields |= {name: str(value) for name, value in given.items()}
    return Command(37, fields, opaque=11, language="JAVA")
