"""In which order a store makes things durable: what speaks of something comes after it."""

import os
import threading
from collections.abc import Callable

import pytest

from conf_store import ConfStore, request_of
from orbitmq.errors import StoreFailedError
from orbitmq.format.checkpoint import decode as decode_checkpoint
from orbitmq.testing.builders import make_request
from orbitmq.testing.fake_clock import FakeClock
from store_parts import until

SEGMENT = 64 * 1024
FIRST, SECOND, THIRD = (f"commitlog/{n * SEGMENT:020}" for n in range(3))
SYNCS = ("sync_data", "sync_directory")


def steps(case: ConfStore, *operations: str) -> list[tuple[str, str]]:
    """Return what was done, in order; numbers of index files are left out."""
    return [
        (call.operation, "index" if call.path.startswith("index/") else call.path)
        for call in case.disk.calls
        if call.operation in operations
    ]


def test_a_store_is_marked_as_open_before_its_log_begins(tmp_path):
    (tmp_path / "store" / "commitlog").mkdir(parents=True)  # its own name needs no sync
    with ConfStore(tmp_path) as case:
        case.append(make_request(0))

        done = steps(case, *SYNCS, "allocate")
        marked = done.index(("sync_data", "abort"))
        assert done[marked + 1] == ("sync_directory", ".")
        assert done.index(("allocate", FIRST)) > marked + 1


def test_a_segment_is_on_disk_with_its_name_before_it_is_used(tmp_path):
    with ConfStore(tmp_path) as case:
        case.disk.forget()
        case.append(*[request_of(40 * 1024)] * 2)

        assert steps(case, *SYNCS, "allocate") == [
            ("sync_directory", "."),  # the directory itself is new
            ("allocate", FIRST),
            ("sync_data", FIRST),
            ("sync_directory", "commitlog"),
            ("allocate", SECOND),
            ("sync_data", SECOND),
            ("sync_directory", "commitlog"),
        ]


def test_segments_that_were_made_ahead_go_from_the_last_one_on(tmp_path):
    with ConfStore(tmp_path) as case:
        case.append(make_request(0))
        case.store.tick()
        case.disk.forget()

    removed = [path for _, path in steps(case, "remove") if path.startswith("commitlog")]
    assert removed == [THIRD, SECOND]


def test_a_clean_stop_is_marked_after_everything_else(tmp_path):
    with ConfStore(tmp_path) as case:
        case.append(make_request(0, "T", 0, keys="k"))
        case.disk.forget()

    done = steps(case, *SYNCS, "rename", "remove")
    order = [
        ("sync_data", FIRST),
        ("sync_data", "consumequeue/T/0/00000000000000000000"),
        ("sync_data", "index"),
        ("sync_data", "orbitmq.snapshot.tmp"),
        ("rename", "orbitmq.snapshot"),
        ("sync_data", "checkpoint"),
        ("remove", "abort"),
    ]
    places = [done.index(step) for step in order]
    assert places == sorted(places)
    assert done[-2:] == [("remove", "abort"), ("sync_directory", ".")]
    assert done[places[4] + 1] == ("sync_directory", ".")  # the snapshot has its name


def test_a_store_that_cannot_sync_its_log_at_the_end_stays_marked_as_open(tmp_path):
    case = ConfStore(tmp_path)
    case.append(make_request(0))
    case.disk.fail("sync_data", f"*/{FIRST}")
    case.disk.forget()

    with pytest.raises(StoreFailedError):
        case.store.close()

    assert (case.root / "abort").exists()
    assert steps(case, "rename") == []  # and no snapshot covers what may be lost


def test_a_new_checkpoint_has_its_name_before_anything_relies_on_it(tmp_path):
    with ConfStore(tmp_path) as case:
        done = steps(case, *SYNCS)

        assert done[done.index(("sync_data", "checkpoint")) + 1] == ("sync_directory", ".")


def test_queues_and_index_follow_only_when_the_deletion_of_segments_is_on_disk(tmp_path):
    given = {"mappedFileSizeConsumeQueue": 20, "maxIndexNum": 3, "deleteFileBatchMax": 2}
    with ConfStore(tmp_path, given) as case:
        for number in range(4):
            case.append(make_request(number, "T", 0, keys="k", body_bytes=40 * 1024))
        case.store.flush()
        old = case.clock.now_ms() / 1000 - 100 * 3600
        for segment in list(case.store._log.segments)[:-1]:
            os.utime(segment.path, (old, old))
        case.disk.forget()

        case.store.delete_expired_now()

        done = steps(case, "remove", "sync_directory")
        assert done[:3] == [
            ("remove", FIRST),
            ("remove", SECOND),
            ("sync_directory", "commitlog"),
        ]
        assert {path.split("/")[0] for _, path in done[3:]} >= {"consumequeue", "index"}


def test_ext_units_are_on_disk_before_the_units_that_point_to_them(tmp_path):
    with ConfStore(tmp_path, {"enableConsumeQueueExt": True}) as case:
        case.append(make_request(0, "T", 0))
        case.disk.forget()

        case.store.flush()

        done = steps(case, "sync_data", "write_at")
        ext_synced = done.index(("sync_data", "consumequeue_ext/T/0/00000000000000000000"))
        assert ext_synced < done.index(("write_at", "consumequeue/T/0/00000000000000000000"))


# What the checkpoint says of the log


def physic_ms(case: ConfStore) -> int:
    return decode_checkpoint((case.root / "checkpoint").read_bytes()).physic_ms


def test_the_checkpoint_speaks_of_no_record_that_is_not_synced(tmp_path):
    with ConfStore(tmp_path) as case:
        stored_ms = case.append(make_request(0))[0].store_ms

        for _ in range(9):  # rounds that find too few pages to sync
            case.clock.advance(1000)
            case.store.tick()
        assert physic_ms(case) == 0
        for _ in range(2):
            case.clock.advance(1000)
            case.store.tick()

        assert physic_ms(case) == stored_ms


def during_sync(case: ConfStore, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Have something done once, while the log is being synced."""
    sync = case.disk.sync_data

    def sync_and_act(*args: object) -> None:
        monkeypatch.setattr(case.disk, "sync_data", sync)
        act()
        sync(*args)

    monkeypatch.setattr(case.disk, "sync_data", sync_and_act)


def test_a_record_that_comes_during_a_sync_is_not_counted_as_synced(tmp_path, monkeypatch):
    with ConfStore(tmp_path) as case:
        first = case.append(make_request(0))[0]
        case.clock.advance(5)
        during_sync(case, monkeypatch, lambda: case.store.append(make_request(1)))

        case.store.flush_log()

        assert case.store.flushed_offset == first.size
        assert case.store.max_log_offset > first.size
        case.clock.advance(1000)
        case.store.tick()
        assert physic_ms(case) == first.store_ms


# Nobody is forgotten who comes during a round


class StandingClock(FakeClock):
    """A clock that moves only when somebody waits for a moment: what comes every second never does."""

    def wait(self, event: threading.Event, milliseconds: float) -> bool:
        if milliseconds < 100:
            self.advance(max(0.0, milliseconds))
            return event.is_set()
        return super().wait(event, milliseconds)


def test_a_message_that_comes_during_a_round_of_dispatch_gets_a_round_of_its_own(tmp_path):
    with ConfStore(tmp_path, background=True, clock=StandingClock()) as case:
        store, more = case.store, [make_request(n, "T", 0) for n in range(1, 4)]
        store.on_dispatched(lambda _: store.append_nowait(more.pop()) if more else None)

        store.append_nowait(make_request(0, "T", 0))

        until(lambda: store.max_offset("T", 0) == 4)
        assert case.clock.monotonic_ms() < 1000  # no round came by time
