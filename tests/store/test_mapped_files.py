"""How many files a store has mapped, and how many bytes: compared with what the kernel says."""

import gc
from pathlib import Path

import pytest

from conf_store import ConfStore, request_of
from orbitmq.testing.builders import make_request

SEGMENT = 64 * 1024

pytestmark = pytest.mark.feature("F121")


def kernel_says(root: Path) -> tuple[int, int]:
    """Return the mapped files below a folder, and their bytes, from the kernel's own table."""
    count = size = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        if f" {root}/" in line:
            start, end = line.split(" ", 1)[0].split("-")
            count, size = count + 1, size + int(end, 16) - int(start, 16)
    return count, size


def counted(case: ConfStore) -> tuple[int, int]:
    figures = case.store.statistics()
    return figures.mapped_files, figures.mapped_bytes


def test_mapped_segments_are_counted_as_the_kernel_counts_them(tmp_path):
    with ConfStore(tmp_path) as case:
        before = counted(case)
        case.append(*(request_of(40 * 1024) for _ in range(3)))

        assert before == (0, 0)
        assert counted(case) == kernel_says(case.root)
        assert counted(case)[0] >= 3
        assert counted(case)[1] == counted(case)[0] * SEGMENT


def test_an_index_file_that_is_searched_counts_too(tmp_path):
    with ConfStore(tmp_path) as case:
        case.append(*(make_request(n, keys=f"k{n}", unique=False) for n in range(250)))
        before = counted(case)
        assert case.store.query("TopicTest", "k1", 64, 0, 2**62)

        gc.collect()
        assert counted(case)[0] == before[0] + 2  # the full ones; the last is not mapped
        assert counted(case)[0] == kernel_says(case.root)[0]


def test_nothing_is_mapped_after_the_close(tmp_path):
    with ConfStore(tmp_path) as case:
        case.append(*(request_of(40 * 1024) for _ in range(3)))
        assert counted(case) > (0, 0)

    gc.collect()
    assert counted(case) == kernel_says(case.root) == (0, 0)


def test_a_view_that_a_reader_still_has_counts_until_it_is_let_go(tmp_path):
    with ConfStore(tmp_path) as case:
        (result,) = case.append(request_of(1000))
        view = case.store._log.read(result.log_offset, result.size)

    gc.collect()
    assert counted(case) == kernel_says(case.root) == (1, SEGMENT)
    del view
    gc.collect()
    assert counted(case) == (0, 0)


def test_what_was_mapped_to_read_an_old_store_is_given_back(tmp_path):
    with ConfStore(tmp_path) as case:
        case.append(*(request_of(40 * 1024) for _ in range(3)))

    with ConfStore(tmp_path) as case:
        gc.collect()
        assert counted(case) == kernel_says(case.root)
        assert case.store.get("T", 0, 0).records
        assert counted(case) == kernel_says(case.root)
    gc.collect()
    assert counted(case) == (0, 0)
