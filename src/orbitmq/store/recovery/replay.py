"""Moved to `orbitmq.log_read`."""

from orbitmq.log_read import LogStop, Progress
from orbitmq.log_read import ReadState as ReplayState

__all__ = ["LogStop", "Progress", "ReplayState"]
