"""Consumer offsets of one consumer: in memory, and where they outlive it.

Clustering: with the broker of each queue, for the whole group. Broadcasting: in a file of this client,
`<directory>/<client id>/<group>/offsets.json`, in the form that RocketMQ's Java client writes and reads:

    {
        "offsetTable":{{
                "brokerName":"broker-a",
                "queueId":0,
                "topic":"Orders"
            }:17
        }
    }
"""

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.client.core.broker_api import BrokerApi
from orbitmq.client.core.route_cache import RouteCache
from orbitmq.errors import FieldError, ResponseError, StateFileError, StoreError, WireError
from orbitmq.files.disk import Disk
from orbitmq.files.replace import bak_path, read_whole, replace_file
from orbitmq.wire.bodies import dialect
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.codes import ResponseCode

_log = logging.getLogger(__name__)

NO_OFFSET: Final = -1
FILE_NAME: Final = "offsets.json"


class OffsetStore(ABC):
    """Where a consumer keeps how far it is: in memory, where changes are noted, and where it outlives us.

    Belongs to its loop's thread.
    """

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._changed: set[MessageQueue] = set()  # since they were last made to outlive us

    async def load(self) -> None:  # noqa: B027 - most have nothing to read
        """Read what there is; before anything else."""

    @abstractmethod
    async def read(self, queue: MessageQueue) -> int:
        """Return the offset that outlived us, NO_OFFSET if there is none."""

    @abstractmethod
    async def persist(
        self, queues: Iterable[MessageQueue] | None = None, *, retry: bool = False
    ) -> None:
        """Make offsets outlive us; of all queues if none are named. Failures are logged."""

    def get(self, queue: MessageQueue) -> int | None:
        """Return the offset in memory."""
        return self._offsets.get(queue)

    def update(self, queue: MessageQueue, offset: int, *, forward_only: bool = True) -> None:
        """Note an offset in memory."""
        known = self._offsets.get(queue)
        if known == offset or (forward_only and known is not None and offset < known):
            return
        self._offsets[queue] = offset
        self._changed.add(queue)

    def note_stored(self, queue: MessageQueue, offset: int) -> None:
        """Note an offset that outlives us already."""
        self._offsets[queue] = offset
        self._changed.discard(queue)

    def forget(self, queue: MessageQueue) -> None:
        """Remove a queue from memory."""
        self._offsets.pop(queue, None)
        self._changed.discard(queue)

    def of_topic(self, topic: str = "") -> dict[MessageQueue, int]:
        """Return the offsets in memory, of all topics if none is named."""
        return {q: offset for q, offset in self._offsets.items() if not topic or q.topic == topic}

    def _changed_of(self, queues: Iterable[MessageQueue] | None) -> set[MessageQueue]:
        return set(self._changed) if queues is None else self._changed.intersection(queues)


class RemoteOffsets(OffsetStore):
    """Offsets kept by the brokers, one set for the whole group."""

    def __init__(self, group: str, api: BrokerApi, routes: RouteCache) -> None:
        super().__init__()
        self._group, self._api, self._routes = group, api, routes

    async def read(self, queue: MessageQueue) -> int:
        return await self._api.consumer_offset(await self._address(queue), self._group, queue)

    async def persist(
        self, queues: Iterable[MessageQueue] | None = None, *, retry: bool = False
    ) -> None:
        wanted = sorted(self._changed_of(queues))
        await asyncio.gather(*(self._persist_one(queue, retry) for queue in wanted))

    async def _persist_one(self, queue: MessageQueue, retry: bool) -> None:
        offset = self._offsets[queue]
        try:
            # What did not come stays marked as changed.
            address = await self._address(queue)
            await self._api.update_consumer_offset(address, self._group, queue, offset)
        except ResponseError as failure:
            _log.warning("offset %d of %s: refused: %s", offset, queue, failure)
            gone = failure.code == ResponseCode.TOPIC_NOT_EXIST
        except WireError as failure:
            if retry:
                return await self._persist_one(queue, retry=False)
            _log.warning("offset %d of %s: not told to the broker: %s", offset, queue, failure)
            gone = False
        else:
            gone = True
        if gone and self._offsets.get(queue) == offset:
            self._changed.discard(queue)
        return None

    async def _address(self, queue: MessageQueue) -> str:
        return await self._routes.find_address(queue.broker_name, queue.topic)


class LocalOffsets(OffsetStore):
    """Offsets in a file of this client."""

    def __init__(
        self, directory: Path, client_id: str, group: str, disk: Disk | None = None
    ) -> None:
        super().__init__()
        self.path = directory / client_id / group / FILE_NAME
        self._disk = disk or Disk()
        self._stored: dict[MessageQueue, int] = {}
        self._writing = asyncio.Lock()  # guards the file

    async def load(self) -> None:
        self._stored = await asyncio.to_thread(read_offsets, self._disk, self.path)
        self._offsets.update(self._stored)

    async def read(self, queue: MessageQueue) -> int:
        return self._stored.get(queue, NO_OFFSET)

    async def persist(
        self, queues: Iterable[MessageQueue] | None = None, *, retry: bool = False
    ) -> None:
        async with self._writing:
            changes = {queue: self._offsets[queue] for queue in self._changed_of(queues)}
            if not changes:
                return
            table = {**self._stored, **changes}
            try:
                data = format_offsets(table).encode("utf-8")
                await asyncio.to_thread(replace_file, self._disk, self.path, data, keep_bak=True)
            except StoreError as failure:
                _log.warning("offsets not stored: %s", failure)
                return
            self._stored = table
            self._changed -= {q for q, offset in changes.items() if self._offsets.get(q) == offset}


def read_offsets(disk: Disk, path: Path) -> dict[MessageQueue, int]:
    """Return the table in a file of offsets, or in its .bak; empty if there is none of both."""
    problems = []
    for candidate in (path, bak_path(path)):
        data = read_whole(disk, candidate)
        if not data:
            continue
        try:
            return parse_offsets(data)
        except FieldError as cause:
            problems.append(f"{candidate.name}: {cause.what}")
    if problems:
        step = "Move it and its .bak away to start as a new group would."
        raise StateFileError(path, "holds no offsets (" + "; ".join(problems) + ")", step)
    return {}


def parse_offsets(data: bytes) -> dict[MessageQueue, int]:
    """Return the table in the text of such a file. FieldError: there is none."""
    value = dialect.loads(data)
    table = value.get("offsetTable") if isinstance(value, dict) else None
    if not isinstance(table, dict):
        raise FieldError("offsetTable", "is missing")
    try:
        return {_queue(key): msgspec.convert(n, int, strict=False) for key, n in table.items()}
    except (msgspec.ValidationError, msgspec.DecodeError) as cause:
        raise FieldError("offsetTable", f"has an entry that is none: {cause}") from cause


def _queue(key: str | MessageQueue) -> MessageQueue:
    return key if isinstance(key, MessageQueue) else msgspec.json.decode(key, type=MessageQueue)


def format_offsets(table: Mapping[MessageQueue, int]) -> str:
    """Return the table as RocketMQ's Java client writes it."""
    entries = ",".join(
        f'{{\n\t\t\t"brokerName":{_quote(queue.broker_name)},\n\t\t\t"queueId":{queue.queue_id},'
        f'\n\t\t\t"topic":{_quote(queue.topic)}\n\t\t}}:{offset}'
        for queue, offset in sorted(table.items())
    )
    return f'{{\n\t"offsetTable":{{{entries}\n\t}}\n}}' if entries else '{\n\t"offsetTable":{}\n}'


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
