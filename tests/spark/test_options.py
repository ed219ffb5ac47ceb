"""Options: what each text means, and one sentence for each that cannot work."""

import pytest

from orbitmq.errors import ConfigError
from orbitmq.spark.source import options as module
from orbitmq.spark.source.options import OPTION_NAMES, BadRecords, ReadOptions

NOW_MS = 1_800_000_000_000


def _parse(**options: str) -> ReadOptions:
    return ReadOptions.parse({"path": "/store", **options}, now_ms=NOW_MS)


@pytest.mark.feature("P3.options")
def test_names_are_not_case_sensitive_and_values_are_typed() -> None:
    found = _parse(
        TOPICS="a, b,,a",
        queueid="3",
        IncludeBody="FALSE",
        badrecords="Skip",
        splitBytes="2m",
        checkCrc="true",
        endOffset="9223372036854775807",
    )

    assert found.topics == ("a", "b")
    assert found.queue_id == 3
    assert not found.include_body
    assert found.bad_records is BadRecords.SKIP
    assert found.split_bytes == 2 * 1024 * 1024
    assert found.check_crc is True
    assert found.end_offset == 2**63 - 1


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("1794768800932", 1_794_768_800_932),
        ("now", NOW_MS),
        ("now-90s", NOW_MS - 90_000),
        ("now-1h", NOW_MS - 3_600_000),
        ("now-7d", NOW_MS - 7 * 86_400_000),
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:01.5", 1500),
        ("1970-01-01T01:00+01:00", 0),
    ],
)
def test_a_time_has_many_forms(text: str, milliseconds: int) -> None:
    assert _parse(startTime=text).start_ms == milliseconds


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("startTime", "yesterday"),
        ("endTime", "now-1y"),
        ("startOffset", "-1"),
        ("endOffset", "9223372036854775808"),
        ("startQueueOffset", "1.5"),
        ("queueId", "²"),
        ("includeBody", "yes"),
        ("decompress", ""),
        ("badRecords", "ignore"),
        ("bodyAs", "xml"),
        ("splitBytes", "0"),
        ("splitBytes", "64x"),
        ("maxRowsPerTrigger", "0"),
        ("maxBytesPerTrigger", "-1"),
        ("topics", ","),
        ("sql92", "a >"),
    ],
)
def test_a_bad_value_is_refused_with_the_name_of_its_option(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _parse(**{name: text})

    assert caught.value.setting == name
    assert str(caught.value).startswith(f"setting {name} = {text!r}: ")


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean topics"):
        _parse(topic="a")
    with pytest.raises(ConfigError, match="there are path, namesrv"):
        _parse(xyzzy="a")


@pytest.mark.parametrize("given", [{}, {"path": "/store", "namesrv": "host:9876"}])
def test_a_store_or_a_cluster_has_to_be_named(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="one of them"):
        ReadOptions.parse(given)


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("startTime", "endTime"),
        ("startOffset", "endOffset"),
        ("startQueueOffset", "endQueueOffset"),
    ],
)
def test_an_end_before_its_start_is_refused(start: str, end: str) -> None:
    assert _parse(**{start: "5", end: "5"})
    with pytest.raises(ConfigError, match="before the start"):
        _parse(**{start: "5", end: "4"})


def test_a_path_may_be_a_url_of_a_file() -> None:
    for text in ("/a/b", "file:/a/b", "file:///a/b"):
        assert str(ReadOptions.parse({"path": text}).store_path) == "/a/b"


def test_the_table_in_the_module_lists_every_option() -> None:
    assert module.__doc__ is not None
    listed = [line.split("|")[0].strip() for line in module.__doc__.splitlines() if "|" in line]

    assert tuple(name for name in listed if name and name != "option") == OPTION_NAMES


def test_what_is_not_said_is_as_the_table_in_the_docs_has_it() -> None:
    found = ReadOptions.parse({"path": "/store"})

    assert found == ReadOptions(
        path="/store",
        include_body=True,
        decompress=True,
        bad_records=BadRecords.FAIL,
        check_crc=None,
        split_bytes=None,
        row_per_key=False,
        pushdown=True,
        starting_offsets="earliest",
        max_rows_per_trigger=None,
        max_bytes_per_trigger=None,
        group="",
    )
