"""Which queues of a topic belong to which member of a group: pure functions that every member runs.

There is no coordinator. Each member sorts the same queues and the same client ids and computes its own
share; all of them must use the same strategy. The rules, and with them the shares, are RocketMQ's, so
that Java, Go and Python members can sit in one group.

name                        | share of member i of c, of q sorted queues
AVG                         | contiguous runs; the first q mod c members have one more
AVG_BY_CIRCLE               | every queue k with k mod c == i
CONSISTENT_HASH             | the queues that meet one of the member's nodes first on a ring
MACHINE_ROOM                | of the queues in the rooms named: runs of q / c; leftovers one each
MACHINE_ROOM_NEARBY-<inner> | queues of the member's room among its members; orphaned rooms among all
CONFIG                      | a fixed list

A member that is not in the list of client ids gets nothing. Two members with the same client id both
compute the share of the first: give each its own instance name.
"""

import bisect
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from orbitmq.errors import ConfigError
from orbitmq.wire.bodies.message_queue import MessageQueue

VIRTUAL_NODES: Final = 10
"""Nodes of one member on the ring, as in RocketMQ."""


class Strategy(Protocol):
    """One way to share queues. `allocate` expects both lists sorted by `sorted_queues`, `sorted_ids`."""

    @property
    def name(self) -> str:
        """Return RocketMQ's name of the strategy."""

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the share of `client_id`."""


def share_of(
    strategy: Strategy,
    client_id: str,
    queues: Iterable[MessageQueue],
    client_ids: Iterable[str],
) -> list[MessageQueue]:
    """Return the queues of one member; the order in which queues and ids come does not matter."""
    members, all_queues = sorted_ids(client_ids), sorted_queues(queues)
    if client_id not in members or not all_queues:
        return []
    return strategy.allocate(client_id, all_queues, members)


def sorted_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Return the queues by topic, broker and id, each once."""
    return sorted(
        set(queues),
        key=lambda queue: (_java_key(queue.topic), _java_key(queue.broker_name), queue.queue_id),
    )


def sorted_ids(client_ids: Iterable[str]) -> list[str]:
    """Return the client ids in Java's order of strings."""
    return sorted(client_ids, key=_java_key)


def _java_key(text: str) -> bytes:
    return text.encode(
        "utf-16-be", "surrogatepass"
    )  # Java compares UTF-16 units, Python characters


@dataclass(frozen=True)
class Average:
    """Contiguous runs of nearly equal length."""

    name: str = "AVG"

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        index, count = client_ids.index(client_id), len(client_ids)
        share, rest = divmod(len(queues), count)
        has_one_more = index < rest
        size = share + 1 if has_one_more else share
        start = index * size if has_one_more else index * size + rest
        return list(queues[start : start + size])


@dataclass(frozen=True)
class AverageByCircle:
    """Queues dealt like cards."""

    name: str = "AVG_BY_CIRCLE"

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


@dataclass(frozen=True)
class ConsistentHash:
    """A ring: when a member joins or leaves, only the queues of its own nodes move."""

    virtual_nodes: int = VIRTUAL_NODES
    name: str = "CONSISTENT_HASH"

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        ring = {
            ring_position(f"{member}-{node}"): member
            for member in client_ids
            for node in range(self.virtual_nodes)
        }
        positions = sorted(ring)
        return [
            queue
            for queue in queues
            if ring[_first_from(positions, ring_position(_queue_text(queue)))] == client_id
        ]


def ring_position(key: str) -> int:
    """Return where a key lies on the ring: the first four bytes of its MD5, unsigned."""
    digest = hashlib.md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


def _first_from(positions: Sequence[int], position: int) -> int:
    return positions[bisect.bisect_left(positions, position) % len(positions)]


def _queue_text(queue: MessageQueue) -> str:
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )


@dataclass(frozen=True)
class MachineRoom:
    """Only queues of brokers named `<room>@<name>` whose room is one of `rooms`."""

    rooms: frozenset[str]
    name: str = "MACHINE_ROOM"

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        near = [queue for queue in queues if self._is_near(queue)]
        index, count = client_ids.index(client_id), len(client_ids)
        share, rest = divmod(len(near), count)
        mine = near[index * share : (index + 1) * share]
        if index < rest:
            mine.append(near[index + share * count])
        return mine

    def _is_near(self, queue: MessageQueue) -> bool:
        parts = queue.broker_name.split("@")
        return len(parts) == 2 and bool(parts[1]) and parts[0] in self.rooms


@dataclass(frozen=True)
class MachineRoomNearby:
    """Queues of a room go to its own members; those of a room without members to everybody."""

    room_of_broker: Callable[[MessageQueue], str]
    room_of_client: Callable[[str], str]
    inner: Strategy = field(default_factory=Average)

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        queues_by_room: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            room = _known_room(self.room_of_broker(queue), queue.broker_name)
            queues_by_room.setdefault(room, []).append(queue)
        members_by_room: dict[str, list[str]] = {}
        for member in client_ids:
            room = _known_room(self.room_of_client(member), member)
            members_by_room.setdefault(room, []).append(member)
        mine = []
        own_room = self.room_of_client(client_id)
        if near := queues_by_room.pop(own_room, None):
            mine += self.inner.allocate(client_id, near, members_by_room[own_room])
        for room in sorted(queues_by_room, key=_java_key):
            if room not in members_by_room:
                mine += self.inner.allocate(client_id, queues_by_room[room], client_ids)
        return mine


def _known_room(room: str, of: str) -> str:
    if not room:
        raise ConfigError("machine room", room, f"{of} must lie in a room that has a name")
    return room


@dataclass(frozen=True)
class Fixed:
    """Always the same queues, whoever else is there."""

    queues: tuple[MessageQueue, ...]
    name: str = "CONFIG"

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(self.queues)


_BY_NAME: Final[dict[str, Callable[[], Strategy]]] = {
    "AVG": Average,
    "AVG_BY_CIRCLE": AverageByCircle,
    "CONSISTENT_HASH": ConsistentHash,
}


def strategy_named(name: str) -> Strategy:
    """Return a strategy that needs no settings, by RocketMQ's name."""
    maker = _BY_NAME.get(name.upper())
    if maker is None:
        known = ", ".join(_BY_NAME)
        raise ConfigError("strategy", name, f"give one of {known}, or a Strategy object")
    return maker()
