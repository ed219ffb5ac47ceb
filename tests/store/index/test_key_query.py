"""Queries by key."""

from pathlib import Path

import numpy as np
import pytest

from orbitmq.format.columns import ITEM
from orbitmq.format.index_file import key_hash
from orbitmq.format.record import BODY_AT, decode_record, encode_record
from orbitmq.message import LOOPBACK
from orbitmq.store.index.key_query import TIME_MAX
from orbitmq.testing.builders import make_request, unique_key
from queue_world import LogBuilder, World, make_world, small_layout


def _world(root: Path, builder: LogBuilder) -> World:
    layout = small_layout(root, segment_bytes=builder.segment_bytes, index_items=50)
    world = make_world(layout, builder.log())
    world.service.dispatch_now()
    return world


def _offsets(found: list[memoryview]) -> list[int]:
    return [decode_record(record).log_offset for record in found]


@pytest.mark.feature("F49")
def test_the_newest_records_of_a_key_come_in_log_order_and_64_at_most(tmp_path: Path) -> None:
    builder = LogBuilder().add_all(make_request(n, "T", keys="hot") for n in range(100))
    world = _world(tmp_path, builder)
    offsets = [record[0] for record in builder.records]

    assert _offsets(world.keys.query("T", "hot", 1000)) == offsets[-64:]
    assert _offsets(world.keys.query("T", "hot", 5)) == offsets[-5:]
    assert world.keys.query("T", "cold") == []
    assert world.keys.query("T", "hot", 0) == []


@pytest.mark.feature("F49")
def test_a_time_window_restricts_the_answer(tmp_path: Path) -> None:
    builder = LogBuilder(step_ms=1000).add_all(make_request(n, "T", keys="k") for n in range(20))
    world = _world(tmp_path, builder)
    first = 1_700_000_000_000

    found = world.keys.query("T", "k", 64, first + 5000, first + 8000)

    assert _offsets(found) == [record[0] for record in builder.records[5:9]]


@pytest.mark.feature("F51")
def test_keys_and_topics_with_equal_hashes_do_not_mix_when_asked_exactly(tmp_path: Path) -> None:
    builder = LogBuilder()
    for n, (topic, key) in enumerate([("GoldAa", "Aa"), ("GoldBB", "Aa"), ("GoldAa", "BB")] * 3):
        builder.add(make_request(n, topic, keys=key))
    world = _world(tmp_path, builder)
    offsets = [record[0] for record in builder.records]

    assert len(world.keys.query("GoldAa", "Aa")) == 9
    assert _offsets(world.keys.query("GoldAa", "Aa", exact=True)) == [offsets[n] for n in (0, 3, 6)]
    assert _offsets(world.keys.query("GoldBB", "Aa", exact=True)) == [offsets[n] for n in (1, 4, 7)]
    assert world.keys.query("GoldBB", "BB", exact=True) == []


@pytest.mark.feature("F51")
def test_foreign_keys_do_not_crowd_out_the_right_one(tmp_path: Path) -> None:
    builder = LogBuilder()
    builder.add(make_request(0, "T", keys="Aa"))
    builder.add_all(make_request(n, "T", keys="BB") for n in range(1, 90))
    world = _world(tmp_path, builder)

    assert len(world.keys.query("T", "Aa")) == 64
    assert _offsets(world.keys.query("T", "Aa", exact=True)) == [0]


def test_a_unique_key_is_found_exactly(tmp_path: Path) -> None:
    builder = LogBuilder().add_all(make_request(n, "T") for n in range(5))
    world = _world(tmp_path, builder)

    assert _offsets(world.keys.query("T", unique_key(3), exact=True)) == [builder.records[3][0]]


def test_entries_that_lead_nowhere_are_passed_over(tmp_path: Path) -> None:
    builder = LogBuilder(4096).add_all(make_request(n, "T", keys="k") for n in range(40))
    world = _world(tmp_path, builder)
    world.log.drop_first()
    world.log.end = builder.records[35][0]

    found = _offsets(world.keys.query("T", "k"))

    assert found == [r[0] for r in builder.records[:35] if r[0] >= 4096]


def test_an_entry_that_leads_into_a_body_finds_nothing(tmp_path: Path) -> None:
    builder = LogBuilder()
    body_at = builder.end + BODY_AT
    inner = encode_record(
        make_request(7, "T", 0, keys="k"),
        log_offset=body_at,
        queue_offset=0,
        store_ms=builder.now_ms,
        store_host=LOOPBACK,
    )
    builder.add(make_request(0, "T", 0, body=inner))
    world = _world(tmp_path, builder)
    items = np.zeros(1, dtype=ITEM)
    items[0] = (body_at, builder.now_ms, key_hash("T", "k"))

    world.index.insert(items)

    assert world.index.query("T", "k", 5, 0, TIME_MAX) == [body_at]
    assert world.keys.query("T", "k") == []
