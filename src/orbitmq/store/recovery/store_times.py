"""Store times of records at known places of a mapped log."""

from orbitmq.errors import FormatError
from orbitmq.format.record import decode_record
from orbitmq.log_read import LogView


def store_ms_at_offset(log: LogView, log_offset: int) -> int | None:
    """Return the store time of the record at this offset; None if no whole record is there."""
    if not log.min_offset <= log_offset < log.max_offset:
        return None
    segment = log.at(log_offset)
    try:
        record = decode_record(segment.data.data, log_offset - segment.base_offset, check_crc=False)
    except FormatError:
        return None
    return record.store_ms


def last_store_ms_before(log: LogView, end_offset: int, at_least: int) -> int:
    """Return a store time that no record before `end_offset` is known to exceed.

    The last record itself cannot be found from its end; the first record of its segment and what the
    checkpoint says (`at_least`) are what a glance can tell.
    """
    if not log.segments:
        return at_least
    inside = min(max(end_offset - 1, log.min_offset), log.max_offset - 1)
    first_ms = store_ms_at_offset(log, log.at(inside).base_offset)
    return max(at_least, first_ms if first_ms is not None else 0)
