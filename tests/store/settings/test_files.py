"""Where files lie and how large they are, as a broker.conf says; segments that are warmed and read ahead."""

import mmap
import re
from pathlib import Path

import pytest

from conf_store import SMALL, ConfStore, request_of, wires
from orbitmq.message import AppendStatus, QueueType
from orbitmq.testing.builders import make_request

BATCH = {"Batch": QueueType.BATCH}


@wires(
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "mappedFileSizeConsumeQueueExt",
    "mapperFileSizeBatchConsumeQueue",
    "maxHashSlotNum",
    "maxIndexNum",
    "enableConsumeQueueExt",
)
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (1_073_741_824, 6_000_000, 50_331_648, 13_800_000, 420_000_040)),
        (SMALL, (65_536, 400, 2000, 460, 40 + 4 * 50 + 20 * 100)),
        ({"mappedFileSizeConsumeQueue": 401}, (1 << 30, 420, 50_331_648, 13_800_000, 420_000_040)),
    ],
    ids=["defaults", "small", "no multiple of a unit"],
)
def test_files_have_the_sizes_of_the_settings(tmp_path, given, expected):
    given = {"enableConsumeQueueExt": True, **given}
    with ConfStore(tmp_path, given, small=False, topic_types=BATCH) as case:
        case.append(make_request(0, "T", 0, keys="k"), make_request(1, "Batch", 0))
        case.store.flush()

        folders = ("commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index")
        assert [set(case.files(folder).values()) for folder in folders] == [
            {size} for size in expected
        ]


@wires("enableConsumeQueueExt")
def test_there_is_no_ext_of_a_queue_unless_it_is_asked_for(tmp_path):
    with ConfStore(tmp_path) as case:
        case.append(make_request(0))
        case.store.flush()

        assert case.files("consumequeue_ext") == {}


@wires("messageIndexEnable")
@pytest.mark.parametrize(("given", "indexed"), [({}, True), ({"messageIndexEnable": False}, False)])
def test_keys_are_indexed_unless_that_is_switched_off(tmp_path, given, indexed):
    with ConfStore(tmp_path, given) as case:
        case.append(make_request(0, keys="k"))
        case.store.flush()

        assert bool(case.files("index")) is indexed
        assert len(case.store.query("TopicTest", "k")) == indexed


@wires("storePathCommitLog", "mappedFileSizeCommitLog")
def test_segments_take_turns_over_several_disks(tmp_path):
    disks = [tmp_path / "disk0", tmp_path / "disk1"]
    with ConfStore(tmp_path, {"storePathCommitLog": ",".join(map(str, disks))}) as case:
        for _ in range(4):
            case.append(request_of(40 * 1024))

        names = [sorted(int(path.name) // 65_536 for path in disk.iterdir()) for disk in disks]
        assert names[0][:2] == [0, 2]
        assert names[1][:2] == [1, 3]
        assert not (case.root / "commitlog").exists()


@wires("readOnlyCommitLogStorePaths")
def test_a_read_only_disk_is_read_and_gets_no_new_segment(tmp_path):
    old, new = tmp_path / "disk0", tmp_path / "disk1"
    with ConfStore(tmp_path, {"storePathCommitLog": old}) as case:
        stored = [case.append(request_of(40 * 1024))[0] for _ in range(2)]

    given = {"storePathCommitLog": f"{old},{new}", "readOnlyCommitLogStorePaths": old}
    with ConfStore(tmp_path, given) as case:
        more = [case.append(request_of(40 * 1024))[0] for _ in range(4)]

        for result in (*stored, *more):
            assert case.store.record_at(result.log_offset) is not None
        assert sorted(path.name for path in old.iterdir()) == [f"{n * 65_536:020}" for n in (0, 1)]
        assert len(list(new.iterdir())) >= 4


# Pages of a segment


def mapping_facts(path: Path) -> dict[str, str]:
    """Return what the kernel says about this process's mapping of a file."""
    text = Path("/proc/self/smaps").read_text(encoding="utf-8")
    (found,) = re.findall(rf"{re.escape(str(path))}\n((?:[A-Z].*\n)+)", text)
    return {line.split(":")[0]: line.split(":")[1].strip() for line in found.splitlines()}


def kilobytes(fact: str) -> int:
    return int(fact.removesuffix("kB"))


@wires("warmMapedFileEnable")
@pytest.mark.feature("F59")
@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_warmed_segment_is_resident_and_locked_and_holds_zeros(tmp_path, mode):
    size = 4 << 20  # as much as most systems let a process lock
    given = {"mappedFileSizeCommitLog": size, "flushDiskType": mode, "warmMapedFileEnable": True}
    with ConfStore(tmp_path, given) as case:
        stored = case.append(make_request(0))[0]
        segment = case.store._log.segments.first

        facts = mapping_facts(segment.path)

        assert segment.resident_pages() == size // mmap.PAGESIZE
        assert kilobytes(facts["Rss"]) == kilobytes(facts["Locked"]) == size // 1024
        assert segment.path.read_bytes()[stored.size :].strip(b"\0") == b""


@wires("warmMapedFileEnable")
@pytest.mark.feature("F59")
@pytest.mark.parametrize("given", [{}, {"warmMapedFileEnable": False}])
def test_a_segment_is_not_warmed_unless_that_is_switched_on(tmp_path, given):
    size = 64 << 20
    with ConfStore(tmp_path, {"mappedFileSizeCommitLog": size, **given}) as case:
        case.append(make_request(0))
        facts = mapping_facts(case.store._log.segments.first.path)

        assert kilobytes(facts["Rss"]) < size // 1024
        assert kilobytes(facts["Locked"]) == 0


@wires("warmMapedFileEnable")
@pytest.mark.feature("F59")
def test_a_warmed_segment_that_is_full_and_flushed_is_no_longer_locked(tmp_path):
    with ConfStore(tmp_path, {"warmMapedFileEnable": True}) as case:
        case.append(*[request_of(40 * 1024)] * 2)
        first, second = case.store._log.segments
        assert kilobytes(mapping_facts(first.path)["Locked"]) == 64

        case.store.flush()

        assert kilobytes(mapping_facts(first.path)["Locked"]) == 0
        assert kilobytes(mapping_facts(second.path)["Locked"]) == 64


@wires("flushLeastPagesWhenWarmMapedFile")
@pytest.mark.feature("F59")
@pytest.mark.parametrize(
    ("given", "mode", "syncs"),
    [
        ({}, "SYNC_FLUSH", 2),  # 32 MiB are twice 4096 pages
        ({"flushLeastPagesWhenWarmMapedFile": 2048}, "SYNC_FLUSH", 4),
        ({}, "ASYNC_FLUSH", 0),
    ],
)
def test_with_sync_flush_the_zeros_of_a_warmed_segment_are_synced_on_the_way(
    tmp_path, given, mode, syncs
):
    size = 32 << 20
    basis = {"mappedFileSizeCommitLog": size, "warmMapedFileEnable": True, "flushDiskType": mode}
    with ConfStore(tmp_path, {**basis, **given}) as case:
        case.append(make_request(0))

        path = "commitlog/00000000000000000000"
        warmed = [call for call in case.disk.seen("sync_data", path) if call.length >= 4 << 20]
        assert [call.position for call in warmed] == [n * size // syncs for n in range(syncs)]
        assert sum(call.length for call in warmed) == (size if syncs else 0)


@wires("dataReadAheadEnable")
@pytest.mark.parametrize(("given", "random"), [({}, False), ({"dataReadAheadEnable": False}, True)])
def test_a_segment_is_read_ahead_unless_that_is_switched_off(tmp_path, given, random):
    with ConfStore(tmp_path, given) as case:
        case.append(make_request(0))
        facts = mapping_facts(case.store._log.segments.first.path)

        assert ("rr" in facts["VmFlags"].split()) is random


@wires("dataReadAheadEnable")
@pytest.mark.parametrize(("given", "random"), [({}, False), ({"dataReadAheadEnable": False}, True)])
def test_the_setting_counts_for_segments_from_before_the_start_too(tmp_path, given, random):
    full = request_of(40 * 1024)
    with ConfStore(tmp_path) as case:
        case.append(full, full)

    with ConfStore(tmp_path, given) as case:
        assert case.store.get("T", 0, 0).message_count == 2
        for segment in case.store._log.segments:
            assert ("rr" in mapping_facts(segment.path)["VmFlags"].split()) is random


@wires("dataReadAheadEnable")
def test_read_ahead_can_be_switched_while_the_store_runs(tmp_path):
    with ConfStore(tmp_path) as case:
        case.append(make_request(0))
        path, seen = case.store._log.segments.first.path, []
        for enabled in ("false", "true"):
            changed = case.config.with_settings({"dataReadAheadEnable": enabled})
            case.store.reconfigure(changed)
            seen.append("rr" in mapping_facts(path)["VmFlags"].split())

        assert seen == [True, False]


@wires("brokerRole")
@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({}, AppendStatus.PUT_OK),
        ({"brokerRole": "SYNC_MASTER"}, AppendStatus.PUT_OK),
        ({"brokerRole": "SLAVE", "brokerId": "1"}, AppendStatus.SERVICE_NOT_AVAILABLE),
    ],
)
def test_a_replica_takes_no_messages(tmp_path, given, status):
    with ConfStore(tmp_path, given) as case:
        assert case.store.append(make_request(0)).status is status
        assert case.store.append_many([make_request(0)])[0].status is status
