"""The Java reader itself: on stores that RocketMQ wrote it must say what their manifests say."""

from pathlib import Path

import pytest

from compat.java_store import JavaView, needs_java, read_store
from golden_stores import Row, row, rows, settings, unpack

pytestmark = [pytest.mark.compat, needs_java]

FIELDS = {
    "log_offset": "phyOffset",
    "size": "size",
    "stored_log_offset": "storedPhyOffset",
    "topic": "topic",
    "queue_id": "queueId",
    "queue_offset": "queueOffset",
    "flag": "flag",
    "sys_flag": "sysFlag",
    "born_ms": "bornTimestamp",
    "store_ms": "storeTimestamp",
    "reconsume_times": "reconsumeTimes",
    "prepared_offset": "preparedTransactionOffset",
    "body_length": "bodyLength",
    "body_crc": "bodyCRC",
    "body_sha256": "bodySha256",
    "properties": "properties",
    "record_sha256": "recordSha256",
}


@pytest.mark.parametrize("name", ["crashed", "ext", "batchcq"])
def test_the_java_reader_agrees_with_the_manifest(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)

    view = read_store(root, settings(name), shutdown=False)

    assert view.errors == ""
    assert view.opened["max_log_offset"] == row(name, "opened")["maxPhyOffset"]
    assert _renamed_records(view) == [_kept(record) for record in rows(name, "record")]
    _require_same_queues(name, view)
    _require_same_queries(name, view)


def _renamed_records(view: JavaView) -> list[Row]:
    return [{theirs: record[ours] for ours, theirs in FIELDS.items()} for record in view.records]


def _kept(record: Row) -> Row:
    return {theirs: record[theirs] for theirs in FIELDS.values()}


def _require_same_queues(name: str, view: JavaView) -> None:
    assert len(view.queues) == len(rows(name, "queue"))
    for queue in rows(name, "queue"):
        found = view.queues[queue["topic"], queue["queueId"]]
        assert (found["min_offset"], found["max_offset"]) == (
            queue["minOffset"],
            queue["maxOffset"],
        )
        assert found["units"] == queue["units"]
        read = view.gets[queue["topic"], queue["queueId"]]["messages"]
        assert [message[1] for message in read] == [unit[0] for unit in queue["units"]]


def _require_same_queries(name: str, view: JavaView) -> None:
    compared = 0
    for query in rows(name, "keyQuery"):
        everything = query["maxNum"] == 64 and query["begin"] == 0
        if everything and (query["topic"], query["key"]) in view.queries:
            assert view.queries[query["topic"], query["key"]] == query["phyOffsets"]
            compared += 1
    assert compared > 0
