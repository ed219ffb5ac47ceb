"""Selections by option: the same records as a filter over the decoded rows."""

from collections.abc import Callable
from pathlib import Path

import pytest

import golden_stores
from log_builder import FIRST_MS, LogBuilder, write_log
from orbitmq.message import Property
from spark.reading_world import Row, read_rows

pytestmark = [pytest.mark.feature("P3.options")]

Wanted = Callable[[Row], bool]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_stores.unpack("mixed", tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def rows(mixed: Path) -> list[Row]:
    return read_rows(mixed)


def _check(mixed: Path, rows: list[Row], wanted: Wanted, **options: object) -> None:
    expected = [row["log_offset"] for row in rows if wanted(row)]

    # Badly kept records make the table look at the whole log, without queues and index.
    found = [row["log_offset"] for row in read_rows(mixed, badRecords="keep", **options)]

    assert 0 < len(expected) < len(rows)
    assert found == expected


def test_topics(mixed: Path, rows: list[Row]) -> None:
    wanted = {"GoldAa", "GoldC"}
    _check(mixed, rows, lambda row: row["topic"] in wanted, topics="GoldAa,GoldC,None")


def test_tags_with_equal_hashes_are_told_apart(mixed: Path, rows: list[Row]) -> None:
    assert {"Aa", "BB"} <= {row["tags"] for row in rows}
    _check(mixed, rows, lambda row: row["tags"] == "Aa", tags="Aa")
    _check(mixed, rows, lambda row: row["tags"] in ("BB", "订单"), tags="BB, 订单")


@pytest.mark.feature("P3.sql92")
def test_an_sql92_expression_over_properties(mixed: Path, rows: list[Row]) -> None:
    text = (
        "TAGS IN ('Aa', 'BB') OR TAGS STARTSWITH 'T' AND KEYS IS NOT NULL AND NOT (WAIT = 'false')"
    )

    def wanted(row: Row) -> bool:
        given = dict(row["properties"])
        tag = given.get("TAGS", "")
        waits = "WAIT" in given and given["WAIT"] != "false"
        return tag in ("Aa", "BB") or (tag.startswith("T") and "KEYS" in given and waits)

    _check(mixed, rows, wanted, sql92=text)
    _check(mixed, rows, lambda row: row["topic"] == "GoldC", topics="GoldC", sql92="TRUE")


def test_keys(mixed: Path, rows: list[Row]) -> None:
    several = next(row["keys"] for row in rows if len(row["keys"]) > 1)
    _check(mixed, rows, lambda row: several[1] in row["keys"], keys=f"{several[1]},nobody")


def test_ids_of_both_kinds(mixed: Path, rows: list[Row]) -> None:
    first, second = rows[10], rows[-10]
    ids = f"{first['message_id'].lower()},{second['offset_id']},no-id"
    _check(
        mixed,
        rows,
        lambda row: (
            row["message_id"] == first["message_id"] or row["offset_id"] == second["offset_id"]
        ),
        ids=ids,
    )


def test_an_offset_id_of_another_broker_is_another_message(mixed: Path, rows: list[Row]) -> None:
    other = "0A000001" + rows[10]["offset_id"][8:]
    assert read_rows(mixed, badRecords="keep", ids=other) == []


def test_times(mixed: Path, rows: list[Row]) -> None:
    start, end = rows[1000]["store_time"], rows[2000]["store_time"]
    _check(
        mixed,
        rows,
        lambda row: start <= row["store_time"] < end,
        startTime=start.isoformat(),
        endTime=end.isoformat(),
    )


def test_log_offsets(mixed: Path, rows: list[Row]) -> None:
    start, end = rows[100]["log_offset"] + 1, rows[200]["log_offset"]
    _check(
        mixed,
        rows,
        lambda row: start <= row["log_offset"] < end,
        startOffset=start,
        endOffset=end,
    )


def test_queues_and_queue_offsets(mixed: Path, rows: list[Row]) -> None:
    _check(
        mixed,
        rows,
        lambda row: row["queue_id"] == 2 and 5 <= row["queue_offset"] < 30,
        queueId=2,
        startQueueOffset=5,
        endQueueOffset=30,
    )


def test_all_together(mixed: Path, rows: list[Row]) -> None:
    _check(
        mixed,
        rows,
        lambda row: row["topic"] == "GoldAa" and row["tags"] == "Aa" and row["queue_id"] == 1,
        topics="GoldAa",
        tags="Aa",
        queueId=1,
        startOffset=0,
    )


def test_an_inner_batch_is_selected_by_any_of_its_messages(tmp_path: Path) -> None:
    builder = LogBuilder()
    inner = {Property.INNER_NUM: "5", Property.INNER_BASE: "10"}
    builder.append(sys_flag=0x80, queue_offset=10, **inner)
    builder.append(queue_offset=15)
    root = write_log(builder, tmp_path / "store")

    def found(start: int, end: int) -> list[int]:
        options = {"startQueueOffset": start, "endQueueOffset": end}
        return [row["queue_offset"] for row in read_rows(root, badRecords="keep", **options)]

    assert found(14, 15) == [10]
    assert found(15, 16) == [15]
    assert found(0, 10) == []
    assert found(12, 99) == [10, 15]


@pytest.mark.feature("P1")
def test_fillers_are_no_rows_and_half_messages_are(tmp_path: Path) -> None:
    builder = LogBuilder()
    builder.append(topic="RMQ_SYS_TRANS_HALF_TOPIC", sys_flag=4)
    builder.append(**{Property.FILLER: "1"})
    builder.append(sys_flag=0xC)
    root = write_log(builder, tmp_path / "store")

    found = read_rows(root)

    assert [row["sys_flag"] for row in found] == [4, 12]
    assert found[0]["store_time"].timestamp() * 1000 == FIRST_MS
