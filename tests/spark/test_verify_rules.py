"""A verification finds what a check finds, word for word, however the log is split. Without Spark."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dispatch_job import dispatch_by_job
from golden_stores import damage, rows, settings, torn_variants, unpack
from log_builder import FIRST_MS, HOST, LogBuilder
from orbitmq.format.properties import encode_properties
from orbitmq.format.record import encode_record
from orbitmq.message import AppendRequest
from orbitmq.spark.jobs.verify import scan as verify_scan
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.store.verify.check import CheckReport, check_store
from orbitmq.store.verify.findings import Kind
from spark.verify_tasks import LocalRunner, verify_here

STORES = ["mixed", "cleaned", "ext", "batchcq", "propcrc", "timer", "indexroll", "crashed"]
LOG_END = 3929746  # of `mixed`
SEGMENT = 65536


def patch(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def patch_log(root: Path, log_offset: int, data: bytes) -> None:
    base = log_offset // SEGMENT * SEGMENT
    patch(root / "commitlog" / f"{base:020d}", log_offset - base, data)


def flip_log(root: Path, log_offset: int) -> None:
    base = log_offset // SEGMENT * SEGMENT
    path = root / "commitlog" / f"{base:020d}"
    patch(path, log_offset - base, bytes([path.read_bytes()[log_offset - base] ^ 0x10]))


def record(number: int) -> dict:
    return rows("mixed", "record")[number]


def same_as_check(root: Path, store: str, split_bytes: int) -> CheckReport:
    """Verify the store, require what a check says of it, and return that."""
    wanted = check_store(root, settings(store))
    assert verify_here(root, settings(store), split_bytes=split_bytes) == wanted
    return wanted


# --- good stores ---


@pytest.mark.feature("P6")
@pytest.mark.parametrize("store", STORES)
def test_a_store_of_a_real_broker_has_no_findings(store: str, tmp_path: Path) -> None:
    report = same_as_check(unpack(store, tmp_path), store, 60_000)

    assert report.findings == ()
    assert report.records == len(rows(store, "record"))


def test_a_verification_changes_nothing(tmp_path: Path) -> None:
    root = unpack("batchcq", tmp_path)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    verify_here(root, settings("batchcq"), split_bytes=10_000)

    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


# --- damaged stores ---


@pytest.mark.feature("P6")
@pytest.mark.parametrize("variant", torn_variants())
def test_every_damaged_variant_has_the_findings_of_a_check(variant: str, tmp_path: Path) -> None:
    root = damage(unpack("crashed", tmp_path), variant)

    report = same_as_check(root, "crashed", 90_000)

    assert bool(report.findings) == (variant != "none")


def a_flipped_byte(root: Path) -> None:
    flip_log(root, record(1700)["phyOffset"] + 120)


def a_torn_tail(root: Path) -> None:
    last = record(-1)
    patch_log(root, last["phyOffset"] + 100, bytes(last["size"] - 100))


def a_wrong_queue_offset(root: Path) -> None:
    patch_log(root, record(800)["phyOffset"] + 20, (7777).to_bytes(8, "big"))


def a_wrong_stored_offset(root: Path) -> None:
    for number in (300, 301, 302, 900):
        patch_log(root, record(number)["phyOffset"] + 28, (5).to_bytes(8, "big"))


def a_clock_that_was_set_back(root: Path) -> None:
    for number in (1000, 1500):
        patch_log(root, record(number)["phyOffset"] + 56, (FIRST_MS).to_bytes(8, "big"))


def a_stale_record(root: Path) -> None:
    """Stale bytes behind the end of the log."""
    request = AppendRequest("GoldOrder", 0, b"x" * 300)
    raw = encode_record(
        request, log_offset=LOG_END, queue_offset=0, store_ms=FIRST_MS, store_host=HOST
    )
    patch_log(root, LOG_END, raw)


def a_missing_unit(root: Path) -> None:
    patch(sorted((root / "consumequeue" / "GoldOrder" / "0").iterdir())[0], 40, bytes(20))


def an_extra_unit(root: Path) -> None:
    last = sorted((root / "consumequeue" / "GoldOrder" / "0").iterdir())[-1]
    data = last.read_bytes()
    patch(last, len(data.rstrip(b"\0")) // 20 * 20 + 20, data[:20])


def units_of_a_whole_file(root: Path) -> None:
    """One finding for all, though many splits have a part of it."""
    file = sorted((root / "consumequeue" / "GoldOrder" / "0").iterdir())[0]
    data = bytearray(file.read_bytes())
    for unit in range(0, len(data), 20):
        data[unit + 19] ^= 1
    file.write_bytes(data)


def a_queue_that_no_record_has(root: Path) -> None:
    stray = root / "consumequeue" / "Nobody" / "3" / f"{0:020d}"
    stray.parent.mkdir(parents=True)
    stray.write_bytes((root / "consumequeue" / "GoldAa" / "0" / stray.name).read_bytes())


def a_missing_queue_file(root: Path) -> None:
    sorted((root / "consumequeue" / "GoldOrder" / "0").iterdir())[0].unlink()


def a_missing_segment(root: Path) -> None:
    (root / "commitlog" / f"{SEGMENT * 7:020d}").unlink()


def a_short_segment(root: Path) -> None:
    """Cut in the properties of a record: read with zeros, it is valid."""
    first = next(row for row in rows("mixed", "record") if row["phyOffset"] > SEGMENT * 9)
    end = first["phyOffset"] + first["size"]
    with (root / "commitlog" / f"{SEGMENT * 9:020d}").open("r+b") as file:
        file.truncate(end - 3 - SEGMENT * 9)


def index_file(root: Path) -> Path:
    return sorted((root / "index").iterdir())[2]


def a_broken_index_chain(root: Path) -> None:
    patch(index_file(root), 40 + 4 * 500 + 20 * 7 + 16, (3).to_bytes(4, "big"))


def a_wrong_index_entry(root: Path) -> None:
    patch(index_file(root), 40 + 4 * 500 + 20 * 7, (12345).to_bytes(4, "big"))


def wrong_index_times(root: Path) -> None:
    for item in (7, 100, 300):
        patch(index_file(root), 40 + 4 * 500 + 20 * item + 12, (99).to_bytes(4, "big"))


def entries_out_of_order(root: Path) -> None:
    """Still all there: what the Java store leaves after a crash is no fault of the entries."""
    path, at = index_file(root), 40 + 4 * 500
    data = path.read_bytes()
    for one, other in ((50, 350), (51, 351)):
        here, there = at + 20 * one, at + 20 * other
        patch(path, here, data[there : there + 16])
        patch(path, there, data[here : here + 16])


def a_missing_index_file(root: Path) -> None:
    index_file(root).unlink()


def no_queues_and_no_index(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")


def a_wrong_checkpoint(root: Path) -> None:
    patch(root / "checkpoint", 8, (1).to_bytes(8, "big"))


def garbage_json(root: Path) -> None:
    (root / "config" / "topics.json").write_text("{ garbage", encoding="utf-8")


def a_stranger_among_queue_files(root: Path) -> None:
    (root / "consumequeue" / "GoldAa" / "0" / "notes.txt").write_text("?", encoding="utf-8")


FAULTS: dict[Callable[[Path], None], set[Kind]] = {
    a_flipped_byte: {Kind.RECORD},
    a_torn_tail: {Kind.TAIL},
    a_wrong_queue_offset: {Kind.QUEUE_OFFSET},
    a_wrong_stored_offset: {Kind.STORED_OFFSET},
    a_clock_that_was_set_back: {Kind.STORE_TIME},
    a_stale_record: {Kind.TAIL},
    a_missing_unit: {Kind.QUEUE},
    an_extra_unit: {Kind.QUEUE},
    units_of_a_whole_file: {Kind.QUEUE},
    a_queue_that_no_record_has: {Kind.QUEUE},
    a_missing_queue_file: {Kind.QUEUE},
    a_missing_segment: {Kind.FILE},
    a_short_segment: {Kind.FILE},
    a_broken_index_chain: {Kind.CHAIN},
    a_wrong_index_entry: {Kind.INDEX},
    wrong_index_times: {Kind.INDEX},
    entries_out_of_order: {Kind.CHAIN},
    a_missing_index_file: {Kind.INDEX},
    no_queues_and_no_index: {Kind.QUEUE, Kind.INDEX},
    a_wrong_checkpoint: {Kind.CHECKPOINT},
    garbage_json: {Kind.STATE},
    a_stranger_among_queue_files: {Kind.FILE},
}


@pytest.mark.feature("P6")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_has_the_findings_of_a_check(
    fault: Callable[[Path], None], tmp_path: Path
) -> None:
    root = unpack("mixed", tmp_path)
    fault(root)

    report = same_as_check(root, "mixed", 100_000)

    assert FAULTS[fault] <= {finding.kind for finding in report.findings}


def test_many_faults_at_once(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    for fault in (
        a_flipped_byte,
        a_torn_tail,
        a_wrong_stored_offset,
        a_clock_that_was_set_back,
        an_extra_unit,
        a_missing_segment,
        wrong_index_times,
        a_wrong_checkpoint,
    ):
        fault(root)

    for split_bytes in (20_000, SEGMENT // 2, 10 * SEGMENT):
        report = same_as_check(root, "mixed", split_bytes)

    assert {Kind.FILE, Kind.RECORD, Kind.TAIL} <= {finding.kind for finding in report.findings}


@pytest.mark.parametrize("store", ["batchcq", "propcrc", "ext"])
def test_faults_of_other_kinds_of_stores(store: str, tmp_path: Path) -> None:
    root = unpack(store, tmp_path)
    if store == "batchcq":
        file, position = sorted((root / "batchconsumequeue" / "BatchT" / "0").iterdir())[0], 146
    elif store == "propcrc":
        file = sorted((root / "commitlog").iterdir())[0]
        position = file.read_bytes().index(b"__CRC32#\x01") + 9
    else:
        file, position = sorted((root / "consumequeue_ext").glob("*/0/*"))[0], 2
    patch(file, position, b"\x01\x02")

    assert same_as_check(root, store, 9_000).findings


def test_random_damage_has_the_findings_of_a_check(tmp_path: Path) -> None:
    rng = random.Random(20)
    for _ in range(6):
        root = unpack("indexroll", tmp_path)
        files = [path for path in sorted(root.rglob("*")) if path.is_file()]
        for path in rng.sample(files, 3):
            data = path.read_bytes()
            if data:
                position = rng.randrange(len(data.rstrip(b"\0")) or 1)
                patch(path, position, rng.randbytes(min(40, len(data) - position)))

        same_as_check(root, "indexroll", rng.choice((3_000, 20_000, 100_000)))


# --- splits that hit bad places ---


def built_store(builder: LogBuilder, root: Path) -> dict[str, str]:
    """Make a store of a log: the engine adds queues and index."""
    (root / "commitlog").mkdir(parents=True)
    for number, segment in enumerate(builder.segments):
        (root / "commitlog" / f"{number * builder.segment_bytes:020d}").write_bytes(segment)
    config = StoreConfig(
        root=root, segment_bytes=builder.segment_bytes, cq_file_bytes=400, index_slots=50
    )
    with MessageStore.open(config, background=False):
        pass
    return {"maxHashSlotNum": "50", "mappedFileSizeConsumeQueue": "400"}


def test_bodies_that_hold_whole_records_are_no_records(tmp_path: Path) -> None:
    builder = LogBuilder(segment_bytes=8192)
    for number in range(60):
        properties = {"WAIT": "true", "CLUSTER": "c", "KEYS": f"k{number}"}
        raw = encode_properties(properties)
        # The body starts 88 bytes behind the record's start, so this one names its own place; it ends
        # with the real one's topic and properties, so that the log goes on behind it.
        fake = encode_record(
            AppendRequest("T", 0, b"f" * 60, raw),
            log_offset=builder.written + 88,
            queue_offset=0,
            store_ms=builder.store_ms,
            store_host=HOST,
        )
        builder.append("T", number % 3, fake[: -len(raw) - 4], **properties)
    given = built_store(builder, tmp_path / "s")
    wanted = check_store(tmp_path / "s", given)
    assert (wanted.findings, wanted.records) == ((), 60)

    read_again = 0
    for split_bytes in range(130, 500, 37):
        runner = LocalRunner(split_bytes)
        found = verify_here(tmp_path / "s", given, split_bytes=split_bytes, runner=runner)
        assert found == wanted
        read_again += len(runner.exact)
    assert read_again  # some splits did begin inside a body


def test_a_log_whose_records_all_name_another_place_is_read_by_the_driver(tmp_path: Path) -> None:
    builder = LogBuilder(segment_bytes=8192)
    for number in range(100):
        builder.append("T", number % 3, KEYS=f"k{number}")
    given = built_store(builder, tmp_path / "s")
    for placed in builder.records:
        path = tmp_path / "s" / "commitlog" / f"{placed.start // 8192 * 8192:020d}"
        patch(path, placed.start % 8192 + 28, (10**9).to_bytes(8, "big"))

    wanted = check_store(tmp_path / "s", given)

    assert [finding.kind for finding in wanted.findings] == [Kind.STORED_OFFSET] * 100
    assert verify_here(tmp_path / "s", given, split_bytes=500) == wanted


def test_a_split_with_more_stretches_than_are_sent_is_read_by_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = LogBuilder(segment_bytes=8192)
    for number in range(100):
        builder.store_ms = FIRST_MS + number * 1000 - (1500 if number % 2 else 0)
        builder.append("T", number % 3, KEYS=f"k{number}")
    given = built_store(builder, tmp_path / "s")
    wanted = check_store(tmp_path / "s", given)
    assert Kind.STORE_TIME in {finding.kind for finding in wanted.findings}
    monkeypatch.setattr(verify_scan, "STRETCHES_MAX", 5)

    runner = LocalRunner(4096)

    assert verify_here(tmp_path / "s", given, split_bytes=4096, runner=runner) == wanted
    assert runner.exact


# --- stores that somebody has open ---

OWN = {"maxHashSlotNum": "100", "mappedFileSizeCommitLog": "65536"}


def own_store(root: Path) -> MessageStore:
    config = StoreConfig(root=root, segment_bytes=65536, cq_file_bytes=2000, index_slots=100)
    return MessageStore.open(config, background=False)


def fill(store: MessageStore, count: int) -> None:
    for number in range(count):
        store.append(AppendRequest("T", number % 4, b"b" * 200, b"KEYS\x01k%d\x02" % number))


def test_what_an_open_store_has_not_dispatched_yet_is_no_finding(tmp_path: Path) -> None:
    with own_store(tmp_path / "s") as store:
        fill(store, 300)
        store.wait_dispatched()
        store.flush()
        fill(store, 300)

        report = verify_here(tmp_path / "s", OWN, split_bytes=20_000)

    assert report.live
    assert report.findings == ()
    assert report.records == 600


def test_what_is_added_while_it_runs_is_not_seen(tmp_path: Path) -> None:
    class AddsMeanwhile(LocalRunner):
        """A broker appends and dispatches between the parts of the verification."""

        def scan(self, *args, **options):
            fill(store, 200)
            store.wait_dispatched()
            store.flush()
            return super().scan(*args, **options)

        def compare_queues(self, *args):
            fill(store, 200)
            store.wait_dispatched()
            store.flush()
            return super().compare_queues(*args)

    with own_store(tmp_path / "s") as store:
        fill(store, 300)
        store.wait_dispatched()
        store.flush()

        runner = AddsMeanwhile(20_000)
        report = verify_here(tmp_path / "s", OWN, split_bytes=20_000, runner=runner)

    assert report.findings == ()
    assert report.records == 300


def test_a_store_that_was_killed_lags_but_has_no_findings(tmp_path: Path) -> None:
    with own_store(tmp_path / "s") as store:
        fill(store, 100)
        store.wait_dispatched()
        store.flush()
        fill(store, 100)
        shutil.copytree(tmp_path / "s", tmp_path / "killed")

    wanted = check_store(tmp_path / "killed", OWN)

    assert wanted.lagging
    assert verify_here(tmp_path / "killed", OWN, split_bytes=9_000) == wanted


@pytest.mark.parametrize("damaged", [False, True], ids=["sound", "a unit lost"])
def test_a_store_that_waits_for_its_job_is_judged_as_a_check_judges_it(
    tmp_path: Path, damaged: bool
) -> None:
    config = StoreConfig.from_settings(tmp_path / "s", {**OWN, "dispatch": "spark"})
    with MessageStore.open(config, background=False) as store:
        fill(store, 100)
        dispatch_by_job(store)
        fill(store, 100)
    if damaged:
        file = next(path for path in sorted((tmp_path / "s").glob("consumequeue/*/*/*")))
        patch(file, 20, bytes(20))

    wanted = check_store(tmp_path / "s", OWN)

    assert wanted.undispatched > 0
    assert wanted.is_sound is not damaged
    assert verify_here(tmp_path / "s", OWN, split_bytes=9_000) == wanted
