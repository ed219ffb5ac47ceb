"""The snapshot of queues and index."""

from pathlib import Path

import pytest

from orbitmq.files.disk import Disk
from orbitmq.format.snapshot import QueueKind, Snapshot, decode
from orbitmq.message import QueueType
from orbitmq.store.snapshot import SnapshotFile, capture, encode_capture
from orbitmq.testing.builders import mixed_requests
from queue_world import LogBuilder, make_world, small_layout
from snapshot_bytes import encode_snapshot as encode


def test_every_queue_of_every_family_and_every_index_file_is_in_it(tmp_path: Path) -> None:
    builder = LogBuilder(1 << 17).add_all(mixed_requests(100))
    world = make_world(
        small_layout(tmp_path, segment_bytes=1 << 17),
        builder.log(),
        with_ext=True,
        topic_type=lambda topic: QueueType.BATCH if topic == "LogTopic" else QueueType.SIMPLE,
    )
    world.service.dispatch_now()

    snapshot = decode(encode_capture(capture(world.dispatcher, builder.end), world.queues.names, 9))

    assert (snapshot.generation, snapshot.dispatched_offset) == (9, builder.end)
    assert world.ext is not None
    for state in snapshot.queues:
        queues = world.queues if state.kind == QueueKind.SIMPLE else world.batch_queues
        number = queues.find(state.topic, state.queue_id)
        assert state.min_offset == queues.min_offset(number)
        assert state.next_offset == queues.next_offset(number)
        assert state.end_log_offset == queues.end_log_offset(number)
        if state.kind == QueueKind.SIMPLE:
            assert state.ext_end == world.ext.end(number)
    assert {state.kind for state in snapshot.queues} == set(QueueKind)
    assert len(snapshot.queues) == len(world.queues.names)
    assert [state.name for state in snapshot.index_files] == world.index.names


def test_a_snapshot_is_replaced_as_a_whole_and_read_back(tmp_path: Path) -> None:
    file = SnapshotFile(tmp_path / "orbitmq.snapshot", Disk())
    assert file.load() is None

    for generation in (1, 2):
        file.save(encode(Snapshot(generation, generation * 100)))

    assert file.load() == Snapshot(2, 200, [], [])
    assert [path.name for path in tmp_path.iterdir()] == ["orbitmq.snapshot"]


def test_a_damaged_snapshot_counts_as_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = SnapshotFile(tmp_path / "orbitmq.snapshot", Disk())
    file.save(encode(Snapshot(1, 100)))
    data = bytearray(file.path.read_bytes())
    data[9] ^= 1
    file.path.write_bytes(data)

    assert file.load() is None
    assert "CRC" in caplog.text
