"""A filter of records is asked about many units at once, and a read gives what it gives unit by unit."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.errors import FormatError
from orbitmq.files.disk import Disk
from orbitmq.format import kernels
from orbitmq.format.cq_ext_unit import ExtUnit
from orbitmq.format.cq_unit import UNIT, UNIT_DTYPE
from orbitmq.message import GetStatus, Property
from orbitmq.sql92.expression import Sql92Expression
from orbitmq.sql92.fast.kernels import KernelChoice, compiled, twins
from orbitmq.sql92.fast.program import FilterKernels
from orbitmq.sql92.filter import Sql92Filter
from orbitmq.store.config import StoreConfig
from orbitmq.store.memory.memory_store import MemoryStore
from orbitmq.store.reads.get_result import GetResult
from orbitmq.store.reads.many_records import LEAST, matches
from orbitmq.store.reads.read import QueueReader
from orbitmq.testing import FakeClock
from orbitmq.testing.builders import HOST_V4, HOST_V6, make_request
from orbitmq.units import MiB
from queue_world import LogBuilder, World, make_world, small_layout

pytestmark = pytest.mark.feature("F28")

CHOICE = KernelChoice()
CHOICE.wait()


class OneByOne:
    """The same filter, asked about one record at a time."""

    def __init__(self, text: str) -> None:
        self._filter = filter_of(text)

    def by_unit(self, tag_hash: int | None, ext: ExtUnit | None) -> bool:
        return self._filter.by_unit(tag_hash, ext)

    def by_record(self, record: memoryview) -> bool:
        return self._filter.by_record(record)


def filter_of(text: str) -> Sql92Filter:
    return Sql92Filter(Sql92Expression.compile(text), CHOICE)


def world_of(root: Path, builder: LogBuilder) -> World:
    layout = small_layout(root, segment_bytes=builder.segment_bytes, cq_file_bytes=20 * 2000)
    world = make_world(layout, builder.log())
    world.service.dispatch_now()
    config = StoreConfig(root=layout.root, segment_bytes=layout.segment_bytes)
    world.reader = QueueReader(config, world.queues, world.batch_queues, world.log)
    return world


def filled(root: Path, count: int, segment_bytes: int = 1 << 20) -> World:
    builder = LogBuilder(segment_bytes)
    for number in range(count):
        builder.add(make_request(number, "T", 0, body_bytes=5, properties={"n": str(number % 100)}))
        builder.add(make_request(number, "Other", 0, body_bytes=9))
    return world_of(root, builder)


def same_reads(world: World, text: str, offset: int, count: int = 32) -> GetResult:
    """Read in both ways, compare all that an answer says, and return it."""
    many = world.reader.get("T", 0, offset, count, filter=filter_of(text))
    single = world.reader.get("T", 0, offset, count, filter=OneByOne(text))
    for name in (field.name for field in dataclasses.fields(GetResult)):
        if name != "packed":
            assert getattr(many, name) == getattr(single, name), name
    assert many.packed in (None, b"".join(many.records))
    return many


@pytest.mark.parametrize("text", ["n = 7", "n < 50", "TRUE", "n > 100", "n = 'x' OR n > 98.5"])
@pytest.mark.parametrize("segment_bytes", [1 << 20, 8192])
def test_a_filtered_read_is_that_of_one_record_after_the_other(
    tmp_path: Path, text: str, segment_bytes: int
) -> None:
    world = filled(tmp_path, 1000, segment_bytes)

    for offset in (0, 1, 63, 64, 500, 950, 995, 999):
        for count in (1, 5, 32):
            result = same_reads(world, text, offset, count)
            assert result.next_offset > offset


def test_the_matches_of_800_units_are_found_with_few_reads_of_the_log(tmp_path: Path) -> None:
    world = filled(tmp_path, 1000)
    reads: list[int] = []
    original = world.log.read
    world.log.read = lambda offset, size: (reads.append(offset), original(offset, size))[1]  # type: ignore[method-assign, func-returns-value]

    result = world.reader.get("T", 0, 0, 32, filter=filter_of("n = 7"))

    assert result.queue_offsets == list(range(7, 800, 100))
    assert result.next_offset == 800
    assert len(reads) < 8 + 5  # the matches, and the blocks


def test_deleted_segments_padding_and_fillers_are_as_without_a_filter(tmp_path: Path) -> None:
    builder = LogBuilder(8192)
    for number in range(200):
        filler = {Property.FILLER: "1"} if number % 50 == 3 else {}
        properties = {"n": str(number % 10), **filler}
        at = 120 if number == 100 else None  # with padding before it
        builder.add(make_request(number, "T", 0, body_bytes=5, properties=properties), at)
    world = world_of(tmp_path, builder)
    world.log.drop_first()

    for offset in range(0, 220, 7):
        same_reads(world, "n = 3", offset)
    assert same_reads(world, "n = 3", 0).status is GetStatus.FOUND
    found = same_reads(world, "n = 3", 100).queue_offsets
    assert found == [20 + number for number in range(103, 200, 10) if number not in (103, 153)]


def test_a_log_that_is_gone_is_message_was_removing(tmp_path: Path) -> None:
    world = filled(tmp_path, 30)
    world.log._segments[:] = []

    assert same_reads(world, "n = 3", 0).status is GetStatus.MESSAGE_WAS_REMOVING


def test_units_that_are_not_true_do_not_break_a_read(tmp_path: Path) -> None:
    world = filled(tmp_path, 40)
    units = bytearray(world.queues.read_units(world.queues.find("T", 0), 0, 40))
    good = [UNIT.unpack_from(units, 20 * number) for number in range(40)]
    lies = [(-5, 10, 0), (2**63 - 1, 2**31 - 1, 0), (0, -1, 0), (good[9][0] + 1, 100, 0), (0, 3, 0)]
    for number, lie in enumerate(lies):
        UNIT.pack_into(units, 20 * (8 * number + 1), *lie)

    table = np.frombuffer(bytes(units), dtype=UNIT_DTYPE)
    at, sizes = table["log_offset"].astype(np.int64), table["size"].astype(np.int64)

    for number in range(40):
        found = matches(world.log, filter_of("n < 20"), at[number : number + 1], sizes[number:][:1])
        if number % 8 != 1:
            assert found is not None
            assert found.tolist() == [number < 20]
        else:
            assert found is None or not found.any()
    assert matches(world.log, filter_of("n < 20"), at, sizes) is None


def test_topics_in_memory_are_filtered_alike_over_the_ends_of_their_slabs(tmp_path: Path) -> None:
    store = MemoryStore(
        StoreConfig(root=tmp_path, store_host=HOST_V4),
        clock=FakeClock(),
        disk=Disk(),
        kernels=kernels.plain,
        state_file=tmp_path / "memoryTopics.json",
        bytes_max=1 * MiB,
    )
    for number in range(600):
        given = {"n": str(number % 100)}
        store.append(make_request(number, "T", 0, body_bytes=600, properties=given))

    many, single = (
        store.get("T", 0, 0, 32, filter=wanted)
        for wanted in (filter_of("n = 7"), OneByOne("n = 7"))
    )

    assert many.packed == b"".join(single.records)
    assert dataclasses.replace(many, packed=None) == single
    assert many.queue_offsets == list(range(7, 600, 100))
    store.close()


def test_few_units_are_asked_one_by_one(tmp_path: Path) -> None:
    world = filled(tmp_path, 40)

    few, enough = (same_reads(world, "TRUE", 40 - count) for count in (LEAST - 1, LEAST))

    assert few.packed is None
    assert enough.packed is not None


@settings(max_examples=200)
@given(st.data())
def test_both_kernels_find_the_same_properties_in_damaged_records(data: st.DataObject) -> None:
    builder = LogBuilder()
    for number in range(4):
        host = (HOST_V4, HOST_V6)[number % 2]
        topic = "T" * (1 + 60 * number)
        builder.add(make_request(number, topic, 0, body_bytes=30, born_host=host))
    raw = bytearray(b"".join(builder._segments))
    for _ in range(data.draw(st.integers(0, 6))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    at = np.array([record[0] for record in builder.records], dtype=np.int64)
    sizes = np.array([record[1] for record in builder.records], dtype=np.int64)
    sizes -= data.draw(st.integers(0, 60))
    buffer = np.frombuffer(bytes(raw), dtype=np.uint8)

    one, other = (twin.find_properties(buffer, at, sizes) for twin in twins())

    assert [part.tolist() for part in one] == [part.tolist() for part in other]


@pytest.mark.parametrize("more", [1, 300, 30_000, -1, -30_000])
def test_a_property_length_that_is_too_long_makes_no_properties(more: int) -> None:
    builder = LogBuilder()
    for number in range(2):
        builder.add(make_request(number, "T", 0, body_bytes=30, properties={"n": "1"}))
    raw = bytearray(b"".join(builder._segments))
    at = np.array([record[0] for record in builder.records], dtype=np.int64)
    sizes = np.array([record[1] for record in builder.records], dtype=np.int64)
    starts, lengths = compiled().find_properties(np.frombuffer(bytes(raw), np.uint8), at, sizes)
    place, length = int(starts[0]), int(lengths[0])
    raw[place - 2 : place] = (length + more).to_bytes(2, "big", signed=True)

    for twin in twins():
        _, found = twin.find_properties(np.frombuffer(bytes(raw), np.uint8), at, sizes)
        shorter = length + more if 0 <= length + more <= length else -1
        assert found.tolist() == [shorter, lengths[1]], twin.name


@pytest.mark.parametrize("kernels", twins(), ids=lambda kernels: kernels.name)
@pytest.mark.parametrize("place", [(-1, 100), (1, 1_000), (2**62, 2**62), (0, -1)])
def test_a_record_outside_of_the_buffer_is_an_error(
    kernels: FilterKernels, place: tuple[int, int]
) -> None:
    at, sizes = (np.array([0, number], dtype=np.int64) for number in place)
    sizes[0] = 100

    with pytest.raises(FormatError):
        kernels.find_properties(np.zeros(1_000, np.uint8), at, sizes)


def test_the_filter_of_a_broker_is_asked_by_its_kernels() -> None:
    assert CHOICE.for_messages(1) is compiled()
