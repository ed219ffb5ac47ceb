"""Opening a store: what is trusted, what is read again, and what is mended."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from golden_stores import rows, settings, unpack
from orbitmq.errors import WrongFileError
from orbitmq.format.cq_unit import UNIT
from orbitmq.format.record import STORE_MS_AT, decode_record
from orbitmq.message import AppendRequest, QueueType
from orbitmq.store.config import StoreConfig
from orbitmq.store.queues import consume_queue
from orbitmq.store.recovery.adopt import RecoveryReport
from orbitmq.store.recovery.plan import RepairKind
from orbitmq.store.store import MessageStore
from orbitmq.testing.builders import make_request
from orbitmq.testing.fake_clock import FakeClock

SEGMENT = 65536


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        root=root, segment_bytes=SEGMENT, cq_file_bytes=2000, index_slots=50, index_items=200
    )


def open_store(root: Path) -> MessageStore:
    return MessageStore.open(config(root), background=False, clock=FakeClock())


def fill(store: MessageStore, count: int, first: int = 0) -> list[int]:
    """Append messages to four queues; return where they lie."""
    return [
        store.append(
            AppendRequest("T", number % 4, b"body %d " % number * 30, b"KEYS\x01k%d\x02" % number)
        ).log_offset
        for number in range(first, first + count)
    ]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "s") as opened:
        yield opened


def killed(store: MessageStore, tmp_path: Path) -> Path:
    """Return a copy of an open store: what is left when its process is killed now."""
    return Path(shutil.copytree(store.config.root, tmp_path / "killed"))


def reopened(root: Path) -> tuple[RecoveryReport, dict[int, int]]:
    """Open, close, and return the report and how many messages each queue of T has."""
    with open_store(root) as store:
        lengths = {no: store.max_offset("T", no) for no in range(4)}
        return store.recovery_report, lengths


def even(count: int) -> dict[int, int]:
    return dict.fromkeys(range(4), count // 4)


def checkpointed(store: MessageStore) -> None:
    store.wait_dispatched()
    store.flush()


def test_a_new_store_has_nothing_to_recover(store: MessageStore) -> None:
    report = store.recovery_report

    assert (report.end_offset, report.records, report.adopted) == (0, 0, False)
    assert report.clean


def test_a_closed_store_is_taken_as_it_is(tmp_path: Path) -> None:
    with open_store(tmp_path / "s") as store:
        fill(store, 400)
        end = store.max_log_offset

    report, lengths = reopened(tmp_path / "s")

    assert not report.adopted
    assert (report.records, report.end_offset) == (0, end)
    assert report.clean
    assert lengths == even(400)


def test_a_killed_store_goes_on_from_its_last_snapshot(store: MessageStore, tmp_path: Path) -> None:
    fill(store, 400)
    checkpointed(store)
    fill(store, 400, first=400)
    root = killed(store, tmp_path)

    report, lengths = reopened(root)

    assert not report.adopted
    assert not report.clean
    assert report.end_offset == store.max_log_offset
    assert lengths == even(800)


@pytest.mark.parametrize("has_snapshot", [True, False])
def test_a_store_killed_soon_after_its_first_start_is_read_as_a_whole(
    store: MessageStore, tmp_path: Path, has_snapshot: bool
) -> None:
    fill(store, 400)
    root = killed(store, tmp_path)
    if not has_snapshot:  # it has one from the start on
        (root / "orbitmq.snapshot").unlink()

    report, lengths = reopened(root)

    assert report.adopted == (not has_snapshot)
    assert report.records == 400
    assert lengths == even(400)


def damage_snapshot(root: Path) -> None:
    path = root / "orbitmq.snapshot"
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def write_checkpoint_as_java(root: Path) -> None:
    with (root / "checkpoint").open("r+b") as page:
        page.write((123).to_bytes(8, "big"))


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (damage_snapshot, "no snapshot"),
        (lambda root: (root / "orbitmq.snapshot").unlink(), "no snapshot"),
        (write_checkpoint_as_java, "somebody else"),
        (lambda root: (root / "checkpoint").unlink(), "somebody else"),
        (lambda root: shutil.rmtree(root / "consumequeue" / "T" / "2"), "consumequeue/T/2"),
        (lambda root: sorted((root / "index").iterdir())[1].unlink(), "index files"),
    ],
    ids=["snapshot", "no-snapshot", "java", "no-checkpoint", "queue", "index"],
)
def test_whatever_cannot_be_trusted_is_compared_with_the_log(harm, reason, tmp_path: Path) -> None:
    with open_store(tmp_path / "s") as store:
        fill(store, 400)
    harm(tmp_path / "s")

    report, lengths = reopened(tmp_path / "s")

    assert report.adopted
    assert reason in report.why_adopted
    assert report.records == 400
    assert lengths == even(400)


def test_a_snapshot_older_than_the_checkpoint_is_not_trusted(
    store: MessageStore, tmp_path: Path
) -> None:
    fill(store, 40)
    checkpointed(store)
    old = (store.config.root / "orbitmq.snapshot").read_bytes()
    fill(store, 40, first=40)
    checkpointed(store)
    root = killed(store, tmp_path)
    (root / "orbitmq.snapshot").write_bytes(old)

    report, lengths = reopened(root)

    assert "older than the checkpoint" in report.why_adopted
    assert lengths == even(80)


def test_damage_behind_the_snapshot_is_mended_without_reading_everything(
    store: MessageStore, tmp_path: Path
) -> None:
    fill(store, 400)
    checkpointed(store)
    places = fill(store, 40, first=400)
    root = killed(store, tmp_path)
    flip(root, places[7] + 100)

    report, lengths = reopened(root)

    assert not report.adopted
    assert [repair.kind for repair in report.repairs] == [RepairKind.FILL]
    assert [path.name.split("-")[0] for path in report.kept] == [str(places[7])]
    assert lengths == even(440)


@pytest.mark.parametrize("subscription", [None, "*", "TagA"])
def test_readers_pass_over_a_filler(store: MessageStore, tmp_path: Path, subscription) -> None:
    places = [store.append(make_request(n, "T", 0)).log_offset for n in range(10)]
    root = killed(store, tmp_path)
    flip(root, places[4] + 100)

    with open_store(root) as again:
        found = again.get("T", 0, 0, 32, subscription=subscription)

    assert found.queue_offsets == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert found.next_offset == 10


def test_damage_before_the_snapshot_makes_recovery_compare_everything(
    store: MessageStore, tmp_path: Path
) -> None:
    places = fill(store, 400)
    checkpointed(store)
    fill(store, 4, first=400)
    root = killed(store, tmp_path)
    flip(root, places[390] + 100)

    report, lengths = reopened(root)

    assert report.adopted
    assert "damaged" in report.why_adopted
    assert [repair.start for repair in report.repairs] == [places[390]]
    assert lengths == even(404)


def test_a_log_that_lost_its_end_takes_queues_and_index_back(
    store: MessageStore, tmp_path: Path
) -> None:
    """Power loss: queues and snapshot were on disk, the end of the log was not."""
    places = fill(store, 400)
    checkpointed(store)
    root = killed(store, tmp_path)
    zero_from(root, places[380])

    report, lengths = reopened(root)

    assert report.adopted
    assert report.end_offset == places[380]
    assert lengths == even(380)
    assert report.adoption.queues.beyond == 20


@pytest.mark.feature("F34")
def test_units_of_records_that_did_not_survive_are_cut(store: MessageStore, tmp_path: Path) -> None:
    fill(store, 200)
    checkpointed(store)
    places = fill(store, 40, first=200)
    store.wait_dispatched()
    store._parts.dispatcher.queues.write_out(thorough=True)
    root = killed(store, tmp_path)
    zero_from(root, places[20])

    report, lengths = reopened(root)

    assert not report.adopted
    assert report.stale_units == 20
    assert lengths == even(220)
    for queue_id in range(4):
        data = (root / "consumequeue" / "T" / str(queue_id) / f"{0:020d}").read_bytes()
        assert data[55 * 20 :] == bytes(2000 - 55 * 20)


def test_one_time_far_ahead_is_not_the_time_of_all_that_comes_later(
    store: MessageStore, tmp_path: Path
) -> None:
    last = fill(store, 40)[-1]
    root = killed(store, tmp_path)
    with (root / "commitlog" / f"{0:020d}").open("r+b") as segment:
        segment.seek(last + STORE_MS_AT)
        segment.write((99_344_109_430_786).to_bytes(8, "big"))

    with open_store(root) as again:
        result = again.append(AppendRequest("T", 0, b"later", b""))
        physic_ms = again._parts.checkpoint.value.physic_ms

    usual = store.record_at(last).store_ms
    assert result.store_ms - usual < 86_400_000
    assert physic_ms <= result.store_ms


def flip(root: Path, log_offset: int) -> None:
    base = log_offset // SEGMENT * SEGMENT
    with (root / "commitlog" / f"{base:020d}").open("r+b") as segment:
        segment.seek(log_offset - base)
        byte = segment.read(1)[0]
        segment.seek(log_offset - base)
        segment.write(bytes([byte ^ 0x5A]))


def zero_from(root: Path, log_offset: int) -> None:
    for path in sorted((root / "commitlog").iterdir()):
        base = int(path.name)
        if base + SEGMENT > log_offset:
            keep = max(0, log_offset - base)
            path.write_bytes(path.read_bytes()[:keep].ljust(SEGMENT, b"\0"))


def test_a_missing_segment_is_refused_with_a_next_step(tmp_path: Path) -> None:
    with open_store(tmp_path / "s") as store:
        fill(store, 1000)
    (tmp_path / "s" / "commitlog" / f"{SEGMENT:020d}").unlink()

    with pytest.raises(WrongFileError, match="orbitmq store repair"):
        open_store(tmp_path / "s")


def test_a_single_segment_of_wrong_length_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path / "s") as store:
        fill(store, 10)
    segment = tmp_path / "s" / "commitlog" / f"{0:020d}"
    segment.write_bytes(segment.read_bytes()[:-1])

    with pytest.raises(WrongFileError, match="65535 bytes instead of 65536"):
        open_store(tmp_path / "s")


def golden_config(name: str, root: Path) -> StoreConfig:
    return StoreConfig.from_settings(root, settings(name))


def files_below(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.mark.feature("F35")
@pytest.mark.parametrize("name", ["mixed", "crashed", "propcrc", "timer", "indexroll", "batchcq"])
def test_queues_and_index_that_were_deleted_come_back_byte_for_byte(
    name: str, tmp_path: Path
) -> None:
    root = unpack(name, tmp_path)
    parts = ("consumequeue", "batchconsumequeue", "index")
    before = {part: files_below(root / part) for part in parts}
    for part in parts:
        shutil.rmtree(root / part, ignore_errors=True)

    with MessageStore.open(golden_config(name, root), background=False) as store:
        assert store.recovery_report.adopted

    after = {part: files_below(root / part) for part in parts}
    assert after["consumequeue"] == before["consumequeue"]
    assert after["batchconsumequeue"] == before["batchconsumequeue"]
    # An index file is named after the moment of its creation; everything in it comes from the log.
    assert list(after["index"].values()) == list(before["index"].values())


@pytest.mark.feature("F33")
@pytest.mark.feature("F33")
def test_garbage_behind_the_last_unit_of_a_queue_is_cut(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    row = next(
        row for row in rows("mixed", "queue") if row["topic"] == "GoldAa" and row["queueId"] == 1
    )
    base = row["maxOffset"] * 20 // 2000 * 2000
    file = root / "consumequeue" / "GoldAa" / "1" / f"{base:020d}"
    before = file.read_bytes()
    end = row["maxOffset"] * 20 - base
    with file.open("r+b") as handle:
        handle.seek(end)
        handle.write(UNIT.pack(77, 100, 5) + b"\xff" * 20)

    with MessageStore.open(golden_config("mixed", root), background=False) as store:
        assert store.max_offset("GoldAa", 1) == row["maxOffset"]
        queues = store._parts.dispatcher.queues
        assert queues.end_log_offset(queues.find("GoldAa", 1)) == row["maxPhysicOffset"]

    assert file.read_bytes() == before


@pytest.mark.parametrize("name", ["mixed", "cleaned", "ext", "batchcq", "propcrc", "timer"])
def test_adopting_a_closed_store_of_a_real_broker_changes_no_file_of_it(
    name: str, tmp_path: Path
) -> None:
    root = unpack(name, tmp_path)
    own = ("checkpoint", "lock", "orbitmq.snapshot", "abort")
    before = {key: value for key, value in files_below(root).items() if key not in own}

    with MessageStore.open(golden_config(name, root), background=False) as store:
        report = store.recovery_report

    after = {key: value for key, value in files_below(root).items() if key not in own}
    assert report.adopted
    assert report.adoption.is_clean
    assert after == before


def test_offsets_of_a_topic_whose_messages_expired_are_kept(tmp_path: Path) -> None:
    root = unpack("cleaned", tmp_path)
    expected = {
        (row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"])
        for row in rows("cleaned", "queue")
    }

    with MessageStore.open(golden_config("cleaned", root), background=False) as store:
        found = {queue: (store.min_offset(*queue), store.max_offset(*queue)) for queue in expected}

    assert found == expected


def test_a_lost_inner_batch_leaves_the_numbers_of_a_batch_queue_alone(tmp_path: Path) -> None:
    root = unpack("batchcq", tmp_path)
    batches = [row for row in rows("batchcq", "record") if "INNER_NUM" in row["properties"]]
    lost = batches[20]
    flip(root, lost["phyOffset"] + 95)
    lengths = {(row["topic"], row["queueId"]): row["maxOffset"] for row in rows("batchcq", "queue")}

    with MessageStore.open(golden_config("batchcq", root), background=False) as store:
        assert [repair.start for repair in store.recovery_report.repairs] == [lost["phyOffset"]]
        assert {queue: store.max_offset(*queue) for queue in lengths} == lengths

    segment = root / "commitlog" / f"{lost['phyOffset'] // SEGMENT * SEGMENT:020d}"
    filler = decode_record(segment.read_bytes(), lost["phyOffset"] % SEGMENT)
    assert filler.property_map["INNER_NUM"] == lost["properties"]["INNER_NUM"]


def test_the_kind_of_a_topic_does_not_get_lost_in_adoption(tmp_path: Path) -> None:
    root = unpack("batchcq", tmp_path)
    shutil.rmtree(root / "batchconsumequeue")

    types = {"BatchT": QueueType.BATCH}
    with MessageStore.open(
        golden_config("batchcq", root),
        background=False,
        topic_types=lambda topic: types.get(topic, QueueType.SIMPLE),
    ) as store:
        assert store.queues() == [("BatchT", 0), ("BatchT", 1)]

    assert not list((root / "consumequeue").glob("BatchT*"))


# --- ext units ---

EXT = {"enable_cq_ext": True, "ext_file_bytes": 256}


def ext_config(root: Path) -> StoreConfig:
    return replace(config(root), **EXT)


def ext_files(root: Path) -> dict[str, bytes]:
    """Return what the ext files hold, without the zeros behind it; files of zeros count too."""
    paths = (path for path in (root / "consumequeue_ext").rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes().rstrip(b"\0") for path in paths}


def write_queues_out(store: MessageStore) -> None:
    """Let everything reach the queue files, and no snapshot know of it."""
    store.wait_dispatched()
    dispatcher = store._parts.dispatcher
    dispatcher.ext.write_out()
    dispatcher.queues.write_out(thorough=True)


@pytest.mark.feature("F29")
@pytest.mark.parametrize("trusted", [True, False])
def test_ext_units_of_records_that_did_not_survive_are_cut(tmp_path: Path, trusted: bool) -> None:
    with MessageStore.open(ext_config(tmp_path / "s"), background=False) as store:
        fill(store, 100)
        checkpointed(store)
        lost = fill(store, 40, first=100)[20]
        write_queues_out(store)
        alike = fill_beside(tmp_path / "alike", 120)
        root = killed(store, tmp_path)
    zero_from(root, lost)
    if not trusted:
        (root / "orbitmq.snapshot").unlink()

    with MessageStore.open(ext_config(root), background=False) as store:
        assert store.recovery_report.adopted is not trusted
        assert {no: store.max_offset("T", no) for no in range(4)} == even(120)

    assert len(alike) > 4
    assert ext_files(root).keys() == alike.keys()
    assert {name: len(data) for name, data in ext_files(root).items()} == {
        name: len(data) for name, data in alike.items()
    }


def fill_beside(root: Path, count: int) -> dict[str, bytes]:
    """Return the ext files of a store that never had more than these messages."""
    with MessageStore.open(ext_config(root), background=False) as store:
        fill(store, count)
    return ext_files(root)


@pytest.mark.feature("F29")
@pytest.mark.parametrize("trusted", [True, False])
def test_ext_units_behind_the_end_of_a_real_broker_s_store_go_with_their_records(
    tmp_path: Path, trusted: bool
) -> None:
    before = ext_files(unpack("ext", tmp_path / "java"))
    config = StoreConfig.from_settings(unpack("ext", tmp_path), settings("ext"))
    with MessageStore.open(config, background=False) as store:
        end, (topic, queue_id) = store.max_log_offset, store.queues()[0]
        for number in range(60):
            store.append(make_request(number, topic, queue_id))
        store.append(make_request(0, "New", 0))
        write_queues_out(store)
        if not trusted:
            store.flush()  # the snapshot knows of them too
        root = killed(store, tmp_path)
    assert ext_files(root) != before
    zero_from(root, end)

    with MessageStore.open(replace(config, root=root), background=False) as store:
        assert store.recovery_report.adopted is not trusted
        assert store.max_log_offset == end

    assert ext_files(root) == before


def test_what_adoption_enters_anew_is_not_cut_with_the_stale_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_queue, "VERIFY_BYTES", 20)  # compared in several pieces
    with MessageStore.open(ext_config(tmp_path / "s"), background=False) as store:
        fill(store, 400)
        checkpointed(store)
        root = killed(store, tmp_path)
    (root / "orbitmq.snapshot").unlink()
    queue = root / "consumequeue" / "T" / "1" / f"{0:020d}"
    data = bytearray(queue.read_bytes())
    data[3 * 20 : 4 * 20] = bytes(20)  # its new ext unit comes behind those of all later units
    queue.write_bytes(data)

    for _ in range(2):
        with MessageStore.open(ext_config(root), background=False) as store:
            units = store.units("T", 1, 0, 25)
            ext = store._parts.dispatcher.ext
            number = store.queue_number("T", 1)
            assert [ext.get(number, unit.tag_hash) is not None for unit in units] == [True] * 25
        (root / "orbitmq.snapshot").unlink()


def test_units_of_a_batch_queue_whose_records_are_lost_are_cut(tmp_path: Path) -> None:
    def opened(root: Path) -> MessageStore:
        return MessageStore.open(
            replace(config(root), batch_cq_file_bytes=460),
            background=False,
            topic_types=lambda _: QueueType.BATCH,
        )

    with opened(tmp_path / "s") as store:
        fill(store, 20)
        checkpointed(store)
        lost = fill(store, 40, first=20)[0]
        store.wait_dispatched()
        store._parts.dispatcher.batch_queues.write_out()
        root = killed(store, tmp_path)
    zero_from(root, lost)

    with opened(root) as store:
        assert not store.recovery_report.adopted

    (file,) = (root / "batchconsumequeue" / "T" / "1").iterdir()
    assert file.read_bytes()[5 * 46 :] == bytes(460 - 5 * 46)


def test_ext_units_survive_a_time_without_them(tmp_path: Path) -> None:
    root = tmp_path / "s"
    for number, switched_on in enumerate([True, False, True]):
        settings_now = replace(ext_config(root), enable_cq_ext=switched_on)
        with MessageStore.open(settings_now, background=False) as store:
            fill(store, 40, first=40 * number)
            checkpointed(store)
            left = killed(store, tmp_path / str(number))

    with MessageStore.open(ext_config(left), background=False) as store:
        ext, number = store._parts.dispatcher.ext, store.queue_number("T", 1)
        units = store.units("T", 1, 0, 30)
        times = [unit.store_ms for u in units if (unit := ext.get(number, u.tag_hash))]
        wanted = [store.store_time("T", 1, n) for n in (*range(10), *range(20, 30))]

    assert times == wanted
