"""Moved to `orbitmq.log_read`."""

from orbitmq.log_read import BACK_BYTES

__all__ = ["BACK_BYTES"]
