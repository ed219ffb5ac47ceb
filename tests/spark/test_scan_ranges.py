"""ScanRanges: which records a look-up has to read one by one."""

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.spark.source.lookup.scan_ranges import ScanRanges


@given(
    st.lists(st.integers(0, 60), max_size=20).map(sorted),
    st.lists(st.integers(0, 60), max_size=10, unique=True).map(sorted),
)
def test_offsets_inside_a_range_are_read_with_it(offsets: list[int], bounds: list[int]) -> None:
    ranges = tuple(zip(bounds[::2], bounds[1::2], strict=False))
    covered = {offset for start, end in ranges for offset in range(start, end)}
    wanted = tuple(sorted(set(offsets) - covered))
    assert ScanRanges(tuple(offsets), ranges).single_offsets() == wanted
