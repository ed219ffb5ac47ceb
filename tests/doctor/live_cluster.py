"""The doctor at a live cluster, and clients that plant what it has to find."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from cluster_commands import Cluster
from doctor.doctor_command import Doctor
from live_broker import LiveClient
from orbitmq.client import Consumer
from orbitmq.wire.bodies.heartbeat import ConsumerData, HeartbeatData, Subscription
from orbitmq.wire.codes import RequestCode


class ClusterDoctor(Doctor):
    """The doctor at a name server, asked about one topic or group, so that tests do not see each other's."""

    def wait(self, what: str, *arguments: object) -> dict:
        """Return the finding as soon as it is there."""
        end = time.monotonic() + 20
        while True:
            found = self.findings(*arguments)
            if matching := [finding for finding in found if what in finding["what"]]:
                return matching[0]
            assert time.monotonic() < end, found
            time.sleep(0.05)

    def findings(self, *arguments: object) -> list[dict]:
        result = self.run(self.namesrv, *arguments)
        assert result.exit_code in (0, 1), result.output + repr(result.exception)
        return json.loads(result.stdout)["findings"]

    def gone(self, what: str, *arguments: object) -> bool:
        return all(what not in finding["what"] for finding in self.findings(*arguments))


@contextmanager
def member(cluster: Cluster, group: str, topics: dict, handler=None, **more) -> Iterator[Consumer]:
    with Consumer(cluster.namesrv, group, topics, handler or (lambda message: None), **more) as it:
        yield it


def wait_until(condition, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


class OldClient(LiveClient):
    """A client that does not tell what it is doing."""

    def on_commands(self, connection, requests) -> None:
        for request in requests:
            if not request.is_oneway:
                connection.send(request.answer(1, "no such request"))

    async def subscribe(self, group: str, topic: str, expression: str, kind: str) -> None:
        wanted = Subscription(
            topic=topic, sub_string=expression, expression_type=kind, sub_version=1
        )
        consumer = ConsumerData(group_name=group, subscription_data_set=[wanted])
        data = HeartbeatData(client_id=self.client_id, consumer_data_set=[consumer])
        assert (await self.ask(RequestCode.HEART_BEAT, body=data.encode())).code == 0
