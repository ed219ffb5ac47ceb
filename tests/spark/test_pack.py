"""What a task packs of a split, and what travels."""

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from golden_stores import damage, settings, unpack
from orbitmq.format.columns import ITEM
from orbitmq.format.kernels import compiled, twins
from orbitmq.log_read import Split
from orbitmq.spark.jobs.rebuild.pack import PackedSplit, PackOptions, pack_split
from orbitmq.spark.jobs.rebuild.pack_items import pack_items
from orbitmq.store.offline.tools import config_of
from orbitmq.store.queues.names import BATCH

records = st.lists(
    st.tuples(
        st.sampled_from([91, 1_000, 2**33]),  # bytes from the record before
        st.sampled_from([0, 1, -5_000, 2**40]),  # milliseconds from the record before
        st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4),  # key hashes
    ),
    max_size=30,
)


@given(records, st.integers(1, 5))
def test_items_come_out_as_they_went_in(
    made: list[tuple[int, int, list[int]]], part_count: int
) -> None:
    rows, offset, ms = [], 0, 1_700_000_000_000
    for step, later, hashes in made:
        offset, ms = offset + step, ms + later
        rows += [(offset, ms, key_hash) for key_hash in hashes]
    items = np.array(rows, dtype=ITEM)

    packed = pack_items(np.array_split(items, part_count))

    assert packed.unpack().tolist() == items.tolist()


def test_no_items_at_all() -> None:
    assert pack_items([]).item_count == 0
    assert len(pack_items([]).unpack()) == 0


def test_a_record_with_two_keys_takes_less_than_forty_bytes() -> None:
    items = np.zeros(2_000, dtype=ITEM)
    items["log_offset"] = np.repeat(np.arange(1_000) * 1_200 + 2**40, 2)
    items["store_ms"] = np.repeat(np.arange(1_000) + 1_700_000_000_000, 2)

    packed = pack_items([items])

    assert 20 * 1_000 + sum(column.nbytes for column in packed.columns) < 40 * 1_000


def whole_segment(root: Path, number: int = 0) -> Split:
    path = sorted((root / "commitlog").iterdir())[number]
    base, length = int(path.name), path.stat().st_size
    return Split(str(path), base, base, base + length, base + length)


def packed_first(root: Path, name: str) -> list[PackedSplit]:
    options = PackOptions.of(config_of(root, settings(name)))
    return [pack_split(whole_segment(root), kernels, options) for kernels in twins()]


def test_both_kinds_of_kernels_pack_the_same(tmp_path: Path) -> None:
    plain, compiled_one = packed_first(unpack("mixed", tmp_path), "mixed")

    assert plain.facts.queues == compiled_one.facts.queues
    assert plain.units.runs.tolist() == compiled_one.units.runs.tolist()
    assert plain.units.units.tobytes() == compiled_one.units.units.tobytes()
    assert plain.items.unpack().tolist() == compiled_one.items.unpack().tolist()
    for name in ("first", "end", "records"):
        assert getattr(plain.facts, name) == getattr(compiled_one.facts, name)


def test_batch_topics_go_to_batch_queues(tmp_path: Path) -> None:
    packed = packed_first(unpack("batchcq", tmp_path), "batchcq")[1]

    assert {queue.kind for queue in packed.facts.queues} == {BATCH}
    assert not len(packed.units.runs)
    assert packed.batches.runs["count"].sum() * 46 == len(packed.batches.units)


def test_a_bad_place_ends_a_split(tmp_path: Path) -> None:
    root = damage(unpack("crashed", tmp_path), "flip-late")
    options = PackOptions.of(config_of(root, settings("crashed")))
    count = len(list((root / "commitlog").iterdir()))

    found = [
        pack_split(whole_segment(root, number), compiled(), options).facts
        for number in range(count - 1)
    ]

    (short,) = [facts for facts in found if facts.bad is not None]
    assert short.first < short.end == short.bad < short.split.end
