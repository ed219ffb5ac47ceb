"""The program of our own client; its language: README.md of the folder above.

The argument is the type of the headers (JSON or BINARY).
"""

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
    sql,
)
from orbitmq.errors import OrbitError
from orbitmq.wire.command import Encoding

BATCH = 10
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
            words["topic"], self.body(number).encode(), tag=words.get("tag", ""), keys=keys
        )

    def wrote(self, body: str, result: SendResult) -> None:
        place = {
            "broker": result.queue.broker_name,
            "queue": result.queue.queue_id,
            "offset": result.queue_offset,
        }
        ids = {"message_id": result.message_id, "offset_id": result.offset_id}
        write(self.words, "sent", body=body, status=result.status.value, **place, **ids)


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
        }
        write(self.words, "got", **members)
        if message.reconsume_times < int(self.words.get("fail", 0)):
            raise RetryLater


class Program:
    """The commands and what runs because of them."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding
        self.senders: dict[str, Sender] = {}
        self.receivers: dict[str, Receiver] = {}

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
            case "stop":
                self.senders[id_].stopped = True
            case "subscribe":
                self.receivers[id_] = Receiver(words, self._config(words))
                self.receivers[id_].start()
            case "leave":
                self.receivers.pop(id_).leave()
            case _:
                write(words, "error", why=f"unknown command {verb}")

    def _config(self, words: Words) -> ClientConfig:
        addresses = tuple(words["namesrv"].split(";"))
        return ClientConfig(namesrv=addresses, encoding=self.encoding, send_timeout_ms=10_000)

    def close(self) -> None:
        for sender in self.senders.values():
            sender.stopped = True
        for receiver in self.receivers.values():
            receiver.leave()


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
