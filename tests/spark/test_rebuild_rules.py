"""What a rebuild on Spark makes of odd logs: always what the same log gives on one machine."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_stores import STORES, damage, torn_variants, unpack
from golden_stores import settings as golden_settings
from log_builder import FIRST_MS, HOST, LogBuilder
from orbitmq.errors import ConfigError, CorruptRecordError, JobFailedError, StoreLockedError
from orbitmq.files.disk import Disk
from orbitmq.files.listing import SegmentFile
from orbitmq.files.lock import StoreLock
from orbitmq.format.record import encode_record
from orbitmq.log_read import LogPlan, Split, cut, open_log
from orbitmq.log_read.segment import ZEROS_BYTES
from orbitmq.message import AppendRequest
from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles, Finished, Wanted, settle
from orbitmq.spark.jobs.rebuild.build import Build
from orbitmq.spark.jobs.rebuild.chain import find_end, join
from orbitmq.spark.jobs.rebuild.job import RebuildOptions
from orbitmq.spark.jobs.rebuild.pack import PackOptions, SplitFacts
from orbitmq.spark.jobs.rebuild.parts import Scan
from orbitmq.store.config import StoreConfig
from orbitmq.store.offline.exchange import Scope
from orbitmq.store.store import MessageStore
from rounds import rounds
from spark.rebuild_world import (
    SMALL_SETTINGS,
    copy_of,
    files_below,
    leftovers,
    made_files,
    offline_files,
    rebuild_here,
    write_our_store,
)

Made = dict[str, dict[str, bytes]]

SEGMENT = 4096
LOG_SETTINGS = {
    "mappedFileSizeCommitLog": str(SEGMENT),
    "mappedFileSizeConsumeQueue": "100",
    "maxHashSlotNum": "7",
    "maxIndexNum": "6",
}


def write_log(log: LogBuilder, root: Path) -> Path:
    shutil.rmtree(root, ignore_errors=True)
    (root / "commitlog").mkdir(parents=True)
    for number, segment in enumerate(log.segments):
        (root / "commitlog" / f"{number * SEGMENT:020d}").write_bytes(segment)
    return root


def require_same(root: Path, told: dict[str, str], scratch: Path, split_bytes: int) -> None:
    """Rebuild on Spark's way and on one machine; both give the same files, or the same refusal."""
    copy = copy_of(root, scratch / "copy")
    options = RebuildOptions(split_bytes=split_bytes)
    expected = made_or_refused(lambda: offline_files(root, told, scratch / "offline"))
    found = made_or_refused(lambda: rebuild_here(copy, told, options) and made_files(copy))
    assert found == expected
    assert not leftovers(copy)


def made_or_refused(work: Callable[[], Made]) -> Made | str:
    """Return what was made, or which place of the log is in the way."""
    try:
        return work()
    except CorruptRecordError as refusal:
        return str(refusal).partition("commitlog")[2]


@pytest.mark.feature("P5")
@pytest.mark.parametrize("name", STORES)
def test_any_cut_of_the_log_gives_the_files_of_one_machine(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)

    require_same(root, golden_settings(name), tmp_path, 5_003)


@pytest.mark.parametrize("variant", torn_variants())
def test_a_damaged_log_is_judged_as_recovery_judges_it(variant: str, tmp_path: Path) -> None:
    root = damage(unpack("crashed", tmp_path), variant)

    require_same(root, golden_settings("crashed"), tmp_path, 20_011)


message = st.tuples(
    st.sampled_from(["A", "Topic-of-some-length"]),
    st.integers(0, 1),
    st.integers(0, 600),  # body length
    st.sampled_from([0, 0, 0, 0, 0, 0, 1, 3, 40, -1, -2]),  # step of the queue offset
    st.sampled_from(["", "k1", "k1 k2 k3"]),
    st.sampled_from([0, 0, 0, 4, 8, 12]),  # transaction bits
    st.sampled_from([0, 1, 1_500, -900]),  # step of the clock
)


@settings(max_examples=rounds(120), deadline=None)
@given(messages=st.lists(message, max_size=60), split_bytes=st.integers(97, 9_000))
def test_gaps_and_repeats_of_queue_offsets_are_treated_as_the_live_queues_do(
    messages: list[tuple[str, int, int, int, str, int, int]],
    split_bytes: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    log = LogBuilder(segment_bytes=SEGMENT)
    for topic, queue_id, length, step, keys, kind, ms in messages:
        following = log.next_offsets.get((topic, queue_id), 0)
        log.store_ms += ms
        log.append(
            topic,
            queue_id,
            b"b" * length,
            sys_flag=kind,
            queue_offset=max(following + step, 0) if step else None,
            **({"KEYS": keys} if keys else {}),
        )
    if not log.segments:
        return
    scratch = tmp_path_factory.mktemp("log")
    root = write_log(log, scratch / "store")

    require_same(root, LOG_SETTINGS, scratch, split_bytes)


def log_in_a_body() -> LogBuilder:
    """Return a log with a body of records that lie exactly where they say."""
    log = LogBuilder(segment_bytes=SEGMENT)
    log.append("Outer", 0, b"first")
    mark = b"0123456789"
    probe = LogBuilder(segment_bytes=SEGMENT)
    inside = probe.append("Outer", 0, mark).raw.index(mark)
    fake = LogBuilder(segment_bytes=SEGMENT, base_offset=log.written + inside)
    for _ in range(8):
        fake.append("Inner", 0, b"i" * 100, KEYS="inside")
    log.append("Outer", 0, bytes(fake.segments[0][: fake.position]))
    for _ in range(12):
        log.append("Outer", 0, b"last")
    return log


def test_a_task_that_began_inside_of_a_body_is_found_out(tmp_path: Path) -> None:
    log = log_in_a_body()
    root = write_log(log, tmp_path / "store")
    layout = StoreConfig.from_settings(root, LOG_SETTINGS).layout()
    # So little is read before a split that tasks must go wrong.
    options = PackOptions(layout, back_bytes=1)
    names = AttemptFiles(str(tmp_path), "job", "scan")
    scan = Scan(options, names, None)
    again: list[Split] = []

    def scan_again(split: Split) -> SplitFacts:
        again.append(split)
        return scan.scan(split, at_record=True)

    with open_log(layout, Disk()) as view:
        for split_bytes in range(101, 1_400, 61):
            end = view.segments[0].data_end()
            file = SegmentFile(0, view.segments[0].path, SEGMENT)
            splits = cut(LogPlan(layout, (file,), 0, end), split_bytes)
            chain = join([scan.scan(split) for split in splits], view, scan_again)
            assert chain.records == len(log.records)
            assert chain.at == log.written
            assert [facts.first for facts in chain.splits] == sorted(
                facts.first for facts in chain.splits
            )
            assert find_end(chain, {}, view, options) == log.written
    assert again


@pytest.mark.feature("P5")
def test_a_gap_is_padded_and_a_repeat_is_left_out(tmp_path: Path) -> None:
    log = LogBuilder(segment_bytes=SEGMENT)
    for queue_offset in (0, 1, 4, 1, 5):
        log.append("T", 0, queue_offset=queue_offset)
    root = write_log(log, tmp_path / "store")

    require_same(root, LOG_SETTINGS, tmp_path, 300)


def test_a_last_record_that_ends_in_many_zeros_is_part_of_the_log(tmp_path: Path) -> None:
    def record(body: bytes) -> bytes:
        request = AppendRequest("T", 0, body)
        return encode_record(
            request, log_offset=0, queue_offset=0, store_ms=FIRST_MS, store_host=HOST
        )

    # Without properties its last two bytes are zero; here they lie behind all that is not zero.
    raw = record(b"b" * (ZEROS_BYTES + 2 - len(record(b""))))
    assert (len(raw), raw[-2:]) == (ZEROS_BYTES + 2, b"\0\0")
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(raw.ljust(2 * ZEROS_BYTES, b"\0"))
    told = {**LOG_SETTINGS, "mappedFileSizeCommitLog": str(2 * ZEROS_BYTES)}

    require_same(root, told, tmp_path, 100_000)

    assert rebuild_here(root, told).records == 1


@pytest.mark.feature("P5")
def test_a_store_of_ours_with_every_kind_of_message_gets_the_same_files(tmp_path: Path) -> None:
    root = write_our_store(tmp_path / "store").root
    before = made_files(root)
    assert len(before["index"]) > 3
    assert before["batchconsumequeue"]

    report = rebuild_here(root, SMALL_SETTINGS, RebuildOptions(split_bytes=30_011))

    assert made_files(root) == before
    assert report.trusted
    with MessageStore.open(StoreConfig.from_settings(root, SMALL_SETTINGS)) as store:
        assert not store.recovery_report.adopted


def test_light_queues_and_their_ext_units_are_made_as_live_dispatch_makes_them(
    tmp_path: Path,
) -> None:
    told = {
        **LOG_SETTINGS,
        "enableMultiDispatch": "true",
        "enableConsumeQueueExt": "true",
        "mappedFileSizeConsumeQueueExt": "90",
    }
    log = LogBuilder(segment_bytes=SEGMENT)
    for number in range(30):
        lights = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": ""}
        lights["INNER_MULTI_QUEUE_OFFSET"] = f"{number // 2},{number // 2}"
        log.append("T", number % 2, b"b", **(lights if number % 2 else {}))
    root = write_log(log, tmp_path / "store")

    require_same(root, told, tmp_path / "made", 1_009)

    made = made_files(tmp_path / "made" / "copy")
    assert any(name.startswith("%LMQ%a/") for name in made["consumequeue"])
    assert len(made["consumequeue_ext"]) == 2 * 4  # files of four units each


# --- a part only, another place, nothing at all ---


@pytest.mark.feature("P5")
def test_only_some_topics_are_made_anew(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    before = made_files(root)
    for path in [*(root / "consumequeue" / "GoldAa").rglob("0*"), root / "consumequeue" / "GoldC"]:
        if path.is_file():
            path.write_bytes(bytes(path.stat().st_size))
    index = files_below(root / "index")

    scope = Scope(index=False, topics=frozenset({"GoldAa", "GoldBB"}))
    report = rebuild_here(root, golden_settings("mixed"), RebuildOptions(scope))

    assert made_files(root) == before
    assert files_below(root / "index") == index
    assert report.queues == 8
    assert not report.trusted
    assert {path.name for path in report.kept} == {"GoldAa", "GoldBB"}


def test_only_queues_and_only_index(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    before = made_files(root)
    shutil.rmtree(root / "consumequeue")
    names = sorted(files_below(root / "index"))

    rebuild_here(root, golden_settings("mixed"), RebuildOptions(Scope(index=False)))
    assert sorted(files_below(root / "index")) == names
    shutil.rmtree(root / "index")
    rebuild_here(root, golden_settings("mixed"), RebuildOptions(Scope(queues=False)))

    assert made_files(root) == before


def test_an_unknown_topic_changes_nothing(tmp_path: Path) -> None:
    root = unpack("timer", tmp_path)
    before = files_below(root)
    scope = Scope(index=False, topics=frozenset({"TimerX"}))

    with pytest.raises(ConfigError, match="TimerX"):
        rebuild_here(root, golden_settings("timer"), RebuildOptions(scope))

    assert files_below(root) == before


@pytest.mark.feature("P5")
def test_another_directory_gets_the_files_and_the_store_stays_as_it_is(tmp_path: Path) -> None:
    root = unpack("cleaned", tmp_path)
    before = files_below(root)
    expected = offline_files(root, golden_settings("cleaned"), tmp_path / "offline")
    other = tmp_path / "other"

    report = rebuild_here(root, golden_settings("cleaned"), RebuildOptions(to=other))

    assert files_below(root) == before
    assert made_files(other) == expected
    assert report.root == other
    shutil.copytree(root / "commitlog", other / "commitlog")
    shutil.copytree(root / "config", other / "config")
    config = StoreConfig.from_settings(other, golden_settings("cleaned"))
    with MessageStore.open(config, background=False) as store:
        assert not store.recovery_report.adopted


def test_another_store_is_no_place_for_the_files(tmp_path: Path) -> None:
    root = unpack("timer", tmp_path)
    other = unpack("mixed", tmp_path)
    before = files_below(other)

    for wrong in (other, root):
        with pytest.raises(ConfigError, match="--to"):
            rebuild_here(root, golden_settings("timer"), RebuildOptions(to=wrong))
    assert files_below(other) == before


def test_a_dry_run_reads_and_changes_nothing(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    before = files_below(root)

    report = rebuild_here(root, golden_settings("mixed"), RebuildOptions(dry_run=True))

    assert files_below(root) == before
    assert (report.records, report.units, report.index_files) == (3970, 3970, 26)
    assert report.kept == ()


@pytest.mark.parametrize("options", [RebuildOptions(), RebuildOptions(dry_run=True)])
def test_a_store_in_use_is_left_alone(options: RebuildOptions, tmp_path: Path) -> None:
    root = unpack("timer", tmp_path)
    config = StoreConfig.from_settings(root, golden_settings("timer"))

    with (
        MessageStore.open(config, background=False),
        pytest.raises(StoreLockedError),
    ):
        rebuild_here(root, golden_settings("timer"), options)


def test_a_store_without_records_gets_no_files(tmp_path: Path) -> None:
    root = write_log(LogBuilder(segments=[bytearray(SEGMENT)]), tmp_path / "store")

    report = rebuild_here(root, LOG_SETTINGS)

    assert (report.records, report.queues, report.index_files) == (0, 0, 0)
    assert not any(made_files(root).values())


# --- what tasks hand over ---


@pytest.mark.feature("P15")
def test_files_that_are_not_all_there_are_not_used(tmp_path: Path) -> None:
    attempt = tmp_path / ".part-job-build0-7-0"
    attempt.write_bytes(b"x" * 40)
    wanted = {
        3: Wanted(tmp_path / "queue" / "0", 40, 2),
        4: Wanted(tmp_path / "queue" / "1", 40, 2),
    }
    good, short = Finished(3, str(attempt), 40, 2), Finished(4, str(attempt), 40, 1)

    for found in ([good], [good, good], [good, good._replace(target=9)], [good, short]):
        with pytest.raises(JobFailedError):
            settle(wanted, found, Disk())
    with pytest.raises(JobFailedError, match="has -1 bytes"):
        settle(wanted, [good, Finished(4, str(tmp_path / "gone"), 40, 2)], Disk())

    assert attempt.exists()
    assert not (tmp_path / "queue").exists()


def test_the_lock_is_held_while_tasks_run_and_given_up_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = unpack("timer", tmp_path)
    before = files_below(root)
    calls = tmp_path / "calls"
    calls.mkdir()

    scan = Scan.__call__

    def note(stage: str, number: int) -> None:
        with pytest.raises(StoreLockedError):
            StoreLock(Disk(), root / "lock").acquire()
        (calls / f"{stage}{number}").touch()

    def noted_scan(self: Scan, number: int, groups: Iterator[Any]) -> Iterator[Any]:
        note("scan", number)
        return scan(self, number, groups)

    def failing_build(_self: Build, number: int, _tasks: Iterator[Any]) -> Iterator[Any]:
        note("build", number)
        raise RuntimeError("a task that fails")

    monkeypatch.setattr(Scan, "__call__", noted_scan)
    monkeypatch.setattr(Build, "__call__", failing_build)
    with pytest.raises(RuntimeError, match="a task that fails"):
        rebuild_here(root, golden_settings("timer"))

    assert sorted(path.name for path in calls.iterdir()) == ["build0", "scan0", "scan1"]
    assert files_below(root) == before
    with StoreLock(Disk(), root / "lock"):
        pass


def test_leftovers_of_a_dead_rebuild_go_with_the_next_one(tmp_path: Path) -> None:
    root = unpack("timer", tmp_path)
    for name in ("orbitmq.rebuild/attempts", "orbitmq.rebuild.dead-17/consumequeue"):
        (root / name).mkdir(parents=True)
        (root / name / ".part-dead-scan0-1-0").write_bytes(b"x")

    rebuild_here(root, golden_settings("timer"))

    assert not leftovers(root)
