"""The buffers of the transient pool."""

import pytest

from orbitmq.store.log.transient_pool import TransientPool


@pytest.mark.feature("F60")
def test_a_pool_has_so_many_buffers_and_no_more():
    pool = TransientPool(5, 8192)
    buffers = [pool.borrow() for _ in range(5)]

    assert all(len(buffer) == 8192 for buffer in buffers)
    assert pool.borrow() is None
    assert pool.free_count == 0
    pool.give_back(buffers[0])
    assert pool.borrow() is buffers[0]
    for buffer in buffers:
        pool.give_back(buffer)
    pool.close()
