"""Where the records of a short stretch of the log start, if a record is known to start where it does.

A task that is given a stretch reads some megabytes before it to find its first record. For a few records it
is better to be given those.
"""

from typing import Final

from orbitmq.format.columns import ScanOptions, Stop
from orbitmq.format.kernels import Kernels
from orbitmq.spark.source.lookup.index import OnRead
from orbitmq.spark.source.segment import open_segment
from orbitmq.spark.source.splits import LogPlan
from orbitmq.units import KiB

SHORT_BYTES: Final = 64 * KiB
_CHAIN: Final = ScanOptions(check_offset=True, max_rows=1024)


def record_starts(
    plan: LogPlan, start: int, end: int, kernels: Kernels, on_read: OnRead
) -> list[int] | None:
    """Return the log offsets of all records that start in [start, end).

    None: it is not short, or something else than records is there.
    """
    file = next((file for file in reversed(plan.files) if file.base_offset <= start), None)
    if end - start > SHORT_BYTES or file is None:
        return None
    base, segment = file.base_offset, open_segment(str(file.path), file.base_offset)
    limit = min(len(segment.data), plan.end - base)
    found = kernels.scan(segment.data, start - base, limit, base, _CHAIN)
    starts, sizes = found.rows["log_offset"], found.rows["size"]
    on_read(int(sizes.sum() - found.rows["body_length"].sum()))
    if not len(starts):
        return None
    known = int(starts[-1] + sizes[-1])
    if found.stop is Stop.BLANK:
        known = base + plan.layout.segment_bytes
    inside: list[int] = starts[starts < end].tolist()
    return inside if known >= end else None
