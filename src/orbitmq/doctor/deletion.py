"""Which segments of a store go next, when and why, and what groups have not read of them."""

from collections.abc import Iterable, Iterator, Sequence

from orbitmq.doctor.disk import DiskUse, Limits, Loss, NextDeletion, next_delete_hour
from orbitmq.doctor.queue_files import QueueFacts
from orbitmq.errors import StoreError
from orbitmq.files.layout import QueueKind
from orbitmq.store.config import StoreConfig
from orbitmq.store.offline.group_places import GroupPlace, read_places
from orbitmq.store.offline.reader import OfflineStore


def places_of(store: OfflineStore) -> list[GroupPlace]:
    """Return all offsets of groups; none if the file cannot be read (a check names it)."""
    try:
        return read_places(store.layout)
    except StoreError:
        return []


def next_deletion(
    store: OfflineStore,
    config: StoreConfig,
    disks: Sequence[DiskUse],
    *,
    log_end: int,
    now_ms: int,
) -> NextDeletion | None:
    """Return what goes next; None: no segment is full yet."""
    files = [file for file in store.layout.list_segments() if file.length]
    full = [f for f in files[:-1] if f.base_offset + store.layout.segment_bytes <= log_end]
    if not full:
        return None
    expires = [f.path.stat().st_mtime_ns // 1_000_000 + config.retention_ms for f in full]
    limits, used = Limits.of(config), min(disk.used_per_cent for disk in disks)
    if used > limits.forced and config.clean_forced:
        at_ms, count = now_ms, min(len(full), config.delete_batch_max)
        why = f"the disk is over {limits.forced} %"
    else:
        at_ms = max(expires[0], now_ms)
        why = f"the disk is over {limits.clean} %"
        if used <= limits.clean:
            at_ms = next_delete_hour(config.delete_hours, at_ms)
            why = "its time to be kept (fileReservedTime) is over"
        count = sum(1 for _ in _while_expired(expires, at_ms))
    return NextDeletion(at_ms=at_ms, why=why, segments=count, first=full[0].path.name)


def _while_expired(expires: Iterable[int], at_ms: int) -> Iterator[int]:
    for one in expires:
        if one > at_ms:
            return
        yield one


def losses(
    store: OfflineStore,
    deletion: NextDeletion,
    queues: dict[tuple[str, int], QueueFacts],
    places: Iterable[GroupPlace],
) -> Iterator[Loss]:
    """Yield what each group has not read of the segments that go."""
    end = store.log.min_offset + deletion.segments * store.layout.segment_bytes
    for place in places:
        queue = queues.get((place.topic, place.queue_id))
        if queue is None or queue.kind is not QueueKind.SIMPLE:
            continue
        start, kept_from = max(place.offset, queue.min_offset), queue.offset_at(end)
        if start < kept_from:
            size = queue.stored_bytes(store, start, kept_from)
            yield Loss(
                group=place.group,
                topic=place.topic,
                queue_id=place.queue_id,
                messages=kept_from - start,
                bytes=size,
            )
