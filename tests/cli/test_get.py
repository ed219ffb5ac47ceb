"""`orbitmq store get`: one message by log offset, by id, or by its place in a queue."""

import shutil

import pytest

from command import invoke, json_lines
from golden_stores import rows, unpack
from orbitmq.format.message_id import encode_offset_id
from orbitmq.format.record import BODY_AT, encode_record
from orbitmq.message import LOOPBACK
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing.builders import make_request


def got(result) -> dict:
    assert result.exit_code == 0, result.output
    (value,) = json_lines(result.stdout)
    return value


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    return unpack("mixed", tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def without_queues(tmp_path_factory):
    root = unpack("mixed", tmp_path_factory.mktemp("stores"))
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    return root


SAMPLE = rows("mixed", "record")[::397]


@pytest.mark.parametrize("row", SAMPLE, ids=lambda row: str(row["phyOffset"]))
def test_get_by_log_offset(mixed, row):
    value = got(invoke("store", "get", mixed, row["phyOffset"], "--output", "json"))

    assert value["body_sha256"] == row["bodySha256"]
    assert value["properties"] == row["properties"]


@pytest.mark.feature("F52", "F53")
@pytest.mark.parametrize("row", SAMPLE, ids=lambda row: str(row["phyOffset"]))
def test_get_by_either_id_without_index(without_queues, row):
    by_offset_id = got(
        invoke("store", "get", without_queues, row["offsetMsgId"], "--output", "json")
    )

    assert by_offset_id["log_offset"] == row["phyOffset"]
    unique = row["properties"].get("UNIQ_KEY")
    if unique is not None:
        first = next(
            r for r in rows("mixed", "record") if r["properties"].get("UNIQ_KEY") == unique
        )
        by_unique_id = got(invoke("store", "get", without_queues, unique, "--output", "json"))
        assert by_unique_id["log_offset"] == first["phyOffset"]


@pytest.mark.parametrize("row", SAMPLE, ids=lambda row: str(row["phyOffset"]))
@pytest.mark.parametrize("store", ["mixed", "without_queues"])
def test_get_by_place_in_a_queue(store, row, request):
    root = request.getfixturevalue(store)
    place = ["--topic", row["topic"], "--queue", row["queueId"], "--offset", row["queueOffset"]]

    result = invoke("store", "get", root, *place, "--output", "json")

    assert got(result)["log_offset"] == row["phyOffset"]
    assert ("read the log instead" in result.stderr) == (store == "without_queues")


def test_get_inside_a_batch_gives_the_batch(tmp_path):
    root = unpack("batchcq", tmp_path)
    queue = next(q for q in rows("batchcq", "queue") if any(u[4] > 2 for u in q["units"]))
    unit = next(u for u in queue["units"] if u[4] > 2)
    place = ["--topic", queue["topic"], "--queue", queue["queueId"], "--offset", unit[3] + 1]

    result = invoke("store", "get", root, *place, "--output", "json")

    assert got(result)["log_offset"] == unit[0]


@pytest.mark.feature("F8")
@pytest.mark.parametrize("kept", ["queues", "log alone"])
def test_a_record_that_lies_in_a_body_is_no_message(tmp_path, kept):
    root = tmp_path / "store"
    with MessageStore.open(StoreConfig(root=root, segment_bytes=64 * 1024)) as store:
        for number in range(5):
            store.append(make_request(number))
        place = store.max_log_offset + BODY_AT
        stored = {"log_offset": place, "queue_offset": 1, "store_ms": 1, "store_host": LOOPBACK}
        inner = encode_record(make_request(9, "TopicTest", 0), **stored)
        outer = store.append(make_request(6, body=inner))
    if kept == "log alone":
        shutil.rmtree(root / "consumequeue")

    stolen = [
        invoke("store", "get", root, what, "--output", "json")
        for what in (place, encode_offset_id(LOOPBACK, place))
    ]

    assert [(result.exit_code, result.stdout) for result in stolen] == [(1, "")] * 2
    real = got(invoke("store", "get", root, outer.log_offset, "--output", "json"))
    assert (real["log_offset"], real["body_length"]) == (outer.log_offset, len(inner))


@pytest.mark.parametrize("wrong", ["1", "-1", "99999999", "65500"])
def test_offsets_where_no_record_starts_give_none(mixed, wrong):
    result = invoke("store", "get", mixed, "--", wrong)

    assert result.exit_code in (1, 2)
    assert "log_offset" not in result.stdout


def test_page_shows_body_and_properties(mixed):
    row = next(r for r in rows("mixed", "record") if r["properties"].get("TAGS") == "订单")

    result = invoke("store", "get", mixed, row["phyOffset"])

    assert "订单" in result.stdout
    assert row["properties"]["UNIQ_KEY"] in result.stdout
    assert "127.0.0.1:11010" in result.stdout


def test_body_alone_is_the_stored_bytes(mixed):
    row = next(r for r in rows("mixed", "record") if r["bodyLength"] == 5)

    result = invoke("store", "get", mixed, row["phyOffset"], "--body")

    assert len(result.stdout_bytes) == 5


@pytest.mark.parametrize(
    "arguments", [[], ["zzz"], ["0", "--topic", "a", "--queue", "0", "--offset", "0"]]
)
def test_wrong_use_has_exit_code_2(mixed, arguments):
    assert invoke("store", "get", mixed, *arguments).exit_code == 2
