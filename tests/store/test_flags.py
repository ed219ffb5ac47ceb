"""What stops appends and what does not."""

import pytest

from orbitmq.errors import StoreError
from orbitmq.store.flags import Flag, RunningFlags


@pytest.mark.parametrize("flag", list(Flag))
def test_every_flag_but_not_readable_stops_appends_and_says_why(flag):
    flags = RunningFlags()
    assert flags.writable
    assert flags.refusal() == ""

    flags.set(flag)

    assert flags.writable is (flag is Flag.NOT_READABLE)
    assert flags.readable is (flag is not Flag.NOT_READABLE)
    assert bool(flags.refusal()) is not flags.writable
    flags.clear(flag)
    assert flags.writable


def test_a_failure_is_told_with_its_path_and_the_first_one_counts(tmp_path):
    flags = RunningFlags()

    flags.fail(StoreError(tmp_path / "a", "sync failed", "Look."))
    flags.fail(StoreError(tmp_path / "b", "sync failed", "Look."))

    assert not flags.writable
    assert str(tmp_path / "a") in flags.refusal()
