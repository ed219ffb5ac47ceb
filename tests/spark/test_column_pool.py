"""The pool of Python processes behind the reader of columns: its protocol, its workers, its end."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import golden_stores
from log_builder import LogBuilder, write_log
from orbitmq.message import SysFlag
from orbitmq.spark.columns import frames
from orbitmq.spark.source.options import BodyAs
from orbitmq.spark.source.schemas import MESSAGE_SCHEMA, table_schema
from orbitmq.units import MiB
from spark.reading_world import read_rows, read_table

pytestmark = pytest.mark.timeout(400)


class RunningPool:
    """A pool, and the JVM's side of its protocol."""

    def __init__(self, path: Path, process: "subprocess.Popen[bytes]") -> None:
        self.path, self.process = path, process

    def connect(self) -> socket.socket:
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(200)
        link.connect(str(self.path))
        return link

    def ask(self, **request: Any) -> list[tuple[bytes, bytes]]:
        """Send a request; return all frames of the answer."""
        with self.connect() as link:
            send(link, request)
            with link.makefile("rb") as answer:
                return received(answer)

    def answer(self, **request: Any) -> Any:
        ((kind, data),) = self.ask(**request)
        assert kind == b"J", data
        return json.loads(data)

    def workers(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(word) for word in children.read_text().split()]


def received(answer: IO[bytes]) -> list[tuple[bytes, bytes]]:
    found = []
    while head := answer.read(5):
        kind, length = struct.unpack(">cI", head)
        found.append((kind, answer.read(length)))
    return found


def send(link: socket.socket, request: dict[str, Any]) -> None:
    data = json.dumps(request).encode()
    link.sendall(struct.pack(">I", len(data)) + data)


@contextmanager
def running_pool() -> Iterator[RunningPool]:
    path = Path(tempfile.mkdtemp(prefix="orbitmq-test-")) / "s"
    command = [sys.executable, "-m", "orbitmq.spark.columns.pool", str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.read(1) == b"R"
        running = RunningPool(path, process)
        with running.connect():
            assert eventually(lambda: bool(running.workers()))
        yield running
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            assert process.wait(100) == 0
        finally:
            process.kill()  # if it does not end by itself


@pytest.fixture(scope="module")
def pool() -> Iterator[RunningPool]:
    with running_pool() as running:
        yield running


def query(root: Path, columns: list[str] | None = None, **more: Any) -> dict[str, Any]:
    options = {"path": str(root), **more.pop("options", {})}
    known = {"options": options, "now_ms": 0, "schema": MESSAGE_SCHEMA.json(), **more}
    return known if columns is None else {**known, "columns": columns}


def read(pool: RunningPool, **asked: Any) -> tuple[pa.Table, dict[str, Any]]:
    """Plan a query and read its tasks; return the rows and the figures of the last task."""
    tables, figures = [], {}
    for task in pool.answer(what="plan", query=asked)["tasks"]:
        answer = pool.ask(what="read", query=asked, task=task["task"], name="t")
        assert answer[-1][0] == b"M", answer[-1]
        figures = json.loads(answer[-1][1])
        tables.append(rows_of(answer))
    return pa.concat_tables(tables), figures


def rows_of(answer: list[tuple[bytes, bytes]]) -> pa.Table:
    """Return the rows of a task, with bodies from the file where they were left there."""
    stream = b"".join(data for kind, data in answer if kind == b"A")
    batches = list(pa.ipc.open_stream(stream))
    files: list[bytes | None] = []
    for (before, data), (kind, _) in zip([(b"", b""), *answer], answer, strict=False):
        if kind == b"A":  # one for each batch, and what ends the stream
            files.append(data if before == b"F" else None)
    assert len(files) == len(batches) + 1
    whole = [with_bodies(*pair) for pair in zip(batches, files, strict=False)]
    return pa.Table.from_batches(whole) if whole else pa.ipc.open_stream(stream).read_all()


def with_bodies(batch: pa.RecordBatch, file: bytes | None) -> pa.RecordBatch:
    names = [name for name in batch.schema.names if not name.startswith("body.")]
    columns = {name: batch.column(name) for name in names}
    if file is not None:
        stretch = json.loads(file)
        data = Path(stretch["path"]).read_bytes()
        data = data[stretch["start"] : stretch["start"] + stretch["length"]]
        sent, at, lengths = (
            batch.column(name).to_pylist() for name in ("body", "body.at", "body.length")
        )
        spans = zip(sent, at, lengths, strict=True)
        bodies = [one if start < 0 else data[start : start + size] for one, start, size in spans]
        columns["body"] = pa.array(bodies, type=pa.binary())
    schema = pa.schema([batch.schema.field(name) for name in names])
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 100
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_rows_are_those_of_the_plain_source(pool: RunningPool, tmp_path: Path) -> None:
    root = golden_stores.unpack("mixed", tmp_path)

    found, figures = read(pool, **query(root))

    assert found.to_pylist() == read_rows(root)
    assert figures["log_bytes"] > 0


@pytest.mark.parametrize("variant", golden_stores.torn_variants())
def test_a_damaged_store_has_the_rows_of_the_plain_source(
    pool: RunningPool, tmp_path: Path, variant: str
) -> None:
    root = golden_stores.damage(golden_stores.unpack("crashed", tmp_path), variant)

    found, _ = read(pool, **query(root, options={"badRecords": "keep"}))

    assert found.num_rows
    assert found.equals(read_table(root, badRecords="keep"))


def test_a_part_that_is_too_long_for_java_is_sent_as_several_frames(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frames, "FRAME_BYTES_MAX", 10)
    parts = [b"abc", b"", b"defghij", b"k" * 25, b"lm"]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sink = frames.FrameSink(ours)
        for part in parts:
            sink.write(part)
        sink.send()
        ours.close()
        with theirs.makefile("rb") as answer:
            found = received(answer)

    assert b"".join(data for _, data in found) == b"".join(parts)
    assert {kind for kind, _ in found} == {b"A"}
    assert max(len(data) for _, data in found) == 10


def test_only_the_columns_asked_for_are_sent_and_no_body_is_read(
    pool: RunningPool, tmp_path: Path
) -> None:
    root = golden_stores.unpack("mixed", tmp_path)

    few, figures = read(pool, **query(root, ["tags", "topic"]))
    none, _ = read(pool, **query(root, []))
    _, whole = read(pool, **query(root))

    assert few.column_names == ["tags", "topic"]
    assert few.num_rows == none.num_rows == len(golden_stores.rows("mixed", "record"))
    assert none.column_names == ["queue_id"]
    assert figures["log_bytes"] < whole["log_bytes"]


def test_filters_follow_the_rules_of_the_plain_source(pool: RunningPool, tmp_path: Path) -> None:
    root = golden_stores.unpack("mixed", tmp_path)
    filters = [
        {"kind": "EqualTo", "column": "topic", "values": ["GoldAa"]},
        {"kind": "GreaterThan", "column": "topic", "values": ["A"]},
        {"kind": "In", "column": "queue_id", "values": [1, 2], "negated": True},
        {"kind": "GreaterThan", "column": "store_time", "values": [{"micros": 0}]},
        {"kind": "LessThan", "column": "store_time", "values": [{"micros": 2**62}]},
        {"kind": "IsNotNull", "column": "tags", "values": []},
        {"kind": "EqualTo", "column": "body", "values": ["x"]},
    ]

    taken = pool.answer(what="filters", query=query(root, filters=filters))["taken"]
    left = query(root, filters=filters, options={"pushdown": "false"})
    done = [one for one, is_taken in zip(filters, taken, strict=True) if is_taken]
    found, _ = read(pool, **query(root, ["topic", "queue_id", "tags"], filters=done))

    assert taken == [True, False, True, True, False, True, False]
    assert not any(pool.answer(what="filters", query=left)["taken"])
    assert found.num_rows
    for row in found.to_pylist():
        assert row["topic"] == "GoldAa"
        assert row["queue_id"] not in (1, 2)
        assert row["tags"] is not None


def test_groups_of_a_batch_are_its_rows_counted(pool: RunningPool, tmp_path: Path) -> None:
    root = golden_stores.unpack("mixed", tmp_path)
    made = [
        {"kind": "count"},
        {"kind": "max", "column": "size"},
        {"kind": "count", "column": "tags"},
    ]
    asked = query(root, groups={"by": ["topic", "queue_id"], "made": made})

    schema = json.loads(pool.answer(what="groups", query=asked)["schema"])
    found, _ = read(pool, **asked)

    assert found.schema.names == [field["name"] for field in schema["fields"]]
    expected: dict[tuple[str, int], list[int]] = {}
    for row in read_rows(root, includeBody="false"):
        figures = expected.setdefault((row["topic"], row["queue_id"]), [0, 0, 0])
        figures[0] += 1
        figures[1] = max(figures[1], row["size"])
        figures[2] += row["tags"] is not None
    joined: dict[tuple[str, int], list[int]] = {}
    for topic, queue_id, *partial in zip(*found.to_pydict().values(), strict=True):
        figures = joined.setdefault((topic, queue_id), [0, 0, 0])
        figures[0] += partial[0]
        figures[1] = max(figures[1], partial[1])
        figures[2] += partial[2]
    assert joined == expected
    assert found.num_rows < sum(figures[0] for figures in expected.values())


@pytest.mark.parametrize(
    ("by", "made", "options"),
    [
        ([], [{"kind": "count"}], {}),
        (["message_id"], [{"kind": "count"}], {}),
        (["."], [{"kind": "count"}], {}),
        (["topic"], [{"kind": "min", "column": "tags"}], {}),
        (["topic"], [{"kind": "max"}], {}),
        (["topic"], [{"kind": "count", "column": "body"}], {}),
        (["topic"], [{"kind": "count"}, {"kind": "count"}], {}),
        (["topic"], [{"kind": "count"}], {"pushdown": "false"}),
    ],
)
def test_other_groups_are_left_to_spark(
    pool: RunningPool, tmp_path: Path, by: list[str], made: list[Any], options: dict[str, str]
) -> None:
    asked = query(tmp_path, groups={"by": by, "made": made}, options=options)

    assert pool.answer(what="groups", query=asked) == {"schema": None}


def test_a_task_sends_no_more_rows_than_the_limit(pool: RunningPool, tmp_path: Path) -> None:
    root = golden_stores.unpack("mixed", tmp_path)

    found, _ = read(pool, **query(root, ["log_offset"], limit=3, options={"splitBytes": "1g"}))

    assert 3 <= found.num_rows <= 3 * len(list((root / "commitlog").iterdir()))


def test_a_limit_counts_over_the_batches_of_a_task(pool: RunningPool, tmp_path: Path) -> None:
    root = large_log(tmp_path / "large")

    found, _ = read(pool, **query(root, ["body"], limit=10, options={"splitBytes": "1g"}))

    assert found.column("body").num_chunks > 1
    assert found.num_rows == 10


def large_log(root: Path) -> Path:
    """Write 24 messages of a mebibyte each: some batches, one task."""
    builder = LogBuilder(segment_bytes=32 * 1024 * 1024)
    for number in range(24):
        builder.append(body=bytes([number]) * (1024 * 1024))
    return write_log(builder, root)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"options": {"topic": "a"}}, "orbitmq.errors.ConfigError: setting topic = 'a': unknown"),
        ({"schema": '{"type":"struct","fields":[]}'}, "orbitmq.errors.ConfigError: setting schema"),
        (
            {"schema": StructType().add("tag", "string").json(), "columns": ["topic"]},
            "orbitmq.errors.ConfigError: setting schema = 'tag': no such column",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    pool: RunningPool, tmp_path: Path, asked: dict[str, Any], text: str
) -> None:
    ((kind, data),) = pool.ask(what="plan", query=query(tmp_path, **asked))

    assert kind == b"E"
    assert data.decode().startswith(text)
    assert "\n" not in data.decode()


def test_an_error_follows_the_batches_that_were_good(pool: RunningPool, tmp_path: Path) -> None:
    builder = LogBuilder()
    for _ in range(3):
        builder.append()
    builder.flip(builder.records[1].start + 90)
    asked = query(write_log(builder, tmp_path / "bad"))
    (task,) = pool.answer(what="plan", query=asked)["tasks"]

    answer = pool.ask(what="read", query=asked, task=task["task"], name="t")

    assert answer[-1][0] == b"E"
    assert b"orbitmq.errors.CorruptRecordError: " in answer[-1][1]


@pytest.mark.parametrize(
    "data",
    [b"", b"\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x02{}", b"\0\0\0\x03{a}", b"\0\0\0\x09{}"],
    ids=["nothing", "half a length", "too long", "no fields", "no JSON", "half a request"],
)
def test_a_broken_request_costs_no_worker(pool: RunningPool, data: bytes, tmp_path: Path) -> None:
    before = pool.workers()
    with pool.connect() as link:
        link.sendall(data)

    root = golden_stores.unpack("mixed", tmp_path)
    assert pool.answer(what="plan", query=query(root))["tasks"]
    assert set(before) <= set(pool.workers())


def test_only_this_user_can_open_the_socket(pool: RunningPool) -> None:
    assert pool.path.stat().st_mode & 0o077 == 0
    assert pool.path.parent.stat().st_mode & 0o077 == 0


def test_a_killed_worker_is_replaced(pool: RunningPool, tmp_path: Path) -> None:
    root = golden_stores.unpack("mixed", tmp_path)
    killed = pool.workers()
    for worker in killed:
        os.kill(worker, signal.SIGKILL)
    assert eventually(lambda: not set(killed) & set(pool.workers()))

    assert pool.answer(what="plan", query=query(root))["tasks"]
    assert pool.workers()


def test_as_many_connections_as_there_are_have_workers_and_the_idle_ones_go(
    pool: RunningPool, tmp_path: Path
) -> None:
    cores = len(os.sched_getaffinity(0))
    links = [pool.connect() for _ in range(cores + 3)]
    asked = query(golden_stores.unpack("mixed", tmp_path))
    try:
        assert eventually(lambda: len(pool.workers()) >= len(links))
        for link in reversed(links):  # the last one first: nobody waits for another's worker
            send(link, {"what": "plan", "query": asked})
            assert link.recv(1) == b"J"
    finally:
        for link in links:
            link.close()

    assert eventually(lambda: len(pool.workers()) == cores)


def test_a_reader_that_leaves_ends_the_read_and_not_the_worker(
    pool: RunningPool, tmp_path: Path
) -> None:
    asked = query(large_log(tmp_path / "large"))
    (task, *_) = pool.answer(what="plan", query=asked)["tasks"]
    before = set(pool.workers())

    with pool.connect() as link:
        send(link, {"what": "read", "query": asked, "task": task["task"], "name": "t"})
        assert link.recv(1) == b"F"

    assert read(pool, **query(tmp_path / "large", []))[0].num_rows == 24
    assert before <= set(pool.workers())


def sent_bytes(pool: RunningPool, asked: dict[str, Any]) -> int:
    (task,) = pool.answer(what="plan", query=asked)["tasks"]
    answer = pool.ask(what="read", query=asked, task=task["task"], name="t")
    return sum(len(data) for kind, data in answer if kind == b"A")


def test_bodies_stay_in_the_file_where_spark_takes_them_as_they_are(
    pool: RunningPool, tmp_path: Path
) -> None:
    root = large_log(tmp_path / "large")
    options = {"splitBytes": "1g"}

    as_text = {
        "options": {**options, "bodyAs": "text"},
        "schema": table_schema(False, BodyAs.TEXT).json(),
    }

    stored = sent_bytes(pool, query(root, ["body"], options=options))
    text = sent_bytes(pool, query(root, ["body"], **as_text))

    assert 24 * MiB < text
    assert stored < text / 1000


def test_a_body_that_has_to_be_unpacked_is_sent_and_those_beside_it_stay(
    pool: RunningPool, tmp_path: Path
) -> None:
    builder = LogBuilder(segment_bytes=1 * MiB)
    packed = zlib.compress(b"text " * 1000)
    for number in range(6):
        if number % 3 == 1:
            builder.append(body=packed, sys_flag=SysFlag.COMPRESSED)
        else:
            builder.append(body=bytes([number]) * 500)
    root = write_log(builder, tmp_path / "mixed")
    asked = query(root, ["log_offset", "body"])
    (task,) = pool.answer(what="plan", query=asked)["tasks"]

    answer = pool.ask(what="read", query=asked, task=task["task"], name="t")

    (batch, *_) = pa.ipc.open_stream(b"".join(data for kind, data in answer if kind == b"A"))
    assert [at < 0 for at in batch.column("body.at").to_pylist()] == [False, True, False] * 2
    bodies = [b"text " * 1000 if n % 3 == 1 else bytes([n]) * 500 for n in range(6)]
    assert rows_of(answer).column("body").to_pylist() == bodies


def test_the_pool_goes_with_whoever_started_it_and_leaves_nothing() -> None:
    with running_pool() as running:
        workers = running.workers()
        assert workers

    assert not running.path.parent.exists()
    assert eventually(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
