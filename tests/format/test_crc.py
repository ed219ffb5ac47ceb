"""The checksums of records and of our own files."""

import zlib

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.format.crc import full_crc32, masked_crc32


def test_known_checksums():
    assert masked_crc32(b"") == 0
    assert masked_crc32(b"Hello RocketMQ") == 1774740973


@given(st.binary())
def test_both_forms_agree_with_zlib(data):
    assert full_crc32(data) == zlib.crc32(data)
    assert masked_crc32(memoryview(data)) == zlib.crc32(data) & 0x7FFFFFFF
