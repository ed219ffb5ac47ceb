"""ProducerTable: which producers are there, by group."""

import logging
from collections.abc import Mapping

from orbitmq.broker.tables.clients import ClientConnection
from orbitmq.net.connection import Connection

logger = logging.getLogger(__name__)

_GROUPS = "producer_groups"
_IDS = "producer_ids"


class ProducerTable:
    """Producers by group and connection. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._table: dict[str, dict[Connection, ClientConnection]] = {}
        self._by_client_id: dict[str, dict[Connection, ClientConnection]] = {}

    def register(self, group: str, client: ClientConnection) -> bool:
        """Note a heartbeat; True: the producer is new."""
        members = self._table.setdefault(group, {})
        is_new = client.connection not in members
        members[client.connection] = client
        self._by_client_id.setdefault(client.client_id, {})[client.connection] = client
        client.connection.owner_data.setdefault(_IDS, set()).add(client.client_id)
        if is_new:
            client.connection.owner_data.setdefault(_GROUPS, set()).add(group)
            logger.debug("producer %s of %s: connected", client.client_id, group)
        return is_new

    def unregister(self, group: str, connection: Connection) -> None:
        """Remove a producer; an empty group disappears."""
        members = self._table.get(group)
        if members is None:
            return
        members.pop(connection, None)
        groups = connection.owner_data.get(_GROUPS, set())
        groups.discard(group)
        if not groups:
            self._forget(connection)
        if not members:
            del self._table[group]

    def _forget(self, connection: Connection) -> None:
        for client_id in connection.owner_data.pop(_IDS, ()):
            connections = self._by_client_id.get(client_id, {})
            connections.pop(connection, None)
            if not connections:
                self._by_client_id.pop(client_id, None)

    def find(self, client_id: str) -> ClientConnection | None:
        """Return the producer with this client id, on the newest of its connections."""
        connections = self._by_client_id.get(client_id)
        return connections[next(reversed(connections))] if connections else None

    def on_close(self, connection: Connection) -> None:
        for group in list(connection.owner_data.get(_GROUPS, ())):
            self.unregister(group, connection)

    def connections(self, group: str) -> list[ClientConnection]:
        """Return the producers of a group, in the order in which they came."""
        return list(self._table.get(group, {}).values())

    def all(self) -> Mapping[str, Mapping[Connection, ClientConnection]]:
        return self._table

    def expire(self, before_ms: int) -> None:
        """Close the connections of producers that were not heard since."""
        for group, members in list(self._table.items()):
            for client in [one for one in members.values() if one.heard_ms < before_ms]:
                self.unregister(group, client.connection)
                client.connection.close(f"no heartbeat of producer {client.client_id}")
