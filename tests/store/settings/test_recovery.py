"""What recovery checks, who dispatches, and where records say they were stored, as a broker.conf says."""

import shutil

import pytest

from conf_store import ConfStore, wires
from orbitmq.message import Host
from orbitmq.testing.builders import delayed_request, make_request

FIRST = "commitlog/00000000000000000000"


def lose_the_account_of_the_last_stop(case: ConfStore) -> None:
    """Make the next opening read the whole log."""
    for name in ("orbitmq.snapshot", "checkpoint"):
        (case.root / name).unlink()


def flip(case: ConfStore, position: int) -> None:
    with (case.root / FIRST).open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1]))


@wires("checkCRCOnRecover")
@pytest.mark.parametrize(("given", "kept"), [({}, False), ({"checkCRCOnRecover": False}, True)])
def test_recovery_compares_bodies_with_their_crc_unless_that_is_switched_off(tmp_path, given, kept):
    with ConfStore(tmp_path) as case:
        last = case.append(*[make_request(n) for n in range(10)])[-1]
    lose_the_account_of_the_last_stop(case)
    flip(case, last.log_offset + 90)  # inside the body

    with ConfStore(tmp_path, given) as case:
        end = last.log_offset + last.size if kept else last.log_offset
        assert case.store.max_log_offset == end


@wires("forceVerifyPropCRC")
@pytest.mark.parametrize(("given", "kept"), [({}, True), ({"forceVerifyPropCRC": True}, False)])
def test_recovery_compares_whole_records_with_their_crc_if_that_is_switched_on(
    tmp_path, given, kept
):
    with_crc = {"enabledAppendPropCRC": True}
    with ConfStore(tmp_path, with_crc) as case:
        last = case.append(*[make_request(n) for n in range(10)])[-1]
    lose_the_account_of_the_last_stop(case)
    flip(case, last.log_offset + 19)  # the flag, which the body's CRC does not cover

    with ConfStore(tmp_path, {**with_crc, **given}) as case:
        end = last.log_offset + last.size if kept else last.log_offset
        assert case.store.max_log_offset == end


@wires("messageDelayLevel")
def test_recovery_makes_units_of_delayed_messages_with_the_same_delays(tmp_path):
    given = {"messageDelayLevel": "1s 7s 1m"}
    with ConfStore(tmp_path, given) as case:
        (stored,) = case.append(delayed_request(0, "T", level=2))
    lose_the_account_of_the_last_stop(case)
    shutil.rmtree(case.root / "consumequeue")

    with ConfStore(tmp_path, given) as case:
        (unit,) = case.store.units("SCHEDULE_TOPIC_XXXX", 1, 0, 1)
        assert unit.tag_hash == stored.store_ms + 7_000


@wires("dispatch")
@pytest.mark.parametrize(("given", "unit_count"), [({}, 1), ({"dispatch": "spark"}, 0)])
def test_queues_are_left_to_a_spark_job_if_it_dispatches(tmp_path, given, unit_count):
    with ConfStore(tmp_path, given) as case:
        case.store.append(make_request(0, "T", 0))
        case.store.wait_dispatched()

        assert case.store.max_offset("T", 0) == unit_count
        assert (case.root / "orbitmq.dispatch").exists() is (unit_count == 0)


@pytest.mark.parametrize(
    ("given", "host"),
    [
        ({"brokerIP1": "10.1.2.3"}, Host(b"\x0a\x01\x02\x03", 10911)),
        ({"brokerIP1": "10.1.2.3", "listenPort": 10921}, Host(b"\x0a\x01\x02\x03", 10921)),
    ],
)
def test_records_name_the_broker_that_stored_them(tmp_path, given, host):
    with ConfStore(tmp_path, given) as case:
        (stored,) = case.append(make_request(0))

        assert case.store.record_at(stored.log_offset).store_host == host
