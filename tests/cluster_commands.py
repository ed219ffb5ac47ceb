"""`orbitmq topic|group|message` against a live broker, in the test's own process."""

import json
from dataclasses import dataclass
from itertools import count
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from orbitmq.cli import app
from orbitmq.client import Admin, Consumer, Message, Producer, SendResult
from orbitmq.testing import Broker

_numbers = count()


@dataclass
class Cluster:
    """A broker and what tests do with it. Tests share it: each takes names of its own."""

    broker: Broker

    @property
    def namesrv(self) -> str:
        return self.broker.namesrv

    def name(self, what: str = "Orders") -> str:
        """Return a name that no other test uses."""
        return f"{what}-{next(_numbers)}"

    def command(self, *arguments: object, text: str | None = None, settled: bool = True) -> Result:
        """Run `orbitmq` with these arguments and this cluster's address.

        `settled`: first wait for dispatch, so that the command shows all that was sent before it.
        """
        words = [*map(str, arguments), "--namesrv", self.namesrv]
        if settled:
            self.broker.wait_dispatched()
        return CliRunner(env={"COLUMNS": "200"}).invoke(app, words, input=text)

    def output(self, *arguments: object, text: str | None = None, settled: bool = True) -> str:
        """Run a command that must work; return what it printed."""
        result = self.command(*arguments, text=text, settled=settled)
        assert result.exit_code == 0, result.output + repr(result.exception)
        return str(result.stdout)

    def json(self, *arguments: object, settled: bool = True) -> Any:
        return json.loads(self.output(*arguments, "--output", "json", settled=settled))

    def send(
        self, topic: str, *bodies: str, key: str | None = None, **more: Any
    ) -> list[SendResult]:
        with Producer(self.namesrv, "test") as producer:
            return [producer.send(Message(topic, b.encode(), **more), key=key) for b in bodies]

    def consume(self, topic: str, group: str, messages: int) -> list[str]:
        """Let a member of the group consume so many messages, then leave."""
        bodies: list[str] = []
        with Consumer(self.namesrv, group, topic, start_from="first") as consumer:
            while len(bodies) < messages:
                message = consumer.receive(timeout=20)
                assert message is not None, f"only {bodies}"
                bodies.append(message.body.decode())
                message.ack()
        return bodies

    def create(self, topic: str, **given: Any) -> str:
        with Admin(self.namesrv) as admin:
            admin.create_topic(topic, **given)
        return topic


def lines(text: str) -> list[list[str]]:
    """Return the words of each line of a table that has any."""
    return [line.split() for line in text.splitlines() if line.strip()]
