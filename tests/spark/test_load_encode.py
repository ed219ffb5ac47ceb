"""Columns of messages to records: both forms of the kernels, and the places that the driver gives."""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from orbitmq.errors import FormatError, JobFailedError
from orbitmq.files.disk import FilePath
from orbitmq.format.java_hash import java_hash
from orbitmq.format.record import BLANK_BYTES, decode_record, encode_record
from orbitmq.message import AppendRequest, Host
from orbitmq.spark.jobs.load import place_task
from orbitmq.spark.jobs.load.encode.kernels import twins
from orbitmq.spark.jobs.load.encode.layout import MESSAGE, Columns, EncodeKernels, Texts
from orbitmq.spark.jobs.load.encode_task import FACTS, Encode
from orbitmq.spark.jobs.load.facts import ENTRY, PartFacts, PartQueue, from_bytes, to_bytes
from orbitmq.spark.jobs.load.plan import cut_segments, in_order
from orbitmq.spark.jobs.load.queues import Counts
from orbitmq.spark.jobs.load.staging import Staging
from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles
from orbitmq.testing.forwarding_disk import ForwardingDisk

BORN, STORED = Host(bytes((10, 0, 0, 1)), 4711), Host(bytes((10, 0, 0, 2)), 10911)
HOSTS = BORN.packed() + STORED.packed()
STORE_MS = 1_700_000_000_123

pytestmark = pytest.mark.feature("P14")


@pytest.fixture(params=twins(), ids=lambda kernels: kernels.name)
def kernels(request: pytest.FixtureRequest) -> EncodeKernels:
    found: EncodeKernels = request.param
    return found


def texts(values: list[bytes], before: bytes = b"", behind: bytes = b"") -> Texts:
    """Return a column that is a part of a longer one, as a slice of Arrow's is."""
    data = np.frombuffer(before + b"".join(values) + behind, dtype=np.uint8)
    ends = np.cumsum([len(before), *map(len, values)], dtype=np.int64)
    return Texts(data, ends)


def drawn(seed: int, count: int) -> tuple[Columns, list[AppendRequest]]:
    chance = random.Random(seed)
    messages = np.zeros(count, dtype=MESSAGE)
    requests = []
    for row in messages:
        topic = chance.choice(["T", "\u8ba2", "%RETRY%" + "g" * 127, "x" * 127])
        request = AppendRequest(
            topic,
            chance.randrange(2**31),
            chance.randbytes(chance.choice([0, 1, 7, 300])),
            chance.choice([b"", b"A\x01b\x02", b"KEYS\x01k\x02" * 100]),
            flag=chance.randrange(-(2**31), 2**31),
            born_ms=chance.randrange(2**62),
            born_host=BORN,
            store_host=STORED,
            reconsume_times=chance.randrange(9),
        )
        for name in ("queue_id", "flag", "born_ms", "reconsume_times"):
            row[name] = getattr(request, name)
        row["queue_offset"] = chance.randrange(2**62)
        requests.append(request)
    columns = Columns(
        messages,
        texts([request.topic.encode() for request in requests], b"before"),
        texts([request.body for request in requests], b"", b"behind"),
        texts([request.properties for request in requests], b"x", b"y"),
    )
    return columns, requests


@pytest.mark.parametrize("seed", range(5))
def test_records_are_those_of_the_one_encoder(kernels: EncodeKernels, seed: int) -> None:
    columns, requests = drawn(seed, 50)
    out = np.full(60_000, 0xEE, dtype=np.uint8)

    sizes = kernels.encode(out, columns, STORE_MS, HOSTS)

    at = 0
    for row, request, size in zip(columns.messages, requests, sizes.tolist(), strict=True):
        wanted = encode_record(
            request,
            log_offset=at,
            queue_offset=int(row["queue_offset"]),
            store_ms=STORE_MS,
            store_host=STORED,
        )
        assert out[at : at + size].tobytes() == wanted
        assert decode_record(out, at).topic == request.topic
        at += size
    assert set(out[at:].tolist()) == {0xEE}


def test_hashes_are_java_s(kernels: EncodeKernels) -> None:
    words = [
        "",
        "a",
        "order-17",
        "x" * 100,
        "\u8ba2\u5355",
        "\U0001f600 smile",
        "polygenelubricants",
    ]

    found = kernels.hashes(texts([word.encode() for word in words], b"\xff", b"z"))

    assert found.tolist() == [java_hash(word) for word in words]


def test_what_does_not_fit_is_refused_before_a_byte_is_written(kernels: EncodeKernels) -> None:
    columns, _ = drawn(1, 3)
    ipv6 = columns.messages.copy()
    ipv6["sys_flag"] = 0x10
    broken = Texts(columns.bodies.data, columns.bodies.ends[::-1].copy())
    short = Texts(columns.bodies.data[:1], columns.bodies.ends)
    cases = (
        columns._replace(topics=texts([b"t" * 256] * 3)),
        columns._replace(properties=texts([b"p" * 32768] * 3)),
        columns._replace(messages=ipv6),
        columns._replace(bodies=broken),
        columns._replace(bodies=short),
        columns._replace(bodies=texts([b""] * 4)),
    )
    out = np.zeros(200_000, dtype=np.uint8)
    for case in cases:
        with pytest.raises(FormatError):
            kernels.encode(out, case, STORE_MS, HOSTS)
    with pytest.raises(FormatError, match="do not fit"):
        kernels.encode(out[:10], columns, STORE_MS, HOSTS)
    with pytest.raises(FormatError, match="two IPv4 hosts"):
        kernels.encode(out, columns, STORE_MS, HOSTS[:-1])
    assert not out.any()


def test_ranks_go_on_where_the_batch_before_ended() -> None:
    counts = Counts()

    assert counts.ranks(np.array([2, 0, 2, 2, 0])).tolist() == [0, 0, 1, 2, 1]
    assert counts.ranks(np.array([0, 3, 2])).tolist() == [2, 0, 3]
    assert counts.ranks(np.array([], dtype=np.int64)).tolist() == []
    assert counts.totals.tolist() == [3, 0, 4, 1]


def part(directory: Path, number: int, sizes: list[int]) -> PartFacts:
    entries = np.zeros(len(sizes), dtype=ENTRY)
    entries["size"] = sizes
    path = directory / f"entries{number}"
    entries.tofile(path)
    queues = [PartQueue("T", 0, len(sizes), chosen=False)]
    return PartFacts(number, len(sizes), sum(sizes), f"records{number}", str(path), queues)


def test_segments_take_records_until_one_does_not_fit_with_a_blank_behind_it(
    tmp_path: Path,
) -> None:
    room = 1000 - BLANK_BYTES
    parts = [
        part(tmp_path, 0, [100, room - 100]),  # to the last byte
        part(tmp_path, 1, [room - 99, 100, 1]),  # one byte too many
        part(tmp_path, 2, [room]),
    ]

    segments = cut_segments(parts, 1000)

    cut = [[(one.records_path, one.first, one.end) for one in s.pieces] for s in segments]
    assert cut == [
        [("records0", 0, 2)],
        [("records1", 0, 1)],
        [("records1", 1, 3)],
        [("records2", 0, 1)],
    ]
    assert [segment.is_last for segment in segments] == [False, False, False, True]
    assert [segment.pieces[0].bases for segment in segments] == [[0], [2], [2], [5]]
    assert [segment.pieces[0].start_byte for segment in segments] == [0, 0, room - 99, 0]


def test_a_part_that_is_there_twice_or_not_whole_ends_the_load(tmp_path: Path) -> None:
    one, two = part(tmp_path, 0, [100]), part(tmp_path, 1, [100, 100])
    assert in_order([two, one]) == [one, two]
    with pytest.raises(JobFailedError, match="twice"):
        in_order([one, one])
    with pytest.raises(JobFailedError, match="instead of 300"):
        cut_segments([one, two._replace(record_bytes=300)], 1000)
    with pytest.raises(JobFailedError, match="ends before"):
        cut_segments([one._replace(records=2)], 1000)
    assert from_bytes(to_bytes(two)) == two


class NotingDisk(ForwardingDisk):
    """Notes what is written, synced and renamed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[str, str]] = []

    def write_at(
        self, path: FilePath, fd: int, position: int, data: bytes | bytearray | memoryview
    ) -> None:
        self.steps.append(("write", str(path)))
        self.inner.write_at(path, fd, position, data)

    def sync_data(self, path: FilePath, fd: int, position: int = 0, length: int = 0) -> None:
        self.steps.append(("sync", str(path)))
        self.inner.sync_data(path, fd, position, length)

    def sync_directory(self, path: FilePath) -> None:
        self.steps.append(("sync", str(path)))
        self.inner.sync_directory(path)

    def rename(self, source: FilePath, target: FilePath) -> None:
        self.steps.append(("rename", str(target)))
        self.inner.rename(source, target)


def test_a_segment_is_on_the_disk_before_its_task_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, files = NotingDisk(), AttemptFiles(str(tmp_path), "job", "stage")
    monkeypatch.setattr(place_task, "Disk", lambda: disk)
    encode = Encode(files, None, 4, 1000, 2000, STORE_MS, HOSTS)
    batch = pa.RecordBatch.from_pydict({"topic": ["T"] * 100, "body": [b"body"] * 100})
    (facts,) = [from_bytes(row[FACTS][0].as_py()) for row in encode(iter([batch, batch]))]
    segments = cut_segments([facts], 8192)

    finished = list(place_task.Place(files, None, 8192)(0, iter(segments)))

    assert [one.units for one in finished] == [segment.records for segment in segments]
    assert len(finished) == 3
    for one in finished:
        steps = [what for what, path in disk.steps if path == one.path]
        assert steps[-1] == "sync"
        assert "write" in steps


def test_a_new_store_has_its_name_for_good_before_a_load_says_so(tmp_path: Path) -> None:
    disk = NotingDisk()
    staging = Staging(tmp_path / "store", disk)

    with staging.held():
        (staging.store / "commitlog").mkdir()
        staging.commit()
        assert (tmp_path / "store" / "commitlog").is_dir()
        renamed = disk.steps.index(("rename", str(tmp_path / "store")))
        assert ("sync", str(staging.store)) in disk.steps[:renamed]
        assert disk.steps[renamed + 1] == ("sync", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
