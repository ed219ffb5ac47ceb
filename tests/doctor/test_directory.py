"""`orbitmq doctor DIR`: each situation planted in a store, found, and put right by what is advised."""

import json
import os
import time
from collections.abc import Iterator
from itertools import count, islice

import pytest
from typer.testing import CliRunner

from conf_store import SMALL, broker_conf
from doctor.planted_store import HOUR, keyed
from golden_stores import GOLDEN, STORES, unpack
from orbitmq.cli import app
from orbitmq.format.index_file import key_hash
from orbitmq.store.clean import disk_ratio

pytestmark = pytest.mark.feature("X5")


def test_a_store_without_fault_has_no_finding(planted, doctor):
    planted.write(*(keyed(n) for n in range(50)))

    seen = doctor.fine(*planted.words)
    text = CliRunner().invoke(app, ["doctor", *map(str, planted.words)]).output

    subjects = [one.partition(":")[0] for one in seen]
    assert subjects == ["files", "newest messages", "offsets", "index", "disk", "clock"]
    assert "0 findings" in text
    assert "looked at and fine: files: " in text


@pytest.mark.parametrize("name", sorted(set(STORES) - {"crashed", "cleaned"}))
def test_stores_of_a_java_broker_have_no_finding(name, tmp_path, doctor):
    assert doctor.fine(unpack(name, tmp_path), "--config", GOLDEN / f"{name}.conf")


def test_a_timer_checkpoint_that_says_too_much_is_told(tmp_path, doctor):
    root = unpack("timer", tmp_path)
    path = root / "config" / "timercheck"
    page = bytearray(path.read_bytes())
    page[8:16] = (10**12).to_bytes(8, "big")
    path.write_bytes(page)

    finding = doctor.one("timer: says that", root, "--config", GOLDEN / "timer.conf", code=4)

    assert (finding["severity"], finding["where"]) == ("corrupt", f"{path}, position 8")


def test_a_store_that_nobody_closed_is_told(tmp_path, doctor):
    root = unpack("crashed", tmp_path)

    finding = doctor.one("not closed", root, "--config", GOLDEN / "crashed.conf")

    assert finding["severity"] == "note"
    assert finding["since_ms"] > 0
    assert finding["where"] == f"{root}/abort"


def test_groups_of_a_java_broker_below_the_first_message_are_told(tmp_path, doctor):
    found = doctor.look(unpack("cleaned", tmp_path), "--config", GOLDEN / "cleaned.conf")
    one = doctor.look(
        tmp_path / "cleaned", "--config", GOLDEN / "cleaned.conf", "--group", "Clean_cg"
    )

    assert {finding["subject"] for finding in found} == {"offsets"}
    assert len(found) == 8
    assert len(one) == 4


def test_a_damaged_record_is_exit_code_4_until_it_is_repaired(planted, doctor):
    planted.write(*(keyed(n, size=200) for n in range(50)))
    segment = planted.root / "commitlog" / "00000000000000000000"
    data = bytearray(segment.read_bytes())
    data[4_000:4_010] = b"x" * 10
    segment.write_bytes(data)

    finding = doctor.one("record:", *planted.words, code=4)
    doctor.follow(finding)

    assert finding["severity"] == "corrupt"
    assert finding["where"].startswith(f"{segment}, position ")
    assert doctor.look(*planted.words, code=0) == []


def test_thorough_reads_all_of_the_log(planted, doctor, monkeypatch):
    monkeypatch.setattr("orbitmq.doctor.log_tail.TAIL_BYTES", 64 * 1024 - 10_000)
    planted.write(*(keyed(n, size=200) for n in range(50)))
    segment = planted.root / "commitlog" / "00000000000000000000"
    data = bytearray(segment.read_bytes())
    data[4_000:4_010] = b"x" * 10
    segment.write_bytes(data)

    assert doctor.look(*planted.words, code=0) == []
    assert doctor.look(*planted.words, "--thorough", code=4) != []


def test_a_broken_state_file_is_exit_code_4_until_it_is_repaired(planted, doctor):
    planted.write(keyed(1))
    planted.topics(Orders=(1, 1))
    planted.topics(Orders=(2, 2))
    topics = planted.root / "config" / "topics.json"
    before = topics.with_name("topics.json.bak").read_bytes()
    topics.write_text("{")

    finding = doctor.one("state:", *planted.words, code=4)
    doctor.follow(finding)

    assert finding["severity"] == "corrupt"
    assert finding["where"].startswith(f"{topics}, ")
    assert topics.read_bytes() == before
    assert [
        path.read_text() for path in planted.root.glob("orbitmq.quarantine/**/topics.json")
    ] == ["{"]
    assert doctor.fine(*planted.words)


def test_a_broken_state_file_without_a_version_before_it_is_left_to_a_backup(planted, doctor):
    planted.write(keyed(1))
    planted.topics(Orders=(1, 1))
    topics = planted.root / "config" / "topics.json"
    whole = topics.read_bytes()
    topics.write_text("{")

    finding = doctor.one("state:", *planted.words, code=4)
    shown = doctor.follow(finding, code=1)
    topics.write_bytes(whole)

    assert "Restore it from a backup" in finding["meaning"]
    assert "topics.json" in shown
    assert doctor.fine(*planted.words)


def test_a_directory_without_a_store_is_an_error_that_says_so(tmp_path, doctor):
    result = doctor.run(tmp_path)

    assert result.exception.exit_code == 4
    assert "no message store" in str(result.exception)


@pytest.mark.feature("F105")
def test_a_log_that_queues_do_not_follow_is_told_until_it_is_rebuilt(planted, doctor):
    planted.write(*(keyed(n) for n in range(20)))
    for file in (planted.root / "consumequeue" / "Orders" / "0").iterdir():
        file.unlink()

    finding = doctor.one("dispatch stands still", *planted.words)
    doctor.follow(finding)

    assert finding["numbers"]["messages"] == 20
    assert finding["since_ms"] > 0
    assert doctor.fine(*planted.words)


@pytest.mark.feature("F107")
def test_an_index_with_too_few_slots_is_told_until_it_has_more(planted, doctor):
    planted.write(*(keyed(n) for n in range(90)), maxHashSlotNum=2)

    finding = doctor.one("too few slots", *planted.words)
    broker_conf(planted.folder, {**SMALL, "maxHashSlotNum": 100})
    doctor.follow(finding)

    numbers = finding["numbers"]
    assert (numbers["mean"], numbers["slots"], numbers["entries"]) == (45, 2, 90)
    assert numbers["slot_load_per_cent"] == 100
    assert numbers["foreign_per_cent"] > 90
    assert numbers["longest"] >= 45
    assert doctor.fine(*planted.words)


def colliding(slot: int, slots: int) -> Iterator[str]:
    """Yield keys that lead to one slot."""
    names = (f"key{n}" for n in count())
    return (name for name in names if key_hash("Orders", name) % slots == slot)


@pytest.mark.feature("F107")
def test_the_share_of_foreign_entries_is_that_of_a_count_by_hand(planted, doctor):
    (often, seldom), lonely = islice(colliding(0, 2), 2), next(colliding(1, 2))
    keys = [often] * 30 + [seldom] * 20 + [lonely] * 20
    planted.write(*(keyed(n, key=key) for n, key in enumerate(keys)), maxHashSlotNum=2)

    numbers = doctor.one("key queries are slow", *planted.words)["numbers"]
    asked = {key: key_line(doctor, planted, key) for key in (often, seldom, lonely)}

    # Who asks for each entry's key walks its chain: 50 entries 50 times, 20 entries 20 times.
    assert (numbers["longest"], numbers["mean"], numbers["slots"]) == (50, 35, 2)
    assert numbers["foreign_per_cent"] == round(100 * 2 * 30 * 20 / (50 * 50 + 20 * 20), 1)
    assert "has 30 messages, 50 entries walked, 40 % foreign" in asked[often]
    assert "has 20 messages, 50 entries walked, 60 % foreign" in asked[seldom]
    assert "has 20 messages, 20 entries walked, 0 % foreign" in asked[lonely]


def key_line(doctor, planted, key: str) -> str:
    """Return what is said of a key that is found."""
    result = doctor.run(*planted.words, "--topic", "Orders", "--key", key)
    (line,) = [one for one in json.loads(result.stdout)["looked_at"] if one.startswith("key: ")]
    return line


@pytest.mark.feature("F107")
def test_a_chain_whose_entries_are_mostly_foreign_has_too_few_slots(planted, doctor):
    slots = 4
    one, two, three = islice(colliding(3, slots), 3)
    keys = [one] * 20 + [two] * 19 + [three] * 19
    planted.write(*(keyed(n, key=key) for n, key in enumerate(keys)), maxHashSlotNum=slots)

    numbers = doctor.one("too few slots", *planted.words)["numbers"]

    walked, own = 58 * 58, 20 * 20 + 19 * 19 + 19 * 19
    assert numbers["foreign_per_cent"] == round(100 * (walked - own) / walked, 1)
    assert numbers["slot_load_per_cent"] == 25


@pytest.mark.feature("F107")
def test_a_key_with_very_many_messages_is_told_with_the_query_that_bounds_it(planted, doctor):
    requests = (keyed(n, key="all") for n in range(1_100))
    planted.write(*requests, maxHashSlotNum=500, maxIndexNum=2_000, mappedFileSizeCommitLog=1 << 20)

    finding = doctor.one("one key has very many", *planted.words)

    assert finding["numbers"]["longest"] == 1_100
    assert finding["numbers"]["foreign_per_cent"] == 0
    assert "--key all" in finding["command"]
    assert len(doctor.follow(finding).splitlines()) == 11


@pytest.mark.feature("F107")
def test_keys_that_were_stored_without_an_index_are_told_and_a_scan_finds_them(planted, doctor):
    planted.write(*(keyed(n) for n in range(20)), messageIndexEnable=False)
    off = doctor.one("keys are not indexed", *planted.words)
    shown = doctor.follow(off)
    broker_conf(planted.folder, SMALL)
    asked = ["--topic", "Orders", "--key", "k7"]

    behind = doctor.one("the index is behind the log", *planted.words)
    nothing = doctor.one("nothing is found by the key", *planted.words, *asked)
    scanned = doctor.one("does not lead to all", *planted.words, *asked, "--scan")
    doctor.follow(behind)

    assert len(shown.splitlines()) == 21
    assert (off["severity"], behind["severity"]) == ("warning", "critical")
    assert behind["numbers"]["records_with_keys"] == 20
    assert nothing["command"].endswith(
        "--topic Orders --key k7 --scan --config " + str(planted.conf)
    )
    assert scanned["numbers"] == {"by_index": 0, "by_scan": 1}
    assert doctor.fine(*planted.words, *asked, "--scan")
    assert "'k7' of Orders has 1 messages" in " ".join(doctor.fine(*planted.words, *asked))


@pytest.mark.feature("F107")
def test_a_key_that_no_message_has_is_told(planted, doctor):
    planted.write(*(keyed(n) for n in range(20)))
    asked = [*planted.words, "--topic", "Orders", "--key", "other", "--scan"]

    finding = doctor.one("nothing is found by the key", *asked)

    assert finding["severity"] == "note"
    assert finding["numbers"]["by_scan"] == 0
    assert len(doctor.follow(finding).splitlines()) == 21


def test_messages_from_the_future_are_told(planted, doctor):
    planted.write(keyed(1)).write(keyed(2), ahead_s=2 * HOUR)

    finding = doctor.one("stored in the future", *planted.words)

    assert 2 * HOUR * 1000 - 60_000 < finding["numbers"]["ahead_ms"] <= 2 * HOUR * 1000
    assert len(doctor.follow(finding).splitlines()) == 2  # a header, and the one


@pytest.mark.feature("F108")
def test_a_disk_over_its_limit_is_told(planted, doctor):
    used = round(disk_ratio(planted.folder) * 100)
    if used <= 10:
        pytest.skip("the disk of the tests is too empty for the lowest limit that RocketMQ allows")
    planted.write(keyed(1), diskMaxUsedSpaceRatio=10)

    found = [f for f in doctor.look(*planted.words) if f["subject"] == "disk"]

    assert found[0]["numbers"]["used_per_cent"] == pytest.approx(used, abs=2)
    assert found[0]["numbers"]["limits_per_cent"] == "10 85 90"
    words = "orbitmq broker config 127.0.0.1:10911 --set fileReservedTime=36"
    assert found[0]["command"] == words


@pytest.mark.feature("F108")
def test_a_group_that_loses_unread_messages_by_the_next_deletion_is_told(planted, doctor):
    hours = ";".join(f"{hour:02}" for hour in range(24))
    planted.write(*(keyed(n, size=1_000) for n in range(200)), fileReservedTime=1, deleteWhen=hours)
    first, *_ = sorted((planted.root / "commitlog").iterdir())
    os.utime(first, (time.time() - 2 * HOUR,) * 2)
    planted.offsets(late=10, quick=200)

    finding = doctor.one("about to lose", *planted.words)

    messages = finding["numbers"]["unread_messages"]
    size = 1_000 + 91 + len("Orders") + 20
    assert finding["where"] == "group late, Orders, queue 0"
    assert finding["numbers"]["segments"] == 1
    assert 64 * 1024 // size - 10 - 5 <= messages <= 64 * 1024 // 1_000 - 10
    assert messages * 1_100 < finding["numbers"]["bytes_at_risk"] < messages * 1_200
    assert finding["command"] == "orbitmq group progress late"


def test_the_worst_comes_first_and_json_has_all(planted, doctor):
    planted.write(*(keyed(n, size=200) for n in range(50)), maxHashSlotNum=2, ahead_s=2 * HOUR)
    segment = planted.root / "commitlog" / "00000000000000000000"
    data = bytearray(segment.read_bytes())
    data[4_000:4_010] = b"x" * 10
    segment.write_bytes(data)

    value = json.loads(doctor.run(*planted.words).stdout)

    severities = [finding["severity"] for finding in value["findings"]]
    assert severities[0] == "corrupt"
    assert severities == sorted(severities, key=["corrupt", "critical", "warning", "note"].index)
    assert value["target"] == str(planted.root)
    assert set(value["findings"][0]) == {
        *("severity", "subject", "what", "where", "since_ms", "numbers", "meaning", "command"),
    }
