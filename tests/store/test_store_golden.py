"""Stores that a real broker wrote, opened by the whole store: it reads what Java reads, and goes on."""

import hashlib

import pytest

from golden_stores import STORES, row, rows, settings, unpack
from orbitmq.format.cq_ext_unit import is_ext_address
from orbitmq.message import AppendStatus, Boundary
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing.builders import make_request


def open_store(root, name: str) -> MessageStore:
    config = StoreConfig.from_settings(root, settings(name))
    return MessageStore.open(config, background=False)


@pytest.fixture(scope="module", params=STORES)
def golden(request, tmp_path_factory):
    """One opened copy of each store, for all tests that only read."""
    name = request.param
    root = unpack(name, tmp_path_factory.mktemp("golden"))
    with open_store(root, name) as store:
        yield name, store


def test_a_golden_store_reads_as_java_reads_it(golden):
    name, store = golden
    opened = row(name, "opened")

    assert store.min_log_offset == opened["minPhyOffset"]
    assert store.max_log_offset == opened["maxPhyOffset"]
    for record in rows(name, "record"):
        found = store.by_id(record["offsetMsgId"])
        assert hashlib.sha256(found.body).hexdigest() == record["bodySha256"]


@pytest.mark.feature("F11", "F12", "F13", "F29", "F31", "F33")
def test_every_queue_unit_is_read_as_java_reads_it(golden):
    name, store = golden
    listed = set(store.queues())

    for queue in rows(name, "queue"):
        key = (queue["topic"], queue["queueId"])
        limits = (queue["minOffset"], queue["maxOffset"])
        is_batch = queue["cqType"] != "SimpleCQ"

        assert key in listed
        assert (key, store.min_offset(*key), store.max_offset(*key)) == (key, *limits)
        units = batch_units(store, key) if is_batch else simple_units(store, key, *limits)
        assert (key, units) == (key, queue["units"])
        assert (key, end_log_offset(store, key)) == (key, queue["maxPhysicOffset"])


def simple_units(store, key, low: int, high: int) -> list[list]:
    """Return the units of a queue, each with what its ext unit says."""
    found = []
    while low < high:
        units = store.units(*key, low, high - low)
        assert units
        found += [resolved(store, key, unit) for unit in units]
        low += len(units)
    return found


def resolved(store, key, unit) -> list:
    if not is_ext_address(unit.tag_hash):
        return list(unit)
    ext = store._parts.dispatcher.ext.get(store.queue_number(*key), unit.tag_hash)
    bits = ext.bitmap.hex() if ext.bitmap else None
    return [unit.log_offset, unit.size, ext.tag_hash, [ext.tag_hash, ext.store_ms, bits]]


def batch_units(store, key) -> list[list]:
    queues, number = store._parts.dispatcher.batch_queues, store.queue_number(*key)
    names = ("log_offset", "size", "tag_hash", "base_offset", "message_count", "compacted_offset")
    units = [queues.read_raw(number, n, 1)[0] for n in range(*queues.unit_range(number))]
    return [[int(unit[name]) for name in names] for unit in units]


def end_log_offset(store, key) -> int:
    dispatcher, number = store._parts.dispatcher, store.queue_number(*key)
    is_batch = dispatcher.batch_queues.find(*key) >= 0
    queues = dispatcher.batch_queues if is_batch else dispatcher.queues
    return queues.end_log_offset(number)


@pytest.mark.feature("F30")
def test_every_search_by_time_gives_the_offset_that_java_gives(golden):
    name, store = golden
    differences = []

    for query in rows(name, "timeQuery"):
        key = (query["topic"], query["queueId"])
        for time_ms, *wanted in query["timeLowerUpper"]:
            ask = Boundary.LOWER, Boundary.UPPER
            found = [store.offset_by_time(*key, time_ms, boundary) for boundary in ask]
            differences += [(key, time_ms, wanted, found)] if found != wanted else []

    assert differences == []


@pytest.mark.feature("F21", "F22", "F23", "F25", "F26")
def test_pulls_from_a_golden_store_answer_as_java_answers(golden):
    name, store = golden
    for pull in rows(name, "getMessage"):
        asked = pull["topic"], pull["queueId"], pull["offset"], pull["maxMsgNums"]
        found = store.get(*asked, subscription=pull["subscription"])
        answer = {
            "status": found.status.value,
            "nextBeginOffset": found.next_offset,
            "minOffset": found.min_offset,
            "maxOffset": found.max_offset,
            "phyOffsets": found.log_offsets,
            "queueOffsets": found.queue_offsets,
        }
        assert (asked, answer) == (asked, {key: pull[key] for key in answer})


@pytest.mark.feature("F37", "F38", "F49", "F50")
def test_key_queries_of_a_golden_store_answer_as_java_answers(golden):
    name, store = golden
    for query in rows(name, "keyQuery"):
        found = store.query(
            query["topic"], query["key"], query["maxNum"], query["begin"], query["end"]
        )
        offsets = [int.from_bytes(record[28:36], "big") for record in found]
        # After a crash Java enters the last message of a kept index file twice; we do not.
        assert offsets == list(dict.fromkeys(query["phyOffsets"]))


@pytest.mark.feature("F36", "F40")
def test_every_index_header_is_read_as_java_reads_it(golden):
    name, store = golden
    fields = ("beginTimestamp", "endTimestamp", "beginPhyOffset", "endPhyOffset")
    counts = ("hashSlotCount", "indexCount")
    shipped = [
        (file["file"], tuple(file[field] for field in (*fields, *counts)))
        for file in rows(name, "indexFileAsShipped")
    ]

    headers = store._parts.dispatcher.index.headers()

    if name == "crashed":
        # Its last file was being filled: what the log has more is entered at opening.
        assert headers[:-1] == shipped[:-1]
        assert headers[-1][1][5] >= shipped[-1][1][5]
    else:
        assert headers == shipped


@pytest.mark.parametrize("name", STORES)
def test_a_golden_store_can_be_written_on_and_opened_again(name, tmp_path):
    root = unpack(name, tmp_path)
    with open_store(root, name) as store:
        assert store.recovery_report.repairs == ()
        end = store.max_log_offset
        topic, queue_id = store.queues()[0]
        high = store.max_offset(topic, queue_id)
        results = [store.append(make_request(n, topic, queue_id)) for n in range(200)]
        assert {result.status for result in results} == {AppendStatus.PUT_OK}
        assert results[0].queue_offset == high
        assert results[0].log_offset >= end
        assert store.wait_dispatched()

    with open_store(root, name) as store:
        assert not store.recovery_report.adopted
        assert store.max_offset(topic, queue_id) == high + 200
        assert store.record_at(results[-1].log_offset).body == make_request(199).body
