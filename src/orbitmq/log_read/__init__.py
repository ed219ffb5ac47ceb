"""A commit log as others read it: live dispatch, recovery, tools on the files, Spark tasks.

    segment.py   one segment, mapped for reading
    reader.py    the records of a range, and what becomes of bytes that are none: the one reader
    log_view.py  all segments of a log, without gaps
    parallel.py  a log from end to end, in order, with all cores
    plan.py      which segments a log has and where it ends, beside a writer
    splits.py    a log in pieces that are read side by side
    windows.py   one of these pieces, without a page fault for each of its pages
    tail.py      a log that grows, looked at again and again

Nothing here writes, and nothing knows the store that made the log. Why one reader:
docs/adr/0011-one-log-reader.md.
"""

from typing import TYPE_CHECKING

from orbitmq.lazy import lazy_exports

if TYPE_CHECKING:
    from orbitmq.log_read.log_view import LogView, open_log, view_files
    from orbitmq.log_read.parallel import Prepare, Progress, replay
    from orbitmq.log_read.plan import Gap, LogPlan, find_end, missing, plan_log
    from orbitmq.log_read.reader import (
        BACK_BYTES,
        BadPlace,
        Chunk,
        LogStop,
        OnBad,
        ReadState,
        Skip,
        chunks,
        find_record,
        first_record,
        ignore_bad,
        is_closed_at,
        rows_at,
    )
    from orbitmq.log_read.segment import Segment, open_segment
    from orbitmq.log_read.splits import SPLIT_BYTES, Split, cut, cut_view, read_split
    from orbitmq.log_read.tail import LogTail
    from orbitmq.log_read.windows import read_windows

__all__ = [
    "BACK_BYTES",
    "SPLIT_BYTES",
    "BadPlace",
    "Chunk",
    "Gap",
    "LogPlan",
    "LogStop",
    "LogTail",
    "LogView",
    "OnBad",
    "Prepare",
    "Progress",
    "ReadState",
    "Segment",
    "Skip",
    "Split",
    "chunks",
    "cut",
    "cut_view",
    "find_end",
    "find_record",
    "first_record",
    "ignore_bad",
    "is_closed_at",
    "missing",
    "open_log",
    "open_segment",
    "plan_log",
    "read_split",
    "read_windows",
    "replay",
    "rows_at",
    "view_files",
]

_HOMES = {
    "log_view": "LogView open_log view_files",
    "parallel": "Prepare Progress replay",
    "plan": "Gap LogPlan find_end missing plan_log",
    "reader": (
        "BACK_BYTES BadPlace Chunk LogStop OnBad ReadState Skip chunks find_record first_record "
        "ignore_bad is_closed_at rows_at"
    ),
    "segment": "Segment open_segment",
    "splits": "SPLIT_BYTES Split cut cut_view read_split",
    "tail": "LogTail",
    "windows": "read_windows",
}

__getattr__ = lazy_exports(
    __name__,
    {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names.split()},
)
