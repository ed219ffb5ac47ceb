"""The program of the C++ client that the PyPI package `rocketmq` has inside; see README.md of clients/.

Runs in an environment of its own that has that package and nothing of OrbitMQ.
"""

import json
import os
import sys
import threading
import time

from rocketmq.client import Message, Producer, PushConsumer, SendStatus
from rocketmq.ffi import dll

BATCH = 10
ONE_WAY_PAUSE = 0.5
output = threading.Lock()
rows = os.fdopen(os.dup(1), "w", encoding="utf-8")  # the library prints to standard output itself


class LaterError(Exception):
    """Makes the library give a message back."""


def write(words, kind, **members):
    with output:
        rows.write(json.dumps({"id": words["id"], "type": kind, **members}) + "\n")
        rows.flush()


def text(value):
    return value.decode() if value is not None else None


class Sender(threading.Thread):
    """The command `send`."""

    def __init__(self, words):
        super().__init__(name="send", daemon=True)
        self.words, self.stopped, self.kept = words, False, []
        self.producer = Producer(words.get("group", "senders"), timeout=10_000)
        self.producer.set_namesrv_addr(words["namesrv"])
        # Producers of one instance share its name server, and each group may be there once.
        dll.SetProducerInstanceName(self.producer._handle, f"send{words['id']}".encode())

    def run(self):
        try:
            self.producer.start()
            self.send_all()
            self.producer.shutdown()
            write(self.words, "done")
        except Exception as error:
            write(self.words, "error", why=repr(error))

    def send_all(self):
        count, mode = int(self.words["count"]), self.words.get("mode", "sync")
        if mode == "batch":
            for first in range(0, count, BATCH):
                self.send_batch(range(first, min(count, first + BATCH)))
            return
        answered = threading.Semaphore(0)
        for number in range(count):
            if self.stopped:
                break
            if mode == "oneway":
                self.producer.send_oneway(self.message(number))
            elif mode == "async":
                self.send_async(number, answered)
            else:
                self.send_one(number)
        for _ in range(count if mode == "async" else 0):
            answered.acquire()
        if mode == "oneway":
            # The broker answers all the same; closed with answers unread, a connection loses what it carries.
            # sleep: nothing tells when they have come.
            time.sleep(ONE_WAY_PAUSE)

    def send_one(self, number):
        try:
            self.wrote([self.body(number)], self.producer.send_sync(self.message(number)))
        except Exception as error:
            write(self.words, "failed", body=self.body(number), why=repr(error))

    def send_async(self, number, answered):
        message, body = self.message(number), self.body(number)
        self.kept.append(message)  # the library reads it later

        def success(result):
            self.wrote([body], result)
            answered.release()

        def failure(error):
            write(self.words, "failed", body=body, why=repr(error))
            answered.release()

        self.producer.send_async(message, success, failure)

    def send_batch(self, numbers):
        messages = [self.message(number) for number in numbers]
        self.wrote([self.body(number) for number in numbers], self.producer.send_batch(messages))

    def body(self, number):
        return f"{self.words.get('body', '')}{number}" + "x" * int(self.words.get("filler", 0))

    def message(self, number):
        message = Message(self.words["topic"])
        message.set_body(self.body(number))
        if "tag" in self.words:
            message.set_tags(self.words["tag"])
        if "key" in self.words:
            message.set_keys(self.words["key"])
        return message

    def wrote(self, bodies, result):
        kind = "sent" if result.status == SendStatus.OK else "failed"
        for place, body in enumerate(bodies):
            offset = result.offset + place
            write(self.words, kind, body=body, message_id=result.msg_id, offset=offset)


class Receiver:
    """The command `subscribe`."""

    def __init__(self, words):
        self.words = words
        orderly = words.get("orderly") == "true"
        self.consumer = PushConsumer(words.get("group", "receivers"), orderly=orderly)
        self.consumer.set_namesrv_addr(words["namesrv"])
        self.consumer.set_instance_name(words.get("instance", f"receive{words['id']}"))
        self.consumer.set_thread_count(2)
        self.consumer.set_message_batch_max_size(
            1
        )  # a failure gives back the rest of its batch too
        tags = words.get("tags", "*").replace("||", " || ")
        self.consumer.subscribe(words["topic"], self.take, tags)

    def start(self):
        self.consumer.start()
        write(self.words, "ready")

    def leave(self):
        self.consumer.shutdown()
        write(self.words, "done")

    def take(self, message):
        write(
            self.words,
            "got",
            body=message.body.decode(),
            message_id=message.id,
            topic=message.topic,
            tag=text(message.tags),
            key=text(message.keys),
            broker=None,
            queue=message.queue_id,
            offset=message.queue_offset,
            times=message.reconsume_times,
        )
        if message.reconsume_times < int(self.words.get("fail", 0)):
            raise LaterError


def handle(verb, words, senders, receivers):
    if verb == "send":
        senders[words["id"]] = Sender(words)
        senders[words["id"]].start()
    elif verb == "stop":
        senders[words["id"]].stopped = True
    elif verb == "subscribe":
        receivers[words["id"]] = Receiver(words)
        receivers[words["id"]].start()
    elif verb == "leave":
        receivers.pop(words["id"]).leave()
    else:
        write(words, "error", why=f"unknown command {verb}")


def handle_or_tell(verb, words, senders, receivers):
    try:
        handle(verb, words, senders, receivers)
    except Exception as error:
        write(words, "error", why=repr(error))


def main():
    senders, receivers = {}, {}
    for line in sys.stdin:
        verb, *parts = line.split()
        words = dict(part.split("=", 1) for part in parts)
        # A start or a shutdown can take seconds; other commands do not wait for it.
        what = (verb, words, senders, receivers)
        threading.Thread(target=handle_or_tell, args=what, daemon=True).start()
    for receiver in receivers.values():
        receiver.leave()
    rows.flush()
    os._exit(0)  # the library's threads do not all end by themselves


if __name__ == "__main__":
    main()
