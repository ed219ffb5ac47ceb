"""What the index kernels promise, asked of both forms."""

import struct

import numpy as np
import pytest

from kernel_cases import (
    STORE_MS,
    make_log,
    properties,
)
from orbitmq.errors import FormatError
from orbitmq.format.columns import ITEM, ScanOptions, as_bytes_array
from orbitmq.format.index_file import ENTRY, HEADER, key_hash
from orbitmq.format.java_hash import java_hash
from orbitmq.format.kernels import Kernels
from orbitmq.message import SysFlag

INT_MIN = -(2**31)


def scan(kernels: Kernels, log: np.ndarray, **options: object):
    return kernels.scan(log, 0, len(log), 0, ScanOptions(**options))


def items_of(kernels: Kernels, *messages: dict) -> list[int]:
    log = make_log(list(messages))
    return kernels.index_items(log, scan(kernels, log).rows)["key_hash"].tolist()


@pytest.mark.feature("F38", "F41")
def test_unique_key_comes_first_then_each_key(kernels: Kernels) -> None:
    message = {
        "topic": b"TopicTest",
        "properties": properties(KEYS=" order_123  second ", UNIQ_KEY="7F00000100001111AAAA"),
    }
    found = items_of(kernels, message)
    assert found == [
        key_hash("TopicTest", key) for key in ("7F00000100001111AAAA", "order_123", "second")
    ]
    assert found[1] == 1211765249


@pytest.mark.feature("F42")
def test_a_message_without_keys_adds_no_item(kernels: Kernels) -> None:
    keyless = {"properties": properties(TAGS="a", KEYS="")}
    assert items_of(kernels, keyless, {}, {"properties": properties(KEYS="  ")}) == []


@pytest.mark.parametrize(
    ("flag", "count"),
    [(0, 2), (SysFlag.PREPARED, 2), (SysFlag.COMMIT, 2), (SysFlag.ROLLBACK, 0)],
)
def test_only_a_rollback_is_kept_out_of_the_index(
    kernels: Kernels, flag: SysFlag, count: int
) -> None:
    message = {"sys_flag": int(flag), "properties": properties(UNIQ_KEY="u", KEYS="k")}
    assert len(items_of(kernels, message)) == count


@pytest.mark.feature("F38")
def test_the_smallest_hash_becomes_zero(kernels: Kernels) -> None:
    topic, key = _text_of_smallest_hash()
    assert java_hash(f"{topic}#{key}") == INT_MIN
    assert items_of(kernels, {"topic": topic.encode(), "properties": properties(KEYS=key)}) == [0]


def _text_of_smallest_hash() -> tuple[str, str]:
    """Return topic and key whose joined hash is -2**31: five last characters make up the rest."""
    weights = [31**power for power in (4, 3, 2, 1, 0)]
    rest = (2**31 - java_hash("T#k") * 31**5) % 2**32 + 5 * 2**32
    units = []
    for index, weight in enumerate(weights):
        unit = (rest - 0x4E00 * sum(weights[index + 1 :])) // weight
        units.append(chr(unit))
        rest -= unit * weight
    return "T", "k" + "".join(units)


def test_items_are_made_from_malformed_text_as_python_replaces_it(kernels: Kernels) -> None:
    message = {"topic": b"T\xff", "properties": b"KEYS\x01a\xc3 \xe8\xae\x02"}
    expected = [key_hash("T\ufffd", "a\ufffd"), key_hash("T\ufffd", "\ufffd")]
    assert items_of(kernels, message) == expected


@pytest.mark.parametrize("change", [-1, 1, 1000, -5])
def test_rows_that_count_other_keys_are_refused(kernels: Kernels, change: int) -> None:
    log = make_log([{"properties": properties(UNIQ_KEY="u", KEYS="k")}])
    rows = scan(kernels, log).rows
    rows["key_count"] += change
    with pytest.raises(FormatError):
        kernels.index_items(log, rows)


def make_items(*items: tuple[int, int, int]) -> np.ndarray:
    return np.array(list(items), dtype=ITEM)


class IndexFile:
    """An index file in memory, filled by a kernel."""

    def __init__(self, kernels: Kernels, slots: int = 7, items_max: int = 20) -> None:
        self.kernels, self.items_max = kernels, items_max
        self.slots = np.zeros(slots, dtype=np.int32)
        self.entries = np.zeros(items_max * 20, dtype=np.uint8)
        self.state = np.array([0, 0, 0, 0, 0, 1], dtype=np.int64)

    def insert(self, *items: tuple[int, int, int], first: int = 0) -> int:
        return self.kernels.index_insert(
            make_items(*items), first, self.slots, self.entries, 0, self.state, self.items_max
        )

    def entry(self, number: int) -> tuple[int, int, int, int]:
        return ENTRY.unpack_from(self.entries, number * 20)

    def content(self) -> np.ndarray:
        header, slots = HEADER.pack(*self.state), self.slots.astype(">i4").tobytes()
        return as_bytes_array(header + slots + self.entries.tobytes())

    def chain(self, hashed: int, begin: int = 0, end: int = 2**62, count: int = 64) -> list[int]:
        return self.kernels.index_chain(self.content(), len(self.slots), hashed, begin, end, count)


@pytest.mark.feature("F40")
def test_the_header_after_no_one_and_more_inserts(kernels: Kernels) -> None:
    file = IndexFile(kernels)
    assert file.insert() == 0
    assert file.state.tolist() == [0, 0, 0, 0, 0, 1]
    assert file.insert((100, 5000, 3)) == 1
    assert file.state.tolist() == [5000, 5000, 100, 100, 1, 2]
    assert file.insert((200, 7000, 3), (300, 9000, 4), (400, 9500, 11)) == 3
    assert file.state.tolist() == [5000, 9500, 100, 400, 2, 5]
    assert (file.slots[3], file.slots[4]) == (2, 4)


@pytest.mark.feature("F37")
def test_the_newest_entry_of_a_chain_comes_first(kernels: Kernels) -> None:
    file = IndexFile(kernels)
    file.insert(*((offset, 1000 + offset, 3) for offset in range(100, 600, 100)))
    file.insert((600, 2000, 10), (700, 2000, 3))  # 10 lies in the same slot
    assert file.chain(3) == [700, 500, 400, 300, 200, 100]
    assert file.chain(10) == [600]
    assert file.chain(3, count=2) == [700, 500]
    assert file.chain(4) == file.chain(17) == []


@pytest.mark.feature("F39")
@pytest.mark.parametrize(
    ("later_ms", "seconds"),
    [
        (0, 0),
        (999, 0),
        (1000, 1),
        (3_600_500, 3600),
        (-1, 0),
        (-999_999, 0),
        (2**31 * 1000 - 1, 2**31 - 1),
        (2**31 * 1000, 2**31 - 1),
        (2**60, 2**31 - 1),
    ],
)
def test_time_is_kept_in_whole_seconds_within_bounds(
    kernels: Kernels, later_ms: int, seconds: int
) -> None:
    file = IndexFile(kernels)
    file.insert((0, STORE_MS, 1), (1, STORE_MS + later_ms, 1))
    assert file.entry(2) == (1, 1, seconds, 1)


@pytest.mark.feature("F39")
def test_time_counts_from_the_preset_of_a_rolled_file_for_its_first_entry_only(
    kernels: Kernels,
) -> None:
    file = IndexFile(kernels)
    file.state[:] = [10_000, 10_000, 50, 50, 0, 1]
    file.insert((60, 13_400, 1), (70, 13_500, 1))
    assert [file.entry(1)[2], file.entry(2)[2]] == [3, 0]
    assert file.state.tolist() == [13_400, 13_500, 60, 70, 1, 3]


def test_time_is_zero_without_a_begin(kernels: Kernels) -> None:
    file = IndexFile(kernels)
    file.insert((1, -5, 1), (2, 10**9, 1))
    assert [file.entry(1)[2], file.entry(2)[2]] == [0, 0]


def test_the_limit_of_items_counts_even_if_there_is_room_for_more(kernels: Kernels) -> None:
    file = IndexFile(kernels, items_max=20)
    file.items_max = 4

    assert file.insert(*((offset, 1000, 3) for offset in range(6))) == 3

    assert file.state[5] == 4
    assert file.entry(4) == (0, 0, 0, 0)


def test_a_full_file_takes_what_fits(kernels: Kernels) -> None:
    file = IndexFile(kernels, items_max=10)
    items = [(offset, 1000, offset) for offset in range(15)]
    assert file.insert(*items) == 9
    assert file.insert(*items, first=9) == 0
    assert file.state[5] == 10


def test_entries_may_start_later_and_end_earlier_than_the_file(kernels: Kernels) -> None:
    slots, state = np.zeros(5, np.int32), np.array([1000, 2000, 0, 0, 3, 8], dtype=np.int64)
    window = np.zeros(3 * 20, dtype=np.uint8)
    items = make_items(*((offset, 3000, 1) for offset in range(10)))
    assert kernels.index_insert(items, 2, slots, window, 8, state, 100) == 3
    assert [ENTRY.unpack_from(window, at)[1] for at in (0, 20, 40)] == [2, 3, 4]
    assert (state[5], slots[1]) == (11, 10)


@pytest.mark.parametrize("damaged", [-3, 99])
def test_an_impossible_slot_counts_as_empty(kernels: Kernels, damaged: int) -> None:
    file = IndexFile(kernels)
    file.slots[3] = damaged
    file.insert((1, 1000, 3))
    assert file.entry(1)[3] == 0
    assert file.state[4] == 1


def test_insert_refuses_what_does_not_fit_together(kernels: Kernels) -> None:
    items, slots = make_items((1, 1, 1)), np.zeros(3, np.int32)
    entries, state = np.zeros(60, np.uint8), np.array([0, 0, 0, 0, 0, 1], dtype=np.int64)
    for arguments in (
        (items, 2, slots, entries, 0, state, 9),
        (items, -1, slots, entries, 0, state, 9),
        (items, 0, slots[:0], entries, 0, state, 9),
        (items, 0, slots, entries, 5, state, 9),
        (items, 0, slots, entries, -1, state, 9),
        (items, 0, slots, entries, 0, state[:5], 9),
    ):
        with pytest.raises(FormatError):
            kernels.index_insert(*arguments)


def test_a_chain_is_limited_to_the_time_window(kernels: Kernels) -> None:
    file = IndexFile(kernels)
    begin = 1_000_000
    file.insert(*((second, begin + second * 1000, 3) for second in range(8)))
    assert file.chain(3, begin + 2000, begin + 5000) == [5, 4, 3, 2]
    assert file.chain(3, begin + 8000) == []


@pytest.mark.parametrize("previous", [0, -1, 5, 6, 7, 8, 10**9, -(2**31)])
def test_a_damaged_chain_ends(kernels: Kernels, previous: int) -> None:
    file = IndexFile(kernels)
    file.insert(*((number, 1000, 3) for number in range(1, 8)))
    struct.pack_into(">i", file.entries, 5 * 20 + 16, previous)
    found = file.chain(3)
    assert found[:3] == [7, 6, 5]
    assert len(found) <= 20


def test_a_chain_in_a_circle_ends_even_if_nothing_matches(kernels: Kernels) -> None:
    file = IndexFile(kernels)
    file.insert(*((number, 1000, 3) for number in range(1, 8)))
    struct.pack_into(">i", file.entries, 1 * 20 + 16, 7)
    assert file.chain(10) == []


def test_a_chain_of_a_short_or_empty_file_is_empty(kernels: Kernels) -> None:
    content = IndexFile(kernels).content()
    for length in (0, 10, 40, 67, 68, len(content)):
        assert kernels.index_chain(content[:length], 7, 3, 0, 10**9, 10) == []
    for slots in (0, -1, 10**12):
        assert kernels.index_chain(content, slots, 3, 0, 10**9, 10) == []
