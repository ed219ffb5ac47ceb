"""A read at a log offset gives the record that starts there, and nothing anywhere else.

Message ids come from peers, and so do bodies: a body may hold a whole record that is right in every field.
"""

from pathlib import Path

import numpy as np
import pytest

from orbitmq.format.columns import ITEM
from orbitmq.format.index_file import key_hash
from orbitmq.format.message_id import encode_offset_id
from orbitmq.format.properties import encode_properties
from orbitmq.format.record import BLANK, BODY_AT, encode_record
from orbitmq.message import LOOPBACK, AppendRequest, QueueType, SysFlag
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.index.key_query import TIME_MAX
from orbitmq.store.reads import record_finder
from orbitmq.store.reads.record_finder import RecordFinder
from orbitmq.store.store import MessageStore
from orbitmq.testing.builders import make_request
from orbitmq.testing.fake_clock import FakeClock
from queue_world import LogBuilder, make_world, small_layout

SIZES = {"segment_bytes": 16 * 1024, "cq_file_bytes": 400, "batch_cq_file_bytes": 460}
STOLEN = "Payments"


def open_store(root: Path, **changes: object) -> MessageStore:
    config = StoreConfig(**{"root": root / "store", **SIZES, **changes})
    return MessageStore.open(
        config,
        clock=FakeClock(),
        background=False,
        topic_types=lambda t: QueueType.BATCH if t == "Batch" else QueueType.SIMPLE,
    )


def forged(log_offset: int, queue_offset: int = 0, sys_flag: int = 0, topic: str = STOLEN) -> bytes:
    """Return a record that was never sent, as it would stand at this offset."""
    properties = encode_properties({"KEYS": "paid", "UNIQ_KEY": "F" * 32})
    request = AppendRequest(topic, 0, b"pay 1 000 000", properties, sys_flag=sys_flag)
    return encode_record(
        request, log_offset=log_offset, queue_offset=queue_offset, store_ms=1, store_host=LOOPBACK
    )


def append_forged(
    store: MessageStore, topic: str = "Orders", stolen: str = STOLEN, **fields: int
) -> int:
    """Append a message whose body is a record that names its own place; return that place."""
    place = store.max_log_offset + BODY_AT
    body = forged(place, topic=stolen, **fields)
    result = store.append(make_request(0, topic, 0, body=body))
    assert result.log_offset + BODY_AT == place
    assert bytes(store._log.read(place, len(body))) == body
    return place


def answers(store: MessageStore, log_offset: int) -> list[object]:
    """Return what every way to a record by its offset gives."""
    return [
        store.record_bytes(log_offset),
        store.record_at(log_offset),
        store.by_id(encode_offset_id(LOOPBACK, log_offset)),
    ]


@pytest.mark.feature("F8")
@pytest.mark.parametrize("dispatched", [True, False])
def test_each_record_is_found_at_its_offset_and_nothing_at_any_other(tmp_path, dispatched):
    with open_store(tmp_path) as store:
        results = [store.append(make_request(n, "T", n % 3)) for n in range(50)]
        if dispatched:
            store.wait_dispatched()
        starts = {result.log_offset: result for result in results}

        found = {
            offset: raw
            for offset in range(-10, store.max_log_offset + 200)
            if (raw := store.record_bytes(offset)) is not None
        }

        assert {offset: len(raw) for offset, raw in found.items()} == {
            offset: result.size for offset, result in starts.items()
        }
        assert all(store.record_at(offset).log_offset == offset for offset in starts)


@pytest.mark.feature("F8")
@pytest.mark.parametrize("dispatched", [True, False])
def test_a_record_inside_a_body_is_never_returned(tmp_path, dispatched):
    with open_store(tmp_path) as store:
        for number in range(5):
            store.append(make_request(number, STOLEN, 0))
        # The forger knows where the log ends and how far the queue is: each of its records is what the
        # store itself would have written there.
        places = [append_forged(store, queue_offset=n) for n in range(8)]
        real = [place - BODY_AT for place in places]
        if dispatched:
            store.wait_dispatched()

        stolen = [answer for place in places for answer in answers(store, place)]

        assert stolen == [None] * len(stolen)
        assert all(None not in answers(store, place) for place in real)


def test_a_forged_half_message_has_no_unit_and_is_still_not_returned(tmp_path):
    with open_store(tmp_path) as store:
        place = append_forged(store, sys_flag=SysFlag.PREPARED)
        store.wait_dispatched()

        assert answers(store, place) == [None] * 3


@pytest.mark.parametrize("sys_flag", [SysFlag.PREPARED, SysFlag.ROLLBACK])
def test_a_record_without_a_unit_is_found(tmp_path, sys_flag):
    with open_store(tmp_path) as store:
        append_forged(store)
        half = store.append(make_request(1, sys_flag=sys_flag))
        later = store.append(make_request(2))
        store.wait_dispatched()

        assert store.record_at(half.log_offset).body == make_request(1).body
        assert store.record_at(later.log_offset).body == make_request(2).body


def test_records_of_a_deleted_topic_are_found_as_long_as_the_log_has_them(tmp_path):
    with open_store(tmp_path) as store:
        gone = [store.append(make_request(n, "Gone", 0)) for n in range(200)]
        place = append_forged(store, "Gone", queue_offset=3)
        store.wait_dispatched()
        store.delete_topic("Gone")

        assert store.max_log_offset > 2 * 16 * 1024
        for number, result in enumerate(gone):
            assert store.record_at(result.log_offset).body == make_request(number).body
        assert answers(store, place) == [None] * 3


def test_a_message_of_a_batch_queue_is_found_and_a_record_in_its_body_is_not(tmp_path):
    with open_store(tmp_path) as store:
        place = append_forged(store, "Batch", "Batch")
        store.wait_dispatched()

        assert store.record_at(place - BODY_AT).topic == "Batch"
        assert answers(store, place) == [None] * 3


def test_only_what_readers_may_see_is_found(tmp_path):
    with open_store(tmp_path, flush_mode=FlushMode.SYNC) as store:
        result = store.append_nowait(make_request(0))

        assert answers(store, result.log_offset) == [None] * 3
        store.flush()
        assert None not in answers(store, result.log_offset)


def test_a_key_leads_to_records_and_not_into_bodies(tmp_path):
    with open_store(tmp_path) as store:
        place = append_forged(store)
        store.wait_dispatched()
        entry = np.zeros(1, dtype=ITEM)
        now = store.record_at(place - BODY_AT).store_ms
        entry[0] = (place, now, key_hash(STOLEN, "paid"))
        store._parts.dispatcher.index.insert(entry, unseen=True)

        assert store._parts.dispatcher.index.query(STOLEN, "paid", 9, 0, TIME_MAX) == [place]
        assert store.query(STOLEN, "paid", exact=True) == []
        assert store.query(STOLEN, "paid") == []


def test_all_walks_over_a_segment_cost_little_more_than_reading_it_once(tmp_path, monkeypatch):
    builder = LogBuilder(1 << 20).add_all(
        make_request(n, sys_flag=SysFlag.PREPARED) for n in range(100)
    )
    world = make_world(small_layout(tmp_path), builder.log())
    finder = RecordFinder(world.log, world.queues, world.batch_queues, dispatched_offset=lambda: 0)
    passed = []

    class CountingBlank:
        size, unpack = BLANK.size, BLANK.unpack

        def unpack_from(self, data, at):
            passed.append(at)
            return BLANK.unpack_from(data, at)

    monkeypatch.setattr(record_finder, "STEP_RECORDS", 5)
    monkeypatch.setattr(record_finder, "BLANK", CountingBlank())

    found = [finder.find(offset) for offset, *_ in reversed(builder.records)]

    assert None not in found
    assert 100 < len(passed) < 100 + 100 * 5
