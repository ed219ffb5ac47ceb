"""Stores that we write for RocketMQ to read, and what RocketMQ must say about them."""

import ipaddress
import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from compat.java_store import JavaView, Row
from compat.message_kinds import (
    BATCH_TOPIC,
    BODY_BYTES_MAX,
    client_batches,
    inner_batches,
    single_messages,
)
from orbitmq.format.client_batch import decode_client_batch
from orbitmq.format.index_file import key_hash
from orbitmq.format.properties import decode_properties
from orbitmq.message import SCHEDULE_TOPIC, AppendRequest, AppendResult, AppendStatus, Host, SysFlag
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.units import KiB

DELAY_LEVEL_MAX: Final = 18
QUERY_COUNT_MAX: Final = 64


@dataclass
class Written:
    """What was appended: each acknowledged record as RocketMQ must find it."""

    rows: list[Row] = field(default_factory=list)

    def add(self, config: StoreConfig, request: AppendRequest, result: AppendResult) -> None:
        assert result.status is AppendStatus.PUT_OK, result
        self.rows.append(_expected_row(config, request, result))


def small_config(root: Path) -> StoreConfig:
    """Return settings that make many rolls of everything."""
    return StoreConfig(
        root=root,
        segment_bytes=64 * KiB,
        cq_file_bytes=2000,
        batch_cq_file_bytes=920,
        index_slots=500,
        index_items=400,
        message_bytes_max=2 * BODY_BYTES_MAX,
    )


def write_topics(root: Path) -> None:
    """Leave the topic table with one topic whose queues are BatchCQ; both sides read it."""
    topic = {
        "attributes": {"queue.type": "BatchCQ", "message.type": "NORMAL"},
        "order": False,
        "perm": 6,
        "readQueueNums": 2,
        "topicFilterType": "SINGLE_TAG",
        "topicName": BATCH_TOPIC,
        "topicSysFlag": 0,
        "writeQueueNums": 2,
    }
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1}
    path = root / "config" / "topics.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"dataVersion": version, "topicConfigTable": {BATCH_TOPIC: topic}}))


def append_every_kind(
    store: MessageStore, config: StoreConfig, count: int, seed: int, written: Written
) -> None:
    """Append `count` single messages, half of them in batches of ours, and both kinds of client batches."""
    requests = list(single_messages(count, seed))
    for first in range(0, count, 20):
        one_by_one, together = requests[first : first + 10], requests[first + 10 : first + 20]
        for request in one_by_one:
            written.add(config, request, store.append(request))
        for request, result in zip(together, store.append_many(together), strict=True):
            written.add(config, request, result)
    for request in client_batches(count // 20, seed):
        results = store.append_client_batch(request)
        for part, result in zip(_unwrapped(request), results, strict=True):
            written.add(config, part, result)
    for request in inner_batches(count // 10, seed):
        written.add(config, request, store.append(request))


def _unwrapped(request: AppendRequest) -> list[AppendRequest]:
    """Return the records that a client batch becomes: the request's properties follow the message's own."""
    return [
        AppendRequest(
            topic=request.topic,
            queue_id=request.queue_id,
            body=message.body,
            properties=message.properties + request.properties,
            flag=message.flag,
            born_ms=request.born_ms,
            born_host=request.born_host,
        )
        for message in decode_client_batch(request.body)
    ]


def _expected_row(config: StoreConfig, request: AppendRequest, result: AppendResult) -> Row:
    properties = decode_properties(request.properties)
    topic, queue_id = request.topic, request.queue_id
    kind = request.sys_flag & SysFlag.TRANSACTION
    if "DELAY" in properties and kind in (0, SysFlag.COMMIT):
        level = min(int(properties["DELAY"]), DELAY_LEVEL_MAX)
        properties |= {"DELAY": str(level), "REAL_TOPIC": topic, "REAL_QID": str(queue_id)}
        topic, queue_id = SCHEDULE_TOPIC, level - 1
    if "INNER_NUM" in properties:
        properties["INNER_BASE"] = str(result.queue_offset)
    store_host = request.store_host or config.store_host
    return {
        "log_offset": result.log_offset,
        "stored_log_offset": result.log_offset,
        "size": result.size,
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": result.queue_offset if kind in (0, SysFlag.COMMIT) else 0,
        "flag": request.flag,
        "sys_flag": request.sys_flag | _host_bits(request.born_host, store_host),
        "born_ms": request.born_ms,
        "born_host": _host_text(request.born_host),
        "store_ms": result.store_ms,
        "store_host": _host_text(store_host),
        "reconsume_times": request.reconsume_times,
        "prepared_offset": request.prepared_offset,
        "body_length": len(request.body),
        "body_sha256": sha256(request.body).hexdigest(),
        "properties": properties,
    }


def _host_bits(born: Host, store: Host) -> int:
    bits = SysFlag.BORN_HOST_V6 if len(born.address) == 16 else SysFlag(0)
    return int(bits | (SysFlag.STORE_HOST_V6 if len(store.address) == 16 else 0))


def _host_text(host: Host) -> str:
    address = ipaddress.ip_address(host.address)
    if address.version == 4:
        return f"{address}|{host.port}"
    # Java writes IPv6 addresses without leading zeros and without "::".
    parts = [f"{int(part, 16):x}" for part in address.exploded.split(":")]
    return f"{':'.join(parts)}|{host.port}"


def require_everything_written(view: JavaView, written: Written) -> None:
    """RocketMQ found exactly the records that were acknowledged, field by field."""
    found = {record["log_offset"]: record for record in view.records}
    for row in written.rows:
        record = found.pop(row["log_offset"])
        assert {name: record[name] for name in row} == row
    assert not found, f"records that nobody appended: {list(found)[:5]}"


# RocketMQ stumbles over an index entry whose record was deleted, says so, and goes on with the next.
_DELETED_KEY: Final = re.compile(
    r"^.*queryMessage exception.*\njava\.lang\.NullPointerException.*\n(?:[ \t].*\n|\n)*",
    re.MULTILINE,
)


def require_consistent(
    view: JavaView, *, index_may_repeat: bool = False, some_deleted: bool = False
) -> None:
    """RocketMQ's queues, reads and key queries are what its own walk of the log demands."""
    assert view.opened["load"] is True
    assert (_DELETED_KEY.sub("", view.errors) if some_deleted else view.errors) == ""
    assert view.scan["valid"] is True
    assert view.scan["end"] == view.opened["max_log_offset"]
    _require_queues(view)
    _require_queries(view, may_repeat=index_may_repeat)


def _require_queues(view: JavaView) -> None:
    expected: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for record in view.records:
        if record["sys_flag"] & SysFlag.TRANSACTION in (0, SysFlag.COMMIT):
            expected[record["topic"], record["queue_id"]].append(record)
    for name, queue in view.queues.items():
        records = expected.pop(name, [])
        assert [_as_unit(queue, record) for record in records] == queue["units"], name
        read = [[r["queue_offset"], r["log_offset"], r["record_sha256"]] for r in records]
        assert view.gets[name]["messages"] == read, name
        offsets = [record["queue_offset"] for record in records]
        counts = [record["batch_count"] for record in records]
        if records:
            assert queue["min_offset"] == offsets[0]
            assert queue["max_offset"] == offsets[-1] + counts[-1]
            following = [offset + count for offset, count in zip(offsets, counts, strict=True)]
            assert following[:-1] == offsets[1:], f"{name}: a gap between queue offsets"
    assert not expected, f"no queues for {list(expected)}"


def _as_unit(queue: Row, record: Row) -> list[int]:
    unit = [record["log_offset"], record["size"], record["tags_code"]]
    if queue["kind"] == "BatchCQ":
        unit += [record["queue_offset"], record["batch_count"], -1]
    return unit


def _require_queries(view: JavaView, *, may_repeat: bool) -> None:
    # The store compares hashes only: keys of two topics with equal hashes come together.
    by_hash: dict[int, list[int]] = defaultdict(list)
    for record in view.records:
        if record["sys_flag"] & SysFlag.TRANSACTION != SysFlag.ROLLBACK:
            properties = record["properties"]
            keys = [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]
            for key in filter(None, keys):
                by_hash[key_hash(record["topic"], key)].append(record["log_offset"])
    assert view.queries
    for (topic, key), offsets in view.queries.items():
        expected = by_hash[key_hash(topic, key)][-QUERY_COUNT_MAX:]
        if may_repeat:
            assert sorted(set(offsets)) == sorted(set(expected)), (topic, key)
        else:
            assert offsets == expected, (topic, key)
