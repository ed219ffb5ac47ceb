"""What the encoding kernels promise, asked of both forms."""

import struct

import numpy as np
import pytest

from kernel_cases import STORE_MS, append_rows, batch_message
from orbitmq.errors import FormatError
from orbitmq.format.columns import as_bytes_array
from orbitmq.format.kernels import Kernels
from orbitmq.format.record import decode_record


@pytest.mark.parametrize("common", [{"version": 0}, {"version": 3}])
def test_there_is_no_record_of_another_version(kernels: Kernels, common: dict[str, int]) -> None:
    with pytest.raises(FormatError):
        encode_batch(kernels, batch_message(b"x"), **common)


@pytest.mark.parametrize(
    ("topic", "version", "fits"),
    [
        (b"t" * 127, 1, True),
        (b"t" * 128, 1, False),
        (b"t" * 32_767, 2, True),
        (b"t" * 32_768, 2, False),
    ],
)
def test_a_topic_has_to_fit_the_version_of_its_record(
    kernels: Kernels, topic: bytes, version: int, fits: bool
) -> None:
    batch, shared = as_bytes_array(batch_message(b"x")), append_rows({"version": version})
    if fits:
        out = np.zeros(40_000, dtype=np.uint8)
        kernels.encode_client_batch(out, 0, 0, 0, shared, topic, batch, b"")
        assert decode_record(out).topic == topic.decode()
    else:
        with pytest.raises(FormatError):
            kernels.client_batch_sizes(topic, batch, b"", shared)


@pytest.mark.parametrize("sys_flag", [0x00, 0x10, 0x20, 0x30])
def test_hosts_are_as_long_as_the_flag_says(kernels: Kernels, sys_flag: int) -> None:
    shared = append_rows({"sys_flag": sys_flag})
    hosts = bytes(range(20)), bytes(range(100, 120))
    shared["born_host"], shared["store_host"] = map(np.void, hosts)
    out = np.zeros(200, dtype=np.uint8)
    batch = as_bytes_array(batch_message(b"x"))

    kernels.encode_client_batch(out, 0, 0, 0, shared, b"T", batch, b"")

    record = decode_record(out)
    assert record.born_host.packed() == hosts[0][: 20 if sys_flag & 0x10 else 8]
    assert record.store_host.packed() == hosts[1][: 20 if sys_flag & 0x20 else 8]


@pytest.mark.parametrize(("room", "position"), [(-1, 0), (0, 1), (0, -1), (10, 10**9)])
def test_encode_refuses_when_there_is_no_room(kernels: Kernels, room: int, position: int) -> None:
    batch = as_bytes_array(batch_message(b"body") * 2)
    needed = 2 * (91 + len(b"bodyT"))
    out = np.zeros(needed + room, dtype=np.uint8)
    with pytest.raises(FormatError):
        kernels.encode_client_batch(out, position, 0, 0, append_rows({}), b"T", batch, b"")
    assert not out.any()


def test_nothing_is_written_beside_the_records(kernels: Kernels) -> None:
    batch = as_bytes_array(batch_message(b"one") + batch_message(b"two"))
    out = np.full(1000, 0xEE, dtype=np.uint8)

    sizes = kernels.encode_client_batch(out, 10, 0, 0, append_rows({}), b"T", batch, b"")

    assert set(out[:10]) == set(out[10 + sizes.sum() :]) == {0xEE}


def encode_batch(
    kernels: Kernels, batch: bytes, extra: bytes = b"", *, property_crc: bool = False, **common: int
) -> list:
    shared, array = append_rows(common), as_bytes_array(bytearray(batch))
    sizes = kernels.client_batch_sizes(b"T", array, extra, shared, property_crc=property_crc)
    out = np.zeros(int(sizes.sum()), dtype=np.uint8)
    written = kernels.encode_client_batch(
        out, 0, 900, STORE_MS, shared, b"T", array, extra, property_crc=property_crc
    )
    assert written.tolist() == sizes.tolist()
    ends = np.cumsum(sizes)
    return [
        decode_record(out, int(end - size), check_property_crc=property_crc)
        for size, end in zip(sizes, ends, strict=True)
    ]


def test_a_client_batch_becomes_records_with_following_queue_offsets(kernels: Kernels) -> None:
    batch = batch_message(b"one", b"A\x01b\x02", 5) + batch_message(b"") + batch_message(b"three")
    records = encode_batch(kernels, batch, queue_offset=40, queue_id=2, born_ms=77)
    assert [record.body for record in records] == [b"one", b"", b"three"]
    assert [record.queue_offset for record in records] == [40, 41, 42]
    assert [record.flag for record in records] == [5, 0, 0]
    assert {(record.queue_id, record.born_ms, record.topic) for record in records} == {(2, 77, "T")}
    assert [record.log_offset for record in records] == [
        900,
        900 + records[0].size,
        900 + records[0].size + records[1].size,
    ]


@pytest.mark.parametrize("property_crc", [False, True])
@pytest.mark.parametrize(
    ("own", "extra", "merged"),
    [
        (b"A\x01b\x02", b"C\x01d\x02", b"A\x01b\x02C\x01d\x02"),
        (b"A\x01b", b"C\x01d\x02", b"A\x01b\x02C\x01d\x02"),
        (b"", b"C\x01d\x02", b"C\x01d\x02"),
        (b"A\x01b", b"", b"A\x01b"),
        (b"A\x01b", b"C\x01d", b"A\x01b\x02C\x01d"),
        (b"", b"", b""),
    ],
)
def test_properties_of_the_request_follow_the_message_s_own(
    kernels: Kernels, own: bytes, extra: bytes, merged: bytes, property_crc: bool
) -> None:
    (record,) = encode_batch(kernels, batch_message(b"x", own), extra, property_crc=property_crc)
    if property_crc:
        closed = merged if merged.endswith(b"\x02") or not merged else merged + b"\x02"
        assert record.properties[:-20] == closed
        assert record.properties[-20:].startswith(b"__CRC32#\x01")
    else:
        assert record.properties == merged


@pytest.mark.parametrize(
    "broken",
    [
        batch_message(b"x")[:-1],
        batch_message(b"x")[:19],
        batch_message(b"x") + b"\0",
        struct.pack(">iiiiih", 22, 0, 0, 0, -1, 0),
        struct.pack(">iiiiih", 22, 0, 0, 0, 2**31 - 1, 0),
        struct.pack(">iiiiih", 22, 0, 0, 0, 0, -1),
        struct.pack(">iiiiih", 22, 0, 0, 0, 0, 100),
    ],
)
def test_a_broken_batch_is_refused_before_anything_is_written(
    kernels: Kernels, broken: bytes
) -> None:
    batch, common = as_bytes_array(bytearray(batch_message(b"good") + broken)), append_rows({})
    out = np.zeros(1000, dtype=np.uint8)
    with pytest.raises(FormatError):
        kernels.client_batch_sizes(b"T", batch, b"", common)
    with pytest.raises(FormatError):
        kernels.encode_client_batch(out, 0, 0, 0, common, b"T", batch, b"")
    assert not out.any()


def test_a_batch_whose_merged_properties_are_too_long_is_refused(kernels: Kernels) -> None:
    batch = as_bytes_array(batch_message(b"x", b"p" * 32_000))
    with pytest.raises(FormatError):
        kernels.client_batch_sizes(b"T", batch, b"q" * 767, append_rows({}))
    assert len(kernels.client_batch_sizes(b"T", batch, b"q" * 766, append_rows({}))) == 1


def test_an_empty_batch_has_no_records(kernels: Kernels) -> None:
    assert encode_batch(kernels, b"") == []
