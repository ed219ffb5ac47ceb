"""What queue tables and `pack_units` promise, asked of both forms."""

import numpy as np
import pytest

from kernel_cases import (
    STORE_MS,
    make_log,
)
from orbitmq.errors import FormatError
from orbitmq.format.columns import ROW, Mark, ScanOptions
from orbitmq.format.cq_unit import UNIT
from orbitmq.format.kernels import Kernels


def scan(kernels: Kernels, log: np.ndarray, **options: object):
    return kernels.scan(log, 0, len(log), 0, ScanOptions(**options))


def test_a_queue_keeps_its_number_and_is_known_by_topic_and_id(kernels: Kernels) -> None:
    table = kernels.queue_table()
    assert table.find(b"T", 0) == -1
    numbers = [
        table.add(topic, queue_id)
        for topic, queue_id in [(b"T", 0), (b"T", 1), (b"TT", 0), (b"", 0), (b"T", -1), (b"T", 0)]
    ]
    assert numbers == [0, 1, 2, 3, 4, 0]
    assert (table.find(b"TT", 0), table.find(b"TT", 1), len(table)) == (2, -1, 5)


def test_a_table_of_many_queues_finds_all_of_them(kernels: Kernels) -> None:
    table = kernels.queue_table()
    names = [(b"%%RETRY%%group_%d" % (index // 3), index % 3) for index in range(30_000)]
    for number, (topic, queue_id) in enumerate(names):
        assert table.add(topic, queue_id) == number
    assert all(table.find(*name) == number for number, name in enumerate(names))
    assert len(table) == len(names)


def test_resolve_numbers_every_row(kernels: Kernels) -> None:
    table = kernels.queue_table()
    messages = [
        {"topic": b"Topic%d" % (index % 7), "queue_id": index % 3, "queue_offset": index}
        for index in range(200)
    ]
    for message in messages[:5]:
        table.add(message["topic"], message["queue_id"])
    log = make_log(messages)

    found = table.resolve(log, scan(kernels, log).rows)

    assert found.dtype == np.int32
    assert found.tolist() == [table.find(m["topic"], m["queue_id"]) for m in messages]
    assert -1 in found


def test_resolve_refuses_rows_of_another_buffer(kernels: Kernels) -> None:
    rows = scan(kernels, make_log([{}])).rows
    with pytest.raises(FormatError):
        kernels.queue_table().resolve(np.zeros(50, np.uint8), rows)


def pack_rows(*columns: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and queue numbers for (queue number, queue offset)."""
    rows = np.zeros(len(columns), dtype=ROW)
    rows["log_offset"] = np.arange(len(columns)) * 100
    rows["size"] = 100
    rows["tag_hash"] = -1 - np.arange(len(columns))
    rows["store_ms"] = STORE_MS + np.arange(len(columns))
    rows["queue_offset"] = [offset for _, offset in columns]
    return rows, np.array([number for number, _ in columns], dtype=np.int32)


def test_units_are_grouped_by_queue_and_split_at_gaps_and_repeats(kernels: Kernels) -> None:
    rows, numbers = pack_rows((5, 10), (2, 0), (5, 11), (2, 1), (2, 3), (5, 11), (-1, 9), (2, 4))

    packed = kernels.pack_units(rows, numbers)

    assert packed.row_index.tolist() == [1, 3, 4, 7, 0, 2, 5]
    runs = [tuple(run) for run in packed.runs.tolist()]
    assert runs == [
        (2, 2, 0, 0, 400, STORE_MS + 3),
        (2, 2, 3, 2, 800, STORE_MS + 7),
        (5, 2, 10, 4, 300, STORE_MS + 2),
        (5, 1, 11, 6, 600, STORE_MS + 5),
    ]
    units = [UNIT.unpack_from(packed.units, 20 * index) for index in range(7)]
    assert units == [(index * 100, 100, -1 - index) for index in packed.row_index]


def test_few_rows_of_very_many_queues_are_grouped_too(kernels: Kernels) -> None:
    random = np.random.default_rng(3)
    chosen = [
        (int(number) * 1000, index) for index, number in enumerate(random.integers(0, 80, 300))
    ]
    packed = kernels.pack_units(*pack_rows(*chosen))
    expected = sorted(range(300), key=lambda index: chosen[index][0])
    assert packed.row_index.tolist() == expected


def test_rows_without_a_unit_are_left_out(kernels: Kernels) -> None:
    rows, numbers = pack_rows((0, 0), (0, 0), (0, 1))
    rows["marks"][1] = Mark.NO_UNIT
    packed = kernels.pack_units(rows, numbers)
    assert packed.row_index.tolist() == [0, 2]
    assert len(packed.runs) == 1


def test_no_rows_make_no_units(kernels: Kernels) -> None:
    packed = kernels.pack_units(*pack_rows())
    assert (len(packed.units), len(packed.runs), len(packed.row_index)) == (0, 0, 0)


def test_pack_wants_a_queue_number_for_every_row(kernels: Kernels) -> None:
    rows, _ = pack_rows((0, 0), (0, 1))
    with pytest.raises(FormatError):
        kernels.pack_units(rows, np.zeros(1, np.int32))
