"""Moved to `orbitmq.log_read`."""

from orbitmq.log_read import LogView, open_log
from orbitmq.log_read import Segment as SegmentView

__all__ = ["LogView", "SegmentView", "open_log"]
