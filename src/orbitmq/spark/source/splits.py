"""Moved to `orbitmq.log_read`."""

from orbitmq.log_read import SPLIT_BYTES, Segment, Split, find_end

__all__ = ["SPLIT_BYTES", "Split", "find_end", "written_length"]


def written_length(segment: Segment) -> int:
    return segment.written_end()
