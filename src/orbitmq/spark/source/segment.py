"""Segments as a task opens them: whether its machine has them at all is told with the error."""

from orbitmq.errors import StoreIOError
from orbitmq.log_read import BACK_BYTES, Segment, Split
from orbitmq.log_read import open_segment as open_local
from orbitmq.spark.remote.address import Address, is_remote
from orbitmq.spark.shared_paths import unseen_error


def open_segment(path: str, base_offset: int) -> Segment:
    """Map a segment. StoreError: it cannot be read, or this machine does not have it."""
    if is_remote(path):
        from orbitmq.spark.remote.segment import open_remote

        return open_remote(Address.of(path), base_offset)
    try:
        return open_local(path, base_offset)
    except StoreIOError as error:
        raise unseen_error(path, error) from error


def open_split(split: Split, back_bytes: int = BACK_BYTES) -> Segment:
    """Map the segment of a split; of one at a distance, bring what reading the split takes."""
    if is_remote(split.path):
        from orbitmq.spark.remote.segment import open_remote_split

        return open_remote_split(split, back_bytes)
    return open_segment(split.path, split.base_offset)
