"""Paths, names and sizes of a store's files, read from real stores and from broken directories."""

import os
from pathlib import Path

import pytest

from golden_stores import STORES, damage, rows, settings, unpack
from orbitmq.errors import ConfigError, NotAStoreError, StoreError, WrongFileError
from orbitmq.files.disk import Disk
from orbitmq.files.layout import QueueKind, StoreLayout, guess_layout, list_segments
from orbitmq.files.listing import topic_name_problem
from orbitmq.files.positioned import FileCache
from orbitmq.message import LMQ_PREFIX, RETRY_PREFIX

KIND_OF_TYPE = {"SimpleCQ": QueueKind.SIMPLE, "BatchCQ": QueueKind.BATCH}
BAD_TOPICS = ["", ".", "..", "../up", "a/b", "/etc", "nul\x00", "x" * 256, "订" * 86, "\ud800"]


def make_file(path: Path, length: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(length)
    return path


def test_names_are_the_start_offset_in_20_digits() -> None:
    standard, small = StoreLayout(Path("s")), StoreLayout(Path("s"), segment_bytes=65536)

    assert standard.segment_path(0) == Path("s/commitlog/00000000000000000000")
    assert standard.segment_path(standard.segment_bytes).name == "00000000001073741824"
    assert small.segment_path(3 * 65536).name == "00000000000000196608"


@pytest.mark.feature("F11")
def test_queue_files_appear_below_topic_and_queue_with_their_fixed_size(tmp_path: Path) -> None:
    layout = StoreLayout(tmp_path)

    with FileCache(Disk()) as cache:
        for topic, queue_id, base in [("T", 0, 0), ("T", 0, 6_000_000), ("%RETRY%g", 12, 0)]:
            path = layout.queue_file(QueueKind.SIMPLE, topic, queue_id, base)
            cache.write(path, 0, b"unit", file_bytes=layout.queue_file_bytes(QueueKind.SIMPLE))

    found = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert {str(path.relative_to(tmp_path)) for path in found} == {
        "consumequeue/T/0/00000000000000000000",
        "consumequeue/T/0/00000000000006000000",
        "consumequeue/%RETRY%g/12/00000000000000000000",
    }
    assert {path.stat().st_size for path in found} == {6_000_000}


def test_queue_files_lie_below_topic_and_queue() -> None:
    layout = StoreLayout(Path("s"))

    assert layout.queue_file(QueueKind.SIMPLE, "T", 3, 6_000_000) == Path(
        "s/consumequeue/T/3/00000000000006000000"
    )
    assert layout.queue_directory(QueueKind.EXT, "T", 0) == Path("s/consumequeue_ext/T/0")
    assert layout.queue_directory(QueueKind.BATCH, "T", 0) == Path("s/batchconsumequeue/T/0")
    assert [layout.queue_file_bytes(kind) for kind in QueueKind] == [
        6_000_000,
        50_331_648,
        13_800_000,
    ]
    assert layout.index_file_bytes == 420_000_040


@pytest.mark.feature("F80")
@pytest.mark.parametrize("name", STORES)
def test_every_file_of_a_real_store_lies_where_the_layout_says(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    layout = guess_layout(root, settings(name))

    expected = {layout.checkpoint, layout.lock, *root.glob("config/*"), *root.glob("abort*")}
    expected.update(segment.path for segment in layout.list_segments())
    for kind in QueueKind:
        for queue in layout.list_queues(kind):
            directory = layout.queue_directory(kind, queue.topic, queue.queue_id)
            segments = list_segments(directory, layout.queue_file_bytes(kind))
            assert len(segments) == queue.file_count
            bases = [segment.base_offset for segment in segments]
            assert (bases[0], bases[-1]) == (queue.first_base, queue.last_base)
            expected.update(
                layout.queue_file(kind, queue.topic, queue.queue_id, base) for base in bases
            )
    index_names = [row["file"] for row in rows(name, "indexFileAsShipped")]
    expected.update(layout.index_directory / index_name for index_name in index_names)

    theirs = (
        "timerlog",
        "timerwheel",
        "compaction",
    )  # parts of a broker that are no part of a store here
    found = {path for path in root.rglob("*") if path.is_file()}
    assert {path for path in found if path.relative_to(root).parts[0] not in theirs} == expected
    for index_name in index_names:
        assert (layout.index_directory / index_name).stat().st_size == layout.index_file_bytes


@pytest.mark.parametrize("name", STORES)
def test_queues_are_those_that_the_java_store_found(name: str, tmp_path: Path) -> None:
    layout = guess_layout(unpack(name, tmp_path), settings(name))

    found = {
        (queue.topic, queue.queue_id)
        for kind in KIND_OF_TYPE.values()
        for queue in layout.list_queues(kind)
    }

    assert found == {(row["topic"], row["queueId"]) for row in rows(name, "queue")}


@pytest.mark.parametrize("name", STORES)
def test_file_sizes_are_guessed_without_settings(name: str, tmp_path: Path) -> None:
    root, given = unpack(name, tmp_path), settings(name)
    index_only = {key: given[key] for key in ("maxHashSlotNum", "maxIndexNum")}

    guessed, told = guess_layout(root, index_only), guess_layout(root, given)

    assert guessed.segment_bytes == int(given["mappedFileSizeCommitLog"])
    for kind in QueueKind:
        if any(layout_queue.file_count for layout_queue in told.list_queues(kind)):
            assert guessed.queue_file_bytes(kind) == told.queue_file_bytes(kind)


def test_a_cut_segment_does_not_change_the_guessed_size(tmp_path: Path) -> None:
    root = damage(unpack("crashed", tmp_path), "log-short")

    layout = guess_layout(root, settings("crashed"))

    assert layout.segment_bytes == 65536
    with pytest.raises(WrongFileError, match=r"has 65535 bytes instead of 65536\. .*--config"):
        layout.list_segments()


def test_unknown_index_sizes_ask_for_the_settings(tmp_path: Path) -> None:
    root = unpack("indexroll", tmp_path)

    with pytest.raises(WrongFileError, match=r"10040 bytes.*maxHashSlotNum") as caught:
        guess_layout(root)

    assert caught.value.path.parent == root / "index"


def test_an_odd_index_file_is_no_obstacle_when_the_sizes_are_known_or_not_needed(
    tmp_path: Path,
) -> None:
    root = unpack("indexroll", tmp_path)
    cut = sorted((root / "index").iterdir())[1]
    os.truncate(cut, 77)

    assert guess_layout(root, settings("indexroll")).index_slots == 500
    assert guess_layout(root, index_needed=False).segment_bytes == 65536


def test_a_directory_without_a_commit_log_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError, match="no commit log"):
        guess_layout(tmp_path)


def test_an_empty_store_has_the_default_sizes(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()

    assert guess_layout(tmp_path) == StoreLayout(tmp_path)
    assert guess_layout(tmp_path, {"mappedFileSizeCommitLog": "4096"}).segment_bytes == 4096


@pytest.mark.parametrize("value", ["0", "-1", "many", ""])
def test_a_size_that_is_no_size_is_a_config_error(value: str, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()

    with pytest.raises(ConfigError, match="maxIndexNum"):
        guess_layout(tmp_path, {"maxIndexNum": value})


def test_queue_sizes_must_hold_whole_units() -> None:
    with pytest.raises(ConfigError, match="multiple of 20"):
        StoreLayout(Path("s"), cq_file_bytes=2001)


@pytest.mark.parametrize("topic", BAD_TOPICS, ids=repr)
def test_a_topic_that_is_no_file_name_is_refused(topic: str) -> None:
    layout = StoreLayout(Path("s"))

    with pytest.raises(WrongFileError, match="topic"):
        layout.queue_directory(QueueKind.SIMPLE, topic, 0)


@pytest.mark.parametrize(
    "topic", ["T", "...", RETRY_PREFIX + "g" * 140, LMQ_PREFIX + "订单", "a\\b", "x" * 255]
)
def test_a_topic_that_is_odd_but_harmless_is_taken(topic: str) -> None:
    assert topic_name_problem(topic) is None


def test_several_disks_take_turns_and_full_ones_are_passed_over() -> None:
    disks = (Path("b"), Path("a"), Path("c"))
    layout = StoreLayout(
        Path("s"), disks, read_only_commit_log_paths=(Path("c"), Path("old")), segment_bytes=100
    )

    assert [str(layout.segment_path(base).parent) for base in (0, 100, 200)] == ["a", "b", "a"]
    assert layout.segment_path(0, full={Path("a")}).parent == Path("b")
    assert layout.segment_path(0, full={Path("a"), Path("b")}).parent == Path("a")
    assert layout.commit_log_directories == (*disks, Path("old"))


def test_segments_of_several_disks_are_one_log(tmp_path: Path) -> None:
    disks = (tmp_path / "a", tmp_path / "b")
    layout = StoreLayout(tmp_path, disks, segment_bytes=100)
    for base in (0, 100, 200, 300):
        make_file(layout.segment_path(base), 100)
    conf = {"storePathCommitLog": f"{disks[0]},{disks[1]}"}

    found = layout.list_segments()

    assert [segment.base_offset for segment in found] == [0, 100, 200, 300]
    assert {segment.path.parent for segment in found} == set(disks)
    assert len(list_segments(disks[0])) == 2
    assert guess_layout(tmp_path, conf).commit_log_directories == disks
    assert guess_layout(tmp_path, conf).segment_bytes == 100


def problems_of(directory: Path, file_bytes: int = 100) -> list[str]:
    problems: list[WrongFileError] = []
    list_segments(directory, file_bytes, on_problem=problems.append)
    return [f"{problem.path.name}: {problem.what}" for problem in problems]


def test_all_problems_of_a_directory_are_collected(tmp_path: Path) -> None:
    make_file(tmp_path / f"{0:020d}", 100)
    make_file(tmp_path / f"{100:020d}", 99)
    make_file(tmp_path / f"{300:020d}", 0)
    make_file(tmp_path / f"{450:020d}", 100)
    make_file(tmp_path / "notes.txt", 100)
    (tmp_path / f"{200:020d}").mkdir()
    os.mkfifo(tmp_path / f"{500:020d}")
    (tmp_path / "lost+found").mkdir()

    assert sorted(problems_of(tmp_path)) == [
        f"{100:020d}: has 99 bytes instead of 100",
        f"{200:020d}: is a directory, and its name is that of a segment",
        f"{300:020d}: has 0 bytes instead of 100",
        f"{300:020d}: should follow {100:020d} by 100 bytes, but follows by 200",
        f"{450:020d}: is named after an offset that is no multiple of the file size 100",
        f"{450:020d}: should follow {300:020d} by 100 bytes, but follows by 150",
        f"{500:020d}: is no plain file, and its name is that of a segment",
        "notes.txt: is not named as a segment is (20 digits)",
    ]


def test_the_first_problem_is_raised_when_nobody_collects(tmp_path: Path) -> None:
    make_file(tmp_path / "notes.txt", 100)

    with pytest.raises(WrongFileError, match="Move it out"):
        list_segments(tmp_path, 100)


def test_a_link_that_leads_nowhere_is_no_segment(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").symlink_to(tmp_path / "none")
    (tmp_path / f"{100:020d}").symlink_to(tmp_path / f"{100:020d}")

    with pytest.raises(StoreError):
        list_segments(tmp_path, 100)


def test_an_empty_file_that_sorts_last_is_no_problem(tmp_path: Path) -> None:
    make_file(tmp_path / f"{0:020d}", 100)
    make_file(tmp_path / f"{100:020d}", 0)

    assert problems_of(tmp_path) == []
    assert [segment.length for segment in list_segments(tmp_path, 100)] == [100, 0]


def test_a_segment_that_is_there_twice_is_a_problem(tmp_path: Path) -> None:
    for disk in ("a", "b"):
        make_file(tmp_path / disk / f"{0:020d}", 100)

    with pytest.raises(WrongFileError, match="there twice"):
        list_segments([tmp_path / "a", tmp_path / "b"], 100)


def test_a_missing_directory_has_no_segments_and_a_file_in_its_place_is_wrong(
    tmp_path: Path,
) -> None:
    make_file(tmp_path / "commitlog", 5)
    layout = StoreLayout(tmp_path)

    assert list_segments(tmp_path / "none") == []
    with pytest.raises(StoreError, match="Not a directory"):
        layout.list_segments()


def test_queues_are_listed_by_topic_and_number_and_strays_are_passed_over(tmp_path: Path) -> None:
    layout = StoreLayout(tmp_path, cq_file_bytes=100)
    for topic, queue_id, base in [("B", 10, 0), ("B", 2, 100), ("B", 2, 200), ("A", 0, 0)]:
        make_file(layout.queue_file(QueueKind.SIMPLE, topic, queue_id, base), 100)
    (tmp_path / "consumequeue/A/1").mkdir()
    (tmp_path / "consumequeue/A/01").mkdir()
    (tmp_path / "consumequeue/A/x").mkdir()
    make_file(tmp_path / "consumequeue/stray", 1)

    assert [tuple(queue) for queue in layout.list_queues(QueueKind.SIMPLE)] == [
        ("A", 0, 0, 0, 1),
        ("A", 1, 0, 0, 0),
        ("B", 2, 100, 200, 2),
        ("B", 10, 0, 0, 1),
    ]
    assert list(layout.list_queues(QueueKind.BATCH)) == []


def test_a_wrong_file_among_a_queue_s_files_is_a_problem(tmp_path: Path) -> None:
    layout = StoreLayout(tmp_path)
    make_file(tmp_path / "consumequeue/A/0/readme", 1)

    with pytest.raises(WrongFileError, match="readme"):
        list(layout.list_queues(QueueKind.SIMPLE))
