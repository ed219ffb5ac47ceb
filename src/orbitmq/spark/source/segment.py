"""Segments as a task opens them: whether its machine has them at all is told with the error."""

from orbitmq.errors import StoreIOError
from orbitmq.log_read import Segment, Split
from orbitmq.log_read import open_segment as open_local
from orbitmq.spark.shared_paths import unseen_error


def open_segment(path: str, base_offset: int) -> Segment:
    """Map a segment. StoreError: it cannot be read, or this machine does not have it."""
    try:
        return open_local(path, base_offset)
    except StoreIOError as error:
        raise unseen_error(path, error) from error


def open_split(split: Split) -> Segment:
    """Map the segment of a split."""
    return open_segment(split.path, split.base_offset)
