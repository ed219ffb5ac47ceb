"""Reading a queue: statuses, limits, filters, deleted segments."""

from pathlib import Path
from typing import Any

import pytest

from orbitmq.format.cq_unit import decode_units
from orbitmq.format.record import decode_record
from orbitmq.message import GetStatus
from orbitmq.store.config import StoreConfig
from orbitmq.store.queues.trim import delete_before
from orbitmq.store.reads.read import QueueReader, is_filler
from orbitmq.store.reads.tag_filter import TagFilter
from orbitmq.testing.builders import make_body, make_request
from orbitmq.units import KiB
from queue_world import LogBuilder, World, make_world, small_layout


def _world(
    root: Path,
    count: int = 30,
    *,
    body_bytes: int = 50,
    segment_bytes: int = 1 << 20,
    file_units: int = 1000,
    **settings: Any,
) -> tuple[World, LogBuilder]:
    builder = LogBuilder(segment_bytes)
    tags = ("TagA", "TagB", None)
    builder.add_all(
        make_request(n, "T", 0, body_bytes=body_bytes, tag=tags[n % 3]) for n in range(count)
    )
    layout = small_layout(root, segment_bytes=segment_bytes, cq_file_bytes=file_units * 20)
    world = make_world(layout, builder.log())
    world.service.dispatch_now()
    world.reader = _reader(world, **settings)
    return world, builder


def _reader(world: World, **settings: Any) -> QueueReader:
    sizes = {"segment_bytes": world.layout.segment_bytes}
    config = StoreConfig(root=world.layout.root, **(sizes | settings))
    return QueueReader(config, world.queues, world.batch_queues, world.log)


@pytest.mark.feature("F21")
def test_messages_come_in_order_with_their_bodies(tmp_path: Path) -> None:
    world, builder = _world(tmp_path)

    result = world.reader.get("T", 0, 5, 10)

    assert result.status is GetStatus.FOUND
    assert result.queue_offsets == list(range(5, 15))
    assert [decode_record(record).body for record in result.records] == [
        make_body(n, 50) for n in range(5, 15)
    ]
    assert result.log_offsets == [record[0] for record in builder.records[5:15]]
    assert result.total_bytes == sum(record[1] for record in builder.records[5:15])


@pytest.mark.feature("F22", "F23")
@pytest.mark.parametrize(
    ("queue_id", "offset", "status", "next_offset", "limits"),
    [
        (9, 3, GetStatus.NO_MESSAGE_IN_QUEUE, 0, (0, 0)),
        (0, 2, GetStatus.OFFSET_TOO_SMALL, 12, (12, 30)),
        (0, -1, GetStatus.OFFSET_TOO_SMALL, 12, (12, 30)),
        (0, 30, GetStatus.OFFSET_OVERFLOW_ONE, 30, (12, 30)),
        (0, 31, GetStatus.OFFSET_OVERFLOW_BADLY, 30, (12, 30)),
        (0, 12, GetStatus.FOUND, 20, (12, 30)),
        (0, 29, GetStatus.FOUND, 30, (12, 30)),
    ],
)
def test_each_offset_gets_its_status_and_where_to_go_on(
    tmp_path: Path,
    queue_id: int,
    offset: int,
    status: GetStatus,
    next_offset: int,
    limits: tuple[int, int],
) -> None:
    world, builder = _world(tmp_path)
    world.queues.write_out(thorough=True)
    delete_before(world.queues, builder.records[12][0])

    result = world.reader.get("T", queue_id, offset, 8)

    assert (result.status, result.next_offset) == (status, next_offset)
    assert (result.min_offset, result.max_offset) == limits


@pytest.mark.feature("F22", "F23")
def test_a_file_that_cannot_be_read_sends_the_reader_to_the_next_one(tmp_path: Path) -> None:
    world, _ = _world(tmp_path, 30, file_units=10)
    world.queues.write_out(thorough=True)
    path = tmp_path / "consumequeue" / "T" / "0" / f"{200:020d}"
    world.files.forget(path)
    path.unlink()

    result = world.reader.get("T", 0, 13, 8)

    assert (result.status, result.next_offset) == (GetStatus.OFFSET_FOUND_NULL, 20)


def test_one_read_stays_in_one_file(tmp_path: Path) -> None:
    world, _ = _world(tmp_path, 30, file_units=10)

    result = world.reader.get("T", 0, 7, 32)

    assert result.queue_offsets == [7, 8, 9]
    assert result.next_offset == 10


def test_with_more_files_per_read_a_filter_looks_on_until_it_finds_something(
    tmp_path: Path,
) -> None:
    world, builder = _world(tmp_path, 0, file_units=10, cq_files_per_read=2)
    for n in range(30):
        builder.add(make_request(n, "T", 0, tag="X" if n in (15, 25) else "Y"))
    world.log._segments[:] = builder.log()._segments
    world.log.end = builder.end
    world.service.dispatch_now()

    assert world.reader.get("T", 0, 0, 32, filter=TagFilter.parse("X")).queue_offsets == [15]
    alone = _reader(world).get("T", 0, 0, 32, filter=TagFilter.parse("X"))
    assert (alone.status, alone.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 10)


def test_of_what_a_unit_holds_the_low_half_is_the_hash_of_the_tag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _ = _world(tmp_path)
    read = world.queues.read_units

    def with_high_half(number: int, first: int, count: int) -> bytes:
        units = decode_units(read(number, first, count))
        return b"".join(
            unit._replace(tag_hash=unit.tag_hash + (5 << 32)).encode() for unit in units
        )

    monkeypatch.setattr(world.queues, "read_units", with_high_half)

    result = world.reader.get("T", 0, 0, 32, filter=TagFilter.parse("TagB"))

    assert result.queue_offsets == list(range(1, 30, 3))


def test_tags_are_found_where_units_hold_addresses_of_ext_units(tmp_path: Path) -> None:
    builder = LogBuilder()
    builder.add_all(make_request(n, "T", 0, tag="AB"[n % 2], body_bytes=9) for n in range(9))
    world = make_world(small_layout(tmp_path), builder.log(), with_ext=True)
    world.service.dispatch_now()

    result = world.reader.get("T", 0, 0, 32, filter=TagFilter.parse("B"))

    assert result.queue_offsets == [1, 3, 5, 7]


def test_a_filter_looks_on_behind_padding(tmp_path: Path) -> None:
    builder = LogBuilder()
    for n in range(20):
        builder.add(make_request(n, "T", 0, tag="AB"[n % 2], body_bytes=9), 15 if n == 10 else None)
    world = make_world(small_layout(tmp_path, cq_file_bytes=2000), builder.log())
    world.service.dispatch_now()

    result = world.reader.get("T", 0, 0, 32, filter=TagFilter.parse("B"))

    assert result.queue_offsets == [1, 3, 5, 7, 9, 16, 18, 20, 22, 24]
    assert result.next_offset == 25


@pytest.mark.feature("F26")
def test_only_records_with_a_matching_tag_hash_are_read_from_the_log(tmp_path: Path) -> None:
    world, _ = _world(tmp_path)
    read: list[int] = []
    original = world.log.read
    world.log.read = lambda offset, size: (read.append(offset), original(offset, size))[1]  # type: ignore[method-assign, func-returns-value]

    result = world.reader.get("T", 0, 0, 32, filter=TagFilter.parse("TagB"))

    assert result.queue_offsets == list(range(1, 30, 3))
    assert result.next_offset == 30
    assert read == result.log_offsets[:1]  # all of them, from the first on, in one piece
    read.clear()
    none = world.reader.get("T", 0, 0, 32, filter=TagFilter.parse("TagX"))
    assert (none.status, none.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 30)
    assert read == []


def test_tags_with_equal_hashes_are_both_returned(tmp_path: Path) -> None:
    builder = LogBuilder()
    builder.add_all(make_request(n, "T", 0, tag=("Aa", "BB", "CC")[n % 3]) for n in range(9))
    world = make_world(small_layout(tmp_path), builder.log())
    world.service.dispatch_now()

    found = world.reader.get("T", 0, 0, 32, filter=TagFilter.parse("Aa"))

    assert [decode_record(record).tags for record in found.records] == ["Aa", "BB"] * 3


def test_a_record_filter_decides_after_the_tag(tmp_path: Path) -> None:
    class Even(TagFilter):
        def by_record(self, record: memoryview) -> bool:
            return decode_record(record).queue_offset % 2 == 0

    world, _ = _world(tmp_path, 10)

    assert world.reader.get("T", 0, 0, 32, filter=Even()).queue_offsets == [0, 2, 4, 6, 8]


@pytest.mark.feature("F24")
def test_units_of_a_deleted_segment_are_skipped_and_later_ones_returned(tmp_path: Path) -> None:
    world, builder = _world(tmp_path, 60, segment_bytes=4096)
    world.log.drop_first()  # the min offset does not know yet
    first_live = next(n for n, record in enumerate(builder.records) if record[0] >= 4096)

    result = world.reader.get("T", 0, 0, 32)

    assert result.status is GetStatus.FOUND
    assert result.queue_offsets == list(range(first_live, first_live + 32))


@pytest.mark.feature("F24")
def test_nothing_but_deleted_records_is_message_was_removing(tmp_path: Path) -> None:
    world, builder = _world(tmp_path, 20, segment_bytes=1 << 20)
    world.log._segments[:] = []

    result = world.reader.get("T", 0, 3, 5)

    assert (result.status, result.records) == (GetStatus.MESSAGE_WAS_REMOVING, [])
    assert result.next_offset == 20
    assert builder.end > 0


@pytest.mark.feature("F25")
@pytest.mark.parametrize(
    ("memory_bytes", "body_bytes", "max_count", "expected"),
    [
        (1 << 30, 50, 100, 32),  # in memory: by count
        (1 << 30, 30 * KiB, 100, 8),  # in memory: 256 KiB
        (1000, 50, 100, 8),  # on disk: by count
        (1000, 15 * KiB, 100, 4),  # on disk: 64 KiB
        (1 << 30, 50, 5, 5),
        (1 << 30, 300 * KiB, 10, 1),  # the first is always returned
    ],
)
@pytest.mark.parametrize("by_unit", [False, True])
def test_one_answer_has_limits_by_count_and_bytes_in_memory_and_on_disk(
    tmp_path: Path,
    memory_bytes: int,
    body_bytes: int,
    max_count: int,
    expected: int,
    by_unit: bool,
) -> None:
    class All(TagFilter):
        """Whatever is filtered is read unit by unit."""

    count = 40 if body_bytes < 100 * KiB else 3
    # The newest record is in memory whatever the limit; a reader of old ones is not near it.
    world, _ = _world(
        tmp_path, count, body_bytes=body_bytes, segment_bytes=1 << 22, memory_bytes=memory_bytes
    )

    result = world.reader.get("T", 0, 0, max_count, filter=All() if by_unit else None)

    assert len(result.records) == expected
    assert result.next_offset == expected
    assert result.suggest_replica == (memory_bytes == 1000)


@pytest.mark.feature("F25")
def test_forty_per_cent_of_memory_is_the_border_between_memory_and_disk(tmp_path: Path) -> None:
    world, builder = _world(tmp_path, 40)
    first_age = builder.end - builder.records[0][0]

    def count(memory_bytes: int) -> int:
        return len(_reader(world, memory_bytes=memory_bytes).get("T", 0, 0, 100).records)

    assert count(first_age * 10 // 4 + 10) == 32
    assert count(100) == 8


def test_the_bytes_that_the_caller_allows_are_a_limit_too(tmp_path: Path) -> None:
    world, builder = _world(tmp_path)
    size = builder.records[0][1]

    assert len(world.reader.get("T", 0, 0, 32, max_bytes=3 * size + 10).records) in (2, 3)
    assert len(world.reader.get("T", 0, 0, 32, max_bytes=1).records) == 1


def test_a_filter_that_finds_nothing_looks_at_800_units_at_most(tmp_path: Path) -> None:
    world, _ = _world(tmp_path, 1000, body_bytes=5)

    result = world.reader.get("T", 0, 0, 32, filter=TagFilter.parse("none"))

    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 800)


def test_padding_units_are_passed_over(tmp_path: Path) -> None:
    builder = LogBuilder()
    builder.add(make_request(0, "T", 0), queue_offset=0)
    builder.add(make_request(1, "T", 0), queue_offset=3)
    world = make_world(small_layout(tmp_path), builder.log())
    world.service.dispatch_now()

    result = world.reader.get("T", 0, 0, 32)

    assert result.queue_offsets == [0, 3]
    assert world.reader.get("T", 0, 1, 32).queue_offsets == [3]


def test_an_ordinary_record_is_no_filler() -> None:
    assert not is_filler(memoryview(b"ORBITMQ_FILLER but no record"))
    assert not is_filler(memoryview(b""))
