"""The program of our own client; its language: README.md of the folder above.

The argument is the type of the headers (JSON or BINARY).
"""

import contextlib
import json
import sys
import threading
from typing import Any

from orbitmq.client import (
    ClientConfig,
    Consumer,
    Message,
    Producer,
    ReceivedMessage,
    RetryLater,
    SendResult,
    TransactionState,
    replies,
    sql,
)
from orbitmq.errors import OrbitError
from orbitmq.wire.command import Encoding

BATCH = 10
STATES = {
    "C": TransactionState.COMMIT,
    "R": TransactionState.ROLLBACK,
    "U": TransactionState.UNKNOWN,
}
output = threading.Lock()

Words = dict[str, str]


def write(words: Words, kind: str, **members: object) -> None:
    with output:
        sys.stdout.write(json.dumps({"id": words["id"], "type": kind, **members}) + "\n")
        sys.stdout.flush()


class Sender(threading.Thread):
    """The command `send`."""

    def __init__(self, words: Words, config: ClientConfig) -> None:
        super().__init__(name="send", daemon=True)
        self.words, self.stopped = words, False
        self.producer = Producer(group=words.get("group", "senders"), config=config)

    def run(self) -> None:
        try:
            with self.producer:
                self.send_all()
            write(self.words, "done")
        except Exception as error:
            write(self.words, "error", why=repr(error))

    def send_all(self) -> None:
        count, mode = int(self.words["count"]), self.words.get("mode", "sync")
        numbers = range(count)
        if mode == "async":
            futures = [(n, self.producer.send_async(self.message(n))) for n in numbers]
            for number, future in futures:
                self.wrote(self.body(number), future.result())
        elif mode == "batch":
            for first in range(0, count, BATCH):
                part = numbers[first : first + BATCH]
                results = self.producer.send_batch([self.message(n) for n in part])
                for number, result in zip(part, results, strict=True):
                    self.wrote(self.body(number), result)
        else:
            for number in numbers:
                if self.stopped:
                    break
                self.send_one(number, mode)

    def send_one(self, number: int, mode: str) -> None:
        try:
            if mode == "oneway":
                self.producer.send_oneway(self.message(number))
            else:
                self.wrote(self.body(number), self.producer.send(self.message(number)))
        except OrbitError as error:
            write(self.words, "failed", body=self.body(number), why=repr(error))

    def body(self, number: int) -> str:
        return f"{self.words.get('body', '')}{number}" + "x" * int(self.words.get("filler", 0))

    def message(self, number: int) -> Message:
        words = self.words
        keys = [words["key"]] if "key" in words else []
        return Message(
            words["topic"],
            self.body(number).encode(),
            tag=words.get("tag", ""),
            keys=keys,
            delay_level=int(words.get("delay", 0)),
            delay_ms=int(words.get("delayms", 0)) + 1000 * int(words.get("delaysec", 0)),
            deliver_ms=int(words.get("deliver", 0)),
        )

    def wrote(self, body: str, result: SendResult) -> None:
        place = {
            "broker": result.queue.broker_name,
            "queue": result.queue.queue_id,
            "offset": result.queue_offset,
        }
        ids = {"message_id": result.message_id, "offset_id": result.offset_id}
        handle = result.recall_handle
        write(
            self.words, "sent", body=body, status=result.status.value, **place, **ids, handle=handle
        )


class Receiver:
    """The command `subscribe`."""

    def __init__(self, words: Words, config: ClientConfig) -> None:
        self.words = words
        tags = words.get("tags", "*").replace("||", " || ")
        wanted = sql(words["sql"]) if "sql" in words else tags
        self.consumer = Consumer(
            group=words.get("group", "receivers"),
            topics={words["topic"]: wanted},
            handler=self.take,
            orderly=words.get("orderly") == "true",
            start_from="first",
            config=config,
            workers=4,
            retry_level=1,
            persist_interval_ms=1000,
        )

    def start(self) -> None:
        self.consumer.open()
        write(self.words, "ready")

    def leave(self) -> None:
        self.consumer.close()
        write(self.words, "done")

    def take(self, message: ReceivedMessage) -> None:
        members: dict[str, Any] = {
            "body": message.body.decode(),
            "message_id": message.message_id,
            "topic": message.topic,
            "tag": message.tag,
            "key": " ".join(message.keys),
            "broker": message.broker_name,
            "queue": message.queue_id,
            "offset": message.queue_offset,
            "times": message.reconsume_times,
            "store_ms": message.store_ms,
        }
        write(self.words, "got", **members)
        if message.reconsume_times < int(self.words.get("fail", 0)):
            raise RetryLater


class Requester(threading.Thread):
    """The command `request`."""

    def __init__(self, words: Words, config: ClientConfig) -> None:
        super().__init__(name="request", daemon=True)
        self.words = words
        self.producer = Producer(group=words.get("group", "senders"), config=config)

    def run(self) -> None:
        words, filler = self.words, "x" * int(self.words.get("filler", 0))
        with self.producer:
            for number in range(int(words["count"])):
                self.ask(f"{words.get('body', '')}{number}{filler}", int(words.get("wait", 10_000)))
        write(words, "done")

    def ask(self, body: str, wait_ms: int) -> None:
        try:
            message = Message(self.words["topic"], body.encode())
            reply = self.producer.request(message, timeout_ms=wait_ms)
        except OrbitError as error:
            write(self.words, "failed", body=body, why=repr(error))
        else:
            message_type = reply.properties["MSG_TYPE"]
            write(
                self.words,
                "replied",
                body=body,
                reply=reply.body.decode(),
                message_type=message_type,
            )


class Replier:
    """The command `answer`."""

    def __init__(self, words: Words, config: ClientConfig) -> None:
        self.words = words
        self.producer = Producer(group="repliers", config=config)
        self.consumer = Consumer(
            group=words.get("group", "answers"),
            topics=words["topic"],
            handler=replies(self.producer, self.answer),
            start_from="first",
            config=config,
        )

    def start(self) -> None:
        self.producer.open()
        self.consumer.open()
        write(self.words, "ready")

    def leave(self) -> None:
        self.consumer.close()
        self.producer.close()
        write(self.words, "done")

    def answer(self, message: ReceivedMessage) -> bytes:
        write(self.words, "got", body=message.body.decode())
        return b"re:" + message.body


class Transactor:
    """The command `transact`: a body ends with two letters, what is said at once and what when asked."""

    def __init__(self, words: Words, config: ClientConfig) -> None:
        self.words = words
        self.producer = Producer(
            group=words.get("group", "transactors"), config=config, checker=self.check
        )

    def run(self) -> None:
        self.producer.open()
        for number, plan in enumerate(filter(None, self.words.get("plan", "").split(","))):
            body = f"{self.words.get('body', '')}{number}-{plan}"
            message = Message(self.words["topic"], body.encode())
            with contextlib.suppress(RuntimeError), self.producer.transaction(message) as open_one:
                write(self.words, "sent", body=body, message_id=open_one.transaction_id)
                if plan[0] == "R":
                    raise RuntimeError("as planned")
                if plan[0] == "U":
                    open_one.leave_open()
        write(self.words, "ready")

    def check(self, message: ReceivedMessage) -> TransactionState:
        body = message.body.decode()
        write(self.words, "checked", body=body, message_id=message.message_id)
        return STATES[body[-1]]

    def resign(self) -> None:
        self.producer.close()
        write(self.words, "done")


class Program:
    """The commands and what runs because of them."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding
        self.senders: dict[str, Sender] = {}
        self.receivers: dict[str, Receiver | Replier] = {}
        self.receivers: dict[str, Receiver] = {}
        self.transactors: dict[str, Transactor] = {}

    def handle(self, verb: str, words: Words) -> None:
        try:
            self._handle(verb, words)
        except Exception as error:
            write(words, "error", why=repr(error))

    def _handle(self, verb: str, words: Words) -> None:
        id_ = words["id"]
        match verb:
            case "send":
                self.senders[id_] = Sender(words, self._config(words))
                self.senders[id_].start()
            case "recall":
                with Producer(group="senders", config=self._config(words)) as producer:
                    recalled = producer.recall(words["topic"], words["handle"])
                write(words, "recalled", message_id=recalled)
            case "stop":
                self.senders[id_].stopped = True
            case "subscribe":
                self.receivers[id_] = Receiver(words, self._config(words))
                self.receivers[id_].start()
            case "request":
                Requester(words, self._config(words)).start()
            case "answer":
                self.receivers[id_] = Replier(words, self._config(words))
                self.receivers[id_].start()
            case "leave":
                self.receivers.pop(id_).leave()
            case "transact":
                self.transactors[id_] = Transactor(words, self._config(words))
                self.transactors[id_].run()
            case "resign":
                self.transactors.pop(id_).resign()
            case _:
                write(words, "error", why=f"unknown command {verb}")

    def _config(self, words: Words) -> ClientConfig:
        addresses = tuple(words["namesrv"].split(";"))
        return ClientConfig(
            namesrv=addresses,
            encoding=self.encoding,
            send_timeout_ms=10_000,
            trace=words.get("trace") == "true",
        )

    def close(self) -> None:
        for sender in self.senders.values():
            sender.stopped = True
        for receiver in self.receivers.values():
            receiver.leave()
        for transactor in self.transactors.values():
            transactor.resign()


def main(encoding: str) -> None:
    program = Program(Encoding[encoding])
    for line in sys.stdin:
        verb, *parts = line.split()
        words = dict(part.split("=", 1) for part in parts)
        # A start or a shutdown can take a while; other commands do not wait for it.
        threading.Thread(target=program.handle, args=(verb, words)).start()
    program.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
