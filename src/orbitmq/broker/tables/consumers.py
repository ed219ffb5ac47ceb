"""ConsumerTable: which consumers are there, what their groups subscribe to, and who is told of changes."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec

from orbitmq.broker.tables.clients import ClientConnection
from orbitmq.format.java_hash import java_hash
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies.heartbeat import BROADCASTING, Subscription
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

logger = logging.getLogger(__name__)

_GROUPS: Final = "consumer_groups"
ALL_TAGS: Final = ("*", "")


class ConsumerGroup:
    """One consumer group that is online: its members and subscriptions, as heartbeats tell them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[Connection, ClientConnection] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.consume_type = ""
        self.model = ""
        self.from_where = ""

    @property
    def connections(self) -> list[ClientConnection]:
        """The members, in the order in which they came."""
        return list(self.members.values())

    @property
    def client_ids(self) -> list[str]:
        return [client.client_id for client in self.members.values()]

    @property
    def is_broadcast(self) -> bool:
        return self.model == BROADCASTING

    def subscription(self, topic: str) -> Subscription | None:
        return self.subscriptions.get(topic)

    def find(self, client_id: str) -> ClientConnection | None:
        for client in self.members.values():
            if client.client_id == client_id:
                return client
        return None

    def update_subscriptions(self, subscriptions: Iterable[Subscription]) -> bool:
        """Take over what a member subscribes to; True: the set of topics is another one now."""
        changed = False
        wanted = set()
        for subscription in subscriptions:
            topic = subscription.topic
            wanted.add(topic)
            old = self.subscriptions.get(topic)
            if old is None or subscription.sub_version > old.sub_version:
                self.subscriptions[topic] = with_codes(subscription)
                changed |= old is None
        for topic in self.subscriptions.keys() - wanted:
            del self.subscriptions[topic]
            changed = True
        return changed


class ConsumerTable:
    """Consumer groups that are online. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._groups: dict[str, ConsumerGroup] = {}
        self._fingerprints: dict[str, int] = {}
        self.notify_enabled: Callable[[str], bool] = lambda group: True
        """Whether a group wants to be told of changes; the broker sets it."""

    # Asking

    def group(self, name: str) -> ConsumerGroup | None:
        return self._groups.get(name)

    def all(self) -> Mapping[str, ConsumerGroup]:
        return self._groups

    def find(self, group: str, client_id: str) -> ClientConnection | None:
        known = self._groups.get(group)
        return known.find(client_id) if known is not None else None

    def groups_subscribing(self, topic: str) -> set[str]:
        return {name for name, group in self._groups.items() if topic in group.subscriptions}

    # Heartbeats

    def register(
        self,
        name: str,
        client: ClientConnection,
        *,
        consume_type: str,
        model: str,
        from_where: str,
        subscriptions: Iterable[Subscription] | None,
    ) -> bool:
        """Note a heartbeat of one group; True: its members or topics changed, and it was told.

        Without `subscriptions` the client says that those which are known still hold.
        """
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = ConsumerGroup(name)
        group.consume_type, group.model, group.from_where = consume_type, model, from_where
        changed = client.connection not in group.members
        group.members[client.connection] = client
        if changed:
            client.connection.owner_data.setdefault(_GROUPS, set()).add(name)
            logger.info("consumer %s of %s: connected", client.client_id, name)
        if subscriptions is not None:
            changed |= group.update_subscriptions(subscriptions)
        if changed:
            self._tell(group)
        return changed

    def swap_fingerprint(self, group: str, fingerprint: int) -> bool:
        """Remember what the group's heartbeats look like; True: they looked different before."""
        before = self._fingerprints.get(group)
        self._fingerprints[group] = fingerprint
        return before is not None and before != fingerprint

    def unregister(self, name: str, connection: Connection) -> None:
        """Remove a member and tell the others; an empty group disappears."""
        group = self._groups.get(name)
        if group is None:
            return
        client = group.members.pop(connection, None)
        connection.owner_data.get(_GROUPS, set()).discard(name)
        if not group.members:
            del self._groups[name]
            self._fingerprints.pop(name, None)
        if client is not None:
            logger.info("consumer %s of %s: gone", client.client_id, name)
            self._tell(group)

    def on_close(self, connection: Connection) -> None:
        for name in list(connection.owner_data.get(_GROUPS, ())):
            self.unregister(name, connection)

    def expire(self, before_ms: int) -> None:
        """Remove members that were not heard since, and close their connections."""
        for name, group in list(self._groups.items()):
            for client in [one for one in group.connections if one.heard_ms < before_ms]:
                self.unregister(name, client.connection)
                client.connection.close(f"no heartbeat of consumer {client.client_id}")

    def tell_of_topic(self, topic: str) -> None:
        """Tell all members that read a topic that it has other queues now."""
        for name in self.groups_subscribing(topic):
            if self.notify_enabled(name):
                notify_members(name, list(self._groups[name].members), topic)

    def _tell(self, group: ConsumerGroup) -> None:
        # In broadcasting each member reads everything: others coming and going change nothing.
        if group.members and not group.is_broadcast and self.notify_enabled(group.name):
            notify_members(group.name, list(group.members))


def with_codes(subscription: Subscription) -> Subscription:
    """Return the subscription with the tags of its expression and their hashes.

    Go hashes bytes instead of characters and C++ sends zeros, so nobody's hashes are believed.
    """
    if not subscription.is_tag:
        return subscription
    expression = subscription.sub_string.strip()
    parts = [] if expression in ALL_TAGS else [tag.strip() for tag in expression.split("||")]
    tags = list(dict.fromkeys(tag for tag in parts if tag))
    codes = list(dict.fromkeys(java_hash(tag) for tag in tags))
    return msgspec.structs.replace(subscription, tags_set=tags, code_set=codes)


def notify_members(group: str, connections: Collection[Connection], topic: str = "") -> None:
    """Send NOTIFY_CONSUMER_IDS_CHANGED, to which nobody answers.

    `topic`: its route changed, not the members. RocketMQ's clients pass over this field and find out when
    they refresh their routes; ours ask for the route.
    """
    fields = {"consumerGroup": group, **({"topic": topic} if topic else {})}
    for connection in connections:
        command = Command(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
            dict(fields),
            language="JAVA",
            encoding=connection.encoding,
        )
        connection.oneway(command)
