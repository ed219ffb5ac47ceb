"""Packed bodies."""

import gzip
import zlib

import pytest

from orbitmq.errors import FormatError
from orbitmq.format.compression import FLAGS, Compression, compress, decompress

BODY = b"some text that repeats. " * 500


@pytest.mark.parametrize("kind", Compression)
def test_what_is_packed_can_be_unpacked(kind):
    packed = compress(BODY, kind, 5)

    assert len(packed) < len(BODY) // 10
    assert decompress(packed, FLAGS[kind]) == BODY


def test_without_the_flag_a_body_stays_as_it_is():
    assert decompress(b"\x78\x9c", 0x300) == b"\x78\x9c"


def test_older_clients_have_no_type_bits_and_some_write_gzip():
    assert decompress(zlib.compress(BODY), 0x1) == BODY
    assert decompress(gzip.compress(BODY), 0x1) == BODY


@pytest.mark.parametrize("kind", Compression)
def test_garbage_and_torn_bodies_are_errors(kind):
    packed = compress(BODY, kind, 5)

    for broken in (b"", b"garbage", packed[:-5], b"\0" + packed):
        with pytest.raises(FormatError):
            decompress(broken, FLAGS[kind])


@pytest.mark.parametrize("kind", Compression)
def test_a_body_that_would_fill_the_memory_is_refused(kind):
    packed = compress(bytes(1_000_000), kind, 5)

    with pytest.raises(FormatError, match="more than"):
        decompress(packed, FLAGS[kind], bytes_max=999_999)
    assert len(decompress(packed, FLAGS[kind], bytes_max=1_000_000)) == 1_000_000
