"""A power cut tears a record where no checksum looks: what is told apart from a message of that kind."""

import random
from pathlib import Path

import numpy as np
import pytest

from orbitmq.format.client_batch import ClientMessage, encode_client_batch
from orbitmq.format.columns import ScanOptions
from orbitmq.format.kernels import plain
from orbitmq.format.record import decode_record
from orbitmq.message import AppendRequest, AppendStatus, Host
from orbitmq.store.config import StoreConfig
from orbitmq.store.offline.repair import repair_store
from orbitmq.store.recovery.torn_records import NOWHERE, SECTOR_BYTES, first_torn
from orbitmq.store.store import MessageStore
from orbitmq.store.verify.check import check_store
from orbitmq.store.verify.findings import Kind

SEGMENT = 64 * 1024


def config_of(root: Path) -> StoreConfig:
    return StoreConfig(
        root=root, segment_bytes=SEGMENT, cq_file_bytes=400, index_slots=50, index_items=100
    )


def request_of(properties: bytes, *, body: bytes = b"body", topic: str = "TopicTest"):
    return AppendRequest(topic, 0, body, properties, born_ms=1, born_host=Host(b"\x7f\0\0\1", 1))


def properties_of(length: int) -> bytes:
    """Return properties without a zero byte, of this length."""
    return (b"name\x01" + b"v" * length)[: length - 1] + b"\x02"


def write(root: Path, requests) -> list:
    """Append these; leave the store as a killed process does. Return the results."""
    config = config_of(root)
    with MessageStore.open(config, background=False) as store:
        results = [store.append(request) for request in requests]
        assert {result.status for result in results} == {AppendStatus.PUT_OK}
        store.flush()
    config.layout().abort.touch()
    return results


def change(root: Path, start: int, end: int) -> None:
    """Put zeros in place of bytes of the log."""
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[start:end] = bytes(end - start)
    path.write_bytes(data)


def forget_snapshot(root: Path) -> None:
    """Let the store look as if the last records were appended after the last snapshot."""
    (root / "orbitmq.snapshot").unlink()


def sectors(start: int, end: int) -> list[tuple[int, int]]:
    first = start // SECTOR_BYTES * SECTOR_BYTES
    return [(max(at, start), min(at + SECTOR_BYTES, end)) for at in range(first, end, SECTOR_BYTES)]


@pytest.mark.parametrize("last_bytes", [1, 10, 300])
def test_a_torn_last_record_of_ours_is_cut(tmp_path, last_bytes):
    results = write(tmp_path, [request_of(properties_of(600)) for _ in range(5)])
    last = results[-1]
    change(tmp_path, last.log_offset + last.size - last_bytes, last.log_offset + last.size)
    forget_snapshot(tmp_path)

    with MessageStore.open(config_of(tmp_path), background=False) as store:
        assert store.max_log_offset == last.log_offset
        assert store.max_offset("TopicTest", 0) == 4
        assert store.recovery_report.kept


def test_check_and_a_dry_repair_say_what_opening_will_do(tmp_path):
    results = write(tmp_path, [request_of(properties_of(600)) for _ in range(5)])
    last = results[-1]
    change(tmp_path, last.log_offset + last.size - 3, last.log_offset + last.size)
    settings = {
        "mappedFileSizeCommitLog": str(SEGMENT),
        "mappedFileSizeConsumeQueue": "400",
        "maxHashSlotNum": "50",
        "maxIndexNum": "100",
    }

    report = check_store(tmp_path, settings)
    planned = repair_store(tmp_path, settings, dry_run=True).plan

    assert Kind.TAIL in {finding.kind for finding in report.errors}
    assert [repair.start for repair in planned.repairs] == [last.log_offset]
    assert planned.end_offset == last.log_offset


def test_a_torn_record_between_others_is_filled(tmp_path):
    results = write(tmp_path, [request_of(properties_of(600)) for _ in range(5)])
    torn = results[2]
    change(tmp_path, torn.log_offset + torn.size - 3, torn.log_offset + torn.size)
    forget_snapshot(tmp_path)

    with MessageStore.open(config_of(tmp_path), background=False) as store:
        assert store.max_log_offset == results[-1].log_offset + results[-1].size
        assert store.record_at(torn.log_offset).is_filler
        assert store.max_offset("TopicTest", 0) == 5


def test_a_torn_record_proves_nothing_about_what_lies_before_it(tmp_path):
    results = write(tmp_path, [request_of(properties_of(600)) for _ in range(5)])
    change(tmp_path, results[3].log_offset, results[3].log_offset + 50)
    end = results[4].log_offset + results[4].size
    change(tmp_path, end - 3, end)
    forget_snapshot(tmp_path)

    with MessageStore.open(config_of(tmp_path), background=False) as store:
        assert store.max_log_offset == results[3].log_offset


def test_the_first_message_of_a_new_store_is_protected_too(tmp_path):
    config = config_of(tmp_path)
    store = MessageStore.open(config, background=False)
    result = store.append(request_of(properties_of(100)))
    # Nothing but the log reaches the disk from here on; the process dies.
    kept = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    store.close()
    for path in tmp_path.iterdir():
        if path.is_file():
            path.unlink()
    for path, data in kept.items():
        path.write_bytes(data)
    assert (tmp_path / "abort").exists()
    change(tmp_path, result.size - 5, result.size)

    with MessageStore.open(config, background=False) as store:
        assert store.max_log_offset == 0


def test_a_record_that_a_java_broker_may_have_written_stays(tmp_path):
    results = write(tmp_path, [request_of(properties_of(600)) for _ in range(5)])
    last = results[-1]
    end = last.log_offset + last.size
    change(tmp_path, end - 3, end)
    (tmp_path / "checkpoint").unlink()

    with MessageStore.open(config_of(tmp_path), background=False) as store:
        assert store.max_log_offset == end
        ours = store.append(request_of(properties_of(600)))
    (tmp_path / "abort").touch()
    change(tmp_path, ours.log_offset + ours.size - 3, ours.log_offset + ours.size)
    forget_snapshot(tmp_path)

    # What we appended behind it is ours, and that is known; what lies before is still not.
    with MessageStore.open(config_of(tmp_path), background=False) as store:
        assert store.max_log_offset == end
        assert store.max_offset("TopicTest", 0) == 5


@pytest.mark.parametrize("seed", range(40))
def test_every_loss_of_sectors_is_noticed(tmp_path, seed):
    """Sectors of the last record are lost in every way that matters; what passes is the record itself."""
    chance = random.Random(seed)
    lengths = [chance.choice((0, 1, 100, 255, 256, 512, 1024, 3000)) for _ in range(4)]
    results = write(
        tmp_path,
        [
            request_of(
                properties_of(length) if length else b"",
                body=chance.randbytes(chance.choice((0, 3, 400, 2000))),
                topic="T" * chance.choice((1, 20, 127)),
            )
            for length in lengths
        ],
    )
    last = results[-1]
    path = tmp_path / "commitlog" / f"{0:020d}"
    whole = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    end = last.log_offset + last.size
    options = ScanOptions(check_crc=True)
    parts = sectors(last.log_offset, end)
    losses = [[part] for part in parts] + [parts[n:] for n in range(len(parts))]
    losses += [[part for part in parts if chance.random() < 0.5] for _ in range(30)]
    for loss in losses:
        data = whole.copy()
        for start, stop in loss:
            data[start:stop] = 0
        rows = plain().scan(data, last.log_offset, end, 0, options).rows
        if len(rows) and first_torn(data, rows, 0) is None:
            assert (data == whole).all(), loss
        assert first_torn(data, rows, NOWHERE) is None


def test_whole_records_are_never_torn(tmp_path):
    chance = random.Random(7)
    requests = []
    for number in range(200):
        properties = bytes(chance.choice(b"\0\0\0\1\2ab") for _ in range(number * 5))
        requests.append(request_of(properties, body=bytes(number)))
    write(tmp_path, requests)

    forget_snapshot(tmp_path)
    with MessageStore.open(config_of(tmp_path), background=False) as store:
        assert not store.recovery_report.repairs
        assert store.max_offset("TopicTest", 0) == 200


def test_properties_that_end_with_a_zero_get_a_separator(tmp_path):
    with MessageStore.open(config_of(tmp_path), background=False) as store:
        store.append(request_of(b""))  # so that the next ones may take the fast path
        odd = b"a\x01b\0"
        batch = encode_client_batch([ClientMessage(b"1", odd), ClientMessage(b"2")])
        request = request_of(odd)
        results = [
            store.append(request),
            store.append(request),
            *store.append_many([request, request]),
            *store.append_client_batch(request_of(b"", body=batch)),
            *store.append_client_batch(request_of(odd, body=batch)),
        ]
        assert {result.status for result in results} == {AppendStatus.PUT_OK}
        for result in results:
            raw = store._log.read(result.log_offset, result.size)
            record = decode_record(raw)
            assert not record.properties.endswith(b"\0")
            if record.properties:
                assert record.property_map == {"a": "b\0"}


@pytest.mark.parametrize("count", [510, 511])
def test_properties_with_a_long_row_of_zeros_are_refused(tmp_path, count):
    properties = b"name\x01" + bytes(count) + b"x\x02"
    wanted = AppendStatus.PUT_OK if count == 510 else AppendStatus.MESSAGE_ILLEGAL
    with MessageStore.open(config_of(tmp_path), background=False) as store:
        store.append(request_of(b""))  # now the fast path knows topic and host
        batch = encode_client_batch([ClientMessage(b"1", properties), ClientMessage(bytes(2000))])
        results = [
            store.append(request_of(properties)),
            *store.append_many([request_of(properties)]),
            *store.append_client_batch(request_of(b"", body=batch)),
            *store.append_client_batch(request_of(b"a\x01b\x02", body=batch)),
        ]
        assert {result.status for result in results} == {wanted}
        assert store.append(request_of(b"", body=bytes(2000))).status is AppendStatus.PUT_OK
