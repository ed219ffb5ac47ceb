"""Names of fixed-size files: a segment by its base offset, an index file by the time it was made."""

import time
from typing import Final

from orbitmq.errors import FormatError

SEGMENT_NAME_LENGTH: Final = 20
INDEX_NAME_LENGTH: Final = 17
OFFSET_MAX: Final = 2**63 - 1


def segment_name(offset: int) -> str:
    """Return the 20-digit name of the segment that starts at this offset."""
    if not 0 <= offset <= OFFSET_MAX:
        raise FormatError(f"offset {offset} cannot name a segment")
    return f"{offset:020d}"


def parse_segment_name(name: str) -> int | None:
    """Return the base offset that a file name stands for, None if it is no segment's name."""
    if not _is_digits(name, SEGMENT_NAME_LENGTH) or int(name) > OFFSET_MAX:
        return None
    return int(name)


def index_file_name(epoch_ms: int) -> str:
    """Return the name of an index file made at this moment: local yyyyMMddHHmmssSSS."""
    seconds, milliseconds = divmod(epoch_ms, 1000)
    return time.strftime("%Y%m%d%H%M%S", time.localtime(seconds)) + f"{milliseconds:03d}"


def is_index_file_name(name: str) -> bool:
    """Return whether a file of the index directory has an index file's name."""
    return _is_digits(name, INDEX_NAME_LENGTH)


def _is_digits(name: str, length: int) -> bool:
    return len(name) == length and name.isascii() and name.isdigit()
