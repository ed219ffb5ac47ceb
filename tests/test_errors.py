"""Errors cross processes: a Spark worker's reaches its driver with everything that it knows."""

import pickle

import pytest

from orbitmq.errors import (
    ConfigError,
    CorruptRecordError,
    FormatError,
    InProgressError,
    JobFailedError,
    NoRouteError,
    NoSpaceError,
    NotAStoreError,
    OrbitError,
    ResponseError,
    SendFailedError,
    io_error,
)


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("segment_bytes", 3, "must be larger"),
        FormatError("no magic", 17),
        NotAStoreError("/x", "no commitlog", "Look elsewhere."),
        CorruptRecordError("/x", 4, "bad CRC", "Check it."),
        io_error("/x", "write", OSError(28, "No space left on device")),
        ResponseError(17, "no topic", "127.0.0.1:10911", "Make it."),
        NoRouteError("T", "nobody has it", "Make it."),
        SendFailedError("T", [("broker-a", ResponseError(2, "busy"))]),
        InProgressError("k"),
        JobFailedError("it ended", "Run it again."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_pickling(error: OrbitError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert repr(vars(back)) == repr(vars(error))
    assert back.exit_code == error.exit_code


def test_a_full_disk_is_still_one_on_the_other_side() -> None:
    error = io_error("/x", "write", OSError(28, "No space left on device"))
    back = pickle.loads(pickle.dumps(error))
    assert isinstance(back, NoSpaceError)
    assert back.errno == 28
