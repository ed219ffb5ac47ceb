"""A replica believes nothing that cannot be: it hangs up, says why, and its log is as it was."""

from pathlib import Path

import pytest

from async_run import until
from ha_world import (
    fake_primary,
    framed,
    log_bytes,
    primary,
    replica,
    send_many,
)
from live_broker import run_live
from orbitmq.format.ha_frame import BATCH_BYTES_MAX, HEADER


async def some_log(root: Path) -> bytes:
    async with primary(root / "other") as one:
        await send_many(one, 4)
        return log_bytes(one.context.store)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        pytest.param(lambda log: framed(1, log), "in the middle of a segment", id="no-start"),
        pytest.param(lambda log: framed(-1, log), "in the middle of a segment", id="negative"),
        pytest.param(lambda log: HEADER.pack(0, -1), "a frame of -1 bytes", id="negative-size"),
        pytest.param(
            lambda log: HEADER.pack(0, BATCH_BYTES_MAX + 1), "haTransferBatchSize", id="too-long"
        ),
        pytest.param(lambda log: HEADER.pack(0, 2**31 - 1), "haTransferBatchSize", id="longest"),
        pytest.param(lambda log: framed(0, bytes(200)), "no record starts with", id="no-record"),
    ],
)
def test_an_empty_replica_stays_empty(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: object, reason: str
) -> None:
    async def main() -> None:
        said = wrong(await some_log(tmp_path))  # type: ignore[operator]
        async with fake_primary(said) as fake, replica(tmp_path, fake.address) as ours:
            await until(lambda: reason in caplog.text)
            await until(lambda: fake.connections > 1)  # it tries again
            assert set(fake.reports) == {0}
            assert ours.context.store.replication.is_empty
            assert ours.context.store.max_log_offset == 0

    run_live(main)


def test_a_gap_a_repetition_and_a_wrong_heartbeat_end_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        log = await some_log(tmp_path)
        size = int.from_bytes(log[:4], "big")
        async with (
            fake_primary(framed(0, log[:size])) as fake,
            replica(tmp_path, fake.address, ha_heartbeat_ms=100) as ours,
        ):
            store = ours.context.store
            await until(lambda: store.max_log_offset == size)
            for number, said in enumerate(
                (framed(size + 1, log[size:]), framed(0, log), framed(size - 1, b""))
            ):
                caplog.clear()
                fake.said, wanted = said, number + 2
                await until(lambda: f"where {size} follows" in caplog.text)
                fake.said = b""
                await until(lambda wanted=wanted: fake.connections >= wanted)
                assert fake.reports[-1] == size
            assert log_bytes(store) == log[:size]
            # The right bytes, in two pieces.
            middle = size + 50
            fake.said = framed(size, log[size:middle]) + framed(middle, log[middle:])
            await until(lambda: store.max_log_offset == len(log))
            assert log_bytes(store) == log

    run_live(main, seconds=60)


def test_segments_of_another_size_are_refused_with_a_sentence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        half = {"segment_bytes": 128 * 1024}
        async with primary(tmp_path, half) as one:
            await send_many(one, 300)
            async with replica(tmp_path, one.ha_address) as ours:
                await until(lambda: "the same mappedFileSizeCommitLog" in caplog.text)
                store = ours.context.store
                assert 0 < store.max_log_offset < 128 * 1024
                assert log_bytes(store) == log_bytes(one.context.store)[: store.max_log_offset]

    run_live(main)


def test_a_replica_whose_log_the_primary_does_not_have_is_told_so_in_the_primarys_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with primary(tmp_path) as one:
            await send_many(one, 10)
            async with replica(tmp_path, one.ha_address) as ours:
                end = one.context.store.max_log_offset
                await until(lambda: ours.context.store.max_log_offset == end)
        async with primary(tmp_path / "new") as one, replica(tmp_path, one.ha_address) as ours:
            await until(lambda: "give the replica an empty store" in caplog.text)
            assert ours.context.store.max_log_offset == end

    run_live(main)
