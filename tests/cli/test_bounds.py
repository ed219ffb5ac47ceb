"""Log offsets and times as people write them."""

from datetime import UTC, datetime

import pytest
import typer

from orbitmq.cli.bounds import Bound, parse_bound

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, Bound()),
        ("0", Bound(offset=0)),
        ("1073741824", Bound(offset=1073741824)),
        ("999999999999", Bound(offset=999_999_999_999)),
        ("1000000000000", Bound(ms=1_000_000_000_000)),
        ("offset:2000000000000", Bound(offset=2_000_000_000_000)),
        ("now", Bound(ms=NOW_MS)),
        ("now-90s", Bound(ms=NOW_MS - 90_000)),
        ("now-15m", Bound(ms=NOW_MS - 15 * 60_000)),
        ("now-1h", Bound(ms=NOW_MS - HOUR_MS)),
        ("now-7d", Bound(ms=NOW_MS - 7 * 24 * HOUR_MS)),
        ("2027-01-15T08:00:00Z", Bound(ms=NOW_MS)),
        ("2027-01-15T09:00:00.250+01:00", Bound(ms=NOW_MS + 250)),
    ],
)
def test_text_means_an_offset_or_a_time(text, expected):
    assert parse_bound(text, NOW_MS) == expected


def test_iso_without_a_zone_is_local():
    local = datetime.fromtimestamp(NOW_MS / 1000, UTC).astimezone().replace(tzinfo=None)

    assert parse_bound(local.isoformat(), NOW_MS) == Bound(ms=NOW_MS)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "now-1y", "now+1h", "-5", "offset:", "offset:x", "12:00"]
)
def test_anything_else_is_wrong_use(text):
    with pytest.raises(typer.BadParameter, match="neither a log offset nor a time"):
        parse_bound(text, NOW_MS)
