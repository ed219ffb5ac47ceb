"""Broken bytes into every decoder: a value or a FormatError, and nothing else.

Inputs are golden bytes with random changes, and random bytes. The seed is fixed: a failure comes again.
"""

import random
import struct

import pytest

from golden_bytes import files, records
from golden_stores import STORES, rows
from orbitmq.errors import FormatError
from orbitmq.format import batch_unit, checkpoint, cq_unit, snapshot
from orbitmq.format.client_batch import decode_client_batch, encode_client_batch
from orbitmq.format.cq_ext_unit import decode_ext_unit, ext_offset
from orbitmq.format.index_file import decode_entry, decode_header
from orbitmq.format.message_id import decode_offset_id, decode_unique_id
from orbitmq.format.properties import decode_properties, find_property, remove_property
from orbitmq.format.property_crc import property_crc_matches, ready_for_crc
from orbitmq.format.record import decode_blank, decode_record, encode_record, store_ms_at
from orbitmq.format.segment_name import parse_segment_name
from rounds import rounds
from snapshot_bytes import encode_snapshot

pytestmark = pytest.mark.fuzz

ROUNDS = rounds(40_000)  # per family of decoders; there are eight
WILD_INTS = (-1, 0, 1, 7, 8, 90, 91, 127, 128, 255, 32767, 32768, 65535, 2**31 - 1, -(2**31))


def mutated(rng, raw):
    """Return the bytes with one to three random changes."""
    data = bytearray(raw)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(7):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(data):
                data[at] = rng.randrange(256)
            case 2:
                data[at : at + 4] = struct.pack(">i", rng.choice(WILD_INTS))
            case 3:
                data[at : at + 2] = struct.pack(">H", rng.choice(WILD_INTS) & 0xFFFF)
            case 4:
                del data[at:]
            case 5:
                data[at:at] = rng.randbytes(rng.randrange(9))
            case _:
                del data[at : at + rng.randrange(9)]
    return bytes(data)


def inputs(seed, samples):
    """Yield ROUNDS inputs: nine in ten are changed samples, the rest random bytes."""
    rng = random.Random(seed)
    for _ in range(ROUNDS):
        if rng.random() < 0.9:
            yield rng, mutated(rng, rng.choice(samples))
        else:
            yield rng, rng.randbytes(rng.randrange(200))


def attempt(decoder, *arguments, **options):
    """Return the decoder's value, None for a FormatError. Any other exception fails the test."""
    try:
        return decoder(*arguments, **options)
    except FormatError:
        return None


def golden_records():
    found = []
    for store in STORES:
        some = [raw for _, raw in records(store, rows(store, "record")[::7])]
        found += [raw for raw in some if len(raw) < 2000]
    return found


def test_records():
    survived = 0
    for rng, raw in inputs(1, golden_records()):
        position = rng.choice((0, 0, 0, 1, -1, len(raw)))
        record = attempt(decode_record, raw, position, check_crc=rng.random() < 0.3)
        attempt(store_ms_at, raw, position)
        decode_blank(raw, position)
        property_crc_matches(raw)
        if record is not None:
            survived += 1
            assert 91 <= record.size <= len(raw) - position
            assert len(record.body) + len(record.properties) < record.size
            _ = record.property_map, record.keys, record.tags, record.is_filler, record.offset_id

    assert ROUNDS / 40 < survived < ROUNDS  # the changes are neither too wild nor too tame


def test_records_whose_crc_is_right_are_made_again():
    survived = 0
    for _, raw in inputs(2, golden_records()):
        record = attempt(decode_record, raw)
        if record is None or "\ufffd" in record.topic:
            continue
        again = encode_record(
            record.to_request(),
            log_offset=record.log_offset,
            queue_offset=record.queue_offset,
            store_ms=record.store_ms,
            store_host=record.store_host,
            version=record.version,
        )
        assert again == raw[: record.size]
        survived += 1

    assert survived > ROUNDS / 40


def test_properties():
    samples = [row["propertiesString"].encode() for row in rows("mixed", "record")[::5]]
    for rng, raw in inputs(3, samples):
        name = rng.choice(("TAGS", "KEYS", "UNIQ_KEY", "__CRC32#", "WAIT"))
        found = decode_properties(raw)
        assert find_property(raw, name) == found.get(name)
        rest = decode_properties(remove_property(raw, name))
        assert rest == {key: value for key, value in found.items() if key != name}
        ready = ready_for_crc(raw)
        assert not ready or ready.endswith(b"\x02")


def test_queue_units():
    simple = list(files("mixed", "consumequeue").values())[::10]
    batch = list(files("batchcq", "batchconsumequeue").values())
    ext = list(files("ext", "consumequeue_ext").values())
    samples = [data[at : at + 92] for data in simple + batch + ext for at in (0, 20, 46)]
    for rng, raw in inputs(4, samples):
        position = rng.choice((0, 0, 1, 20, 46, -1, len(raw)))
        for decoder in (cq_unit.decode_unit, batch_unit.decode_unit, decode_ext_unit):
            unit = attempt(decoder, raw, position)
            if unit is not None:
                assert unit.encode() == raw[position : position + len(unit.encode())]
        attempt(cq_unit.decode_units, raw)
        attempt(batch_unit.decode_units, raw)
        attempt(ext_offset, rng.randrange(-(2**64), 2**64))


def test_index_files():
    samples = [data[:200] for data in files("mixed", "index").values()]
    for rng, raw in inputs(5, samples):
        header = attempt(decode_header, raw)
        assert header is None or header.next_item >= 1
        attempt(decode_entry, raw, rng.randrange(-5, 220))


def test_client_batches():
    bodies = [
        raw.body
        for raw in (
            decode_record(data) for _, data in records("batchcq", rows("batchcq", "record"))
        )
        if raw.sys_flag & 0x80
    ]
    survived = 0
    for _, raw in inputs(6, bodies):
        batch = attempt(decode_client_batch, raw)
        if batch is not None:
            survived += 1
            fixed = encode_client_batch(batch)
            assert len(fixed) == len(raw)

    assert survived > ROUNDS / 40


def test_checkpoints_and_snapshots():
    page = checkpoint.encode(checkpoint.Checkpoint(1, 2, 3, 4, 5, checkpoint.Extension(6, 7, 8, 9)))
    queues = [
        snapshot.QueueState(snapshot.QueueKind(n % 2), f"T{n // 3}", n % 3, 0, n, n)
        for n in range(9)
    ]
    index_files = [snapshot.IndexState("20261115185321254", 400, 9)]
    whole = encode_snapshot(snapshot.Snapshot(3, 99, queues, index_files))
    for rng, raw in inputs(7, [page, whole]):
        found = attempt(checkpoint.decode, raw)
        assert found is None or len(raw) >= 4096
        attempt(snapshot.decode, raw)
        # With its CRC made right again, the other checks have to hold.
        signed = raw[:-4] + snapshot.full_crc32(raw[:-4]).to_bytes(4, "big")
        taken = attempt(snapshot.decode, signed)
        if taken is not None and rng.random() < 0.1:
            assert len(encode_snapshot(taken)) <= len(signed)


def test_names_and_ids():
    samples = [row["offsetMsgId"].encode() for row in rows("mixed", "record")[::50]]
    samples += [b"00000000001073741824", b"0" * 56]
    for _, raw in inputs(8, samples):
        text = raw.decode("utf-8", "replace")
        offset = parse_segment_name(text)
        assert offset is None or 0 <= offset < 2**63
        found = attempt(decode_offset_id, text)
        assert found is None or found[1] >= 0
        attempt(decode_unique_id, text)
