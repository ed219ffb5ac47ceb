"""What recovery keeps of a log, and how it mends bad places: pure functions over bytes."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from golden_stores import damage, rows, settings, torn_variants, unpack
from log_builder import FIRST_MS, LogBuilder
from orbitmq.files.disk import Disk
from orbitmq.files.layout import guess_layout
from orbitmq.format.columns import Mark
from orbitmq.format.kernels import compiled, plain
from orbitmq.format.record import STORE_MS_AT, decode_blank, decode_record
from orbitmq.log_read import Chunk, LogView, open_log
from orbitmq.message import QueueType, SysFlag
from orbitmq.store.recovery.lost_records import PADDING_TOPIC, LostRecord
from orbitmq.store.recovery.plan import Note, Repair, RepairKind, UnitsBetween, WalkOptions
from orbitmq.store.recovery.walk import WalkResult, plan_recovery, walk

OPTIONS = WalkOptions(kernels=plain())


def plan(builder: LogBuilder, options: WalkOptions = OPTIONS) -> WalkResult:
    return plan_recovery(builder.view(), builder.base_offset, options)


def summary(found: WalkResult) -> tuple[int, int, list[Repair], list[Note]]:
    return found.end_offset, found.records, found.repairs, found.notes


def mend(builder: LogBuilder, found: WalkResult) -> None:
    """Do to the bytes what the plan says."""
    for repair in found.repairs:
        if repair.zero_rest:
            builder.zero(repair.start, repair.end)
        builder.overwrite(repair.start, repair.data)
        for path in reversed(repair.removed):
            assert int(path.name) == builder.base_offset + builder.segment_bytes * (
                len(builder.segments) - 1
            )
            builder.segments.pop()


def only_repair(found: WalkResult) -> Repair:
    (repair,) = found.repairs
    return repair


def records_at(log: LogView) -> dict[int, bytes]:
    """Return every record that a walk hands out, by its place."""
    found = {}
    for item in walk(log, log.min_offset, OPTIONS, WalkResult(log.min_offset)):
        if isinstance(item, Chunk):
            for row in item.rows:
                at = int(row["body_at"]) - 88
                found[int(row["log_offset"])] = item.buffer[at : at + int(row["size"])].tobytes()
    return found


def three_queues(count: int = 30, **more: int) -> LogBuilder:
    builder = LogBuilder(**more)
    for number in range(count):
        builder.append("T" if number % 3 else "Other", number % 2, b"body" * (5 + number % 7))
    return builder


def test_a_good_log_needs_nothing_and_ends_behind_its_last_record() -> None:
    builder = three_queues()

    found = plan(builder)

    assert summary(found) == (builder.written, 30, [], [])


def test_an_empty_log_ends_where_it_starts() -> None:
    assert summary(plan(LogBuilder())) == (0, 0, [], [])


def test_a_segment_of_zeros_is_an_empty_log() -> None:
    builder = LogBuilder(segments=[bytearray(4096)])

    assert summary(plan(builder)) == (0, 0, [], [])


@pytest.mark.parametrize("kept_bytes", [4, 8, 40, 87, 100, 110])
def test_a_torn_last_record_is_cut(kept_bytes: int) -> None:
    builder = three_queues(10)
    last = builder.records[-1]
    builder.zero(last.start + kept_bytes, last.end)

    found = plan(builder)
    repair = only_repair(found)

    assert (found.end_offset, found.records) == (last.start, 9)
    assert (repair.kind, repair.start, repair.zero_rest) == (RepairKind.CUT, last.start, True)


def test_a_torn_tail_takes_segments_without_a_valid_record_with_it() -> None:
    builder = three_queues(30)
    first_of_last = next(r for r in builder.records if r.start >= builder.segment_bytes)
    cut_at = next(r for r in builder.records if r.start > 2000)
    builder.zero(cut_at.start, builder.segment_bytes)
    for number in range(1, len(builder.segments)):
        builder.segments[number] = bytearray(b"\x17" * builder.segment_bytes)

    found = plan(builder)
    repair = only_repair(found)

    assert first_of_last.start == builder.segment_bytes
    assert found.end_offset == cut_at.start
    assert [path.name for path in repair.removed] == [
        f"{number * 4096:020d}" for number in range(1, len(builder.segments))
    ]


def test_prepared_segments_of_zeros_behind_the_end_go_without_a_fuss() -> None:
    builder = three_queues(5)
    builder.segments.append(bytearray(builder.segment_bytes))

    repair = only_repair(plan(builder))

    assert repair.kind is RepairKind.CUT
    assert not repair.zero_rest
    assert len(repair.removed) == 1


def test_a_damaged_body_in_the_middle_becomes_a_filler_in_its_place() -> None:
    builder = three_queues()
    bad = builder.records[10]
    builder.flip(bad.start + 95)

    found = plan(builder)
    repair = only_repair(found)
    filler = decode_record(repair.data)

    assert (found.end_offset, found.records) == (builder.written, 30)
    assert (repair.start, repair.end, len(repair.data)) == (bad.start, bad.end, len(bad.raw))
    assert filler.is_filler
    assert (filler.topic, filler.queue_id) == (bad.topic, bad.queue_id)
    assert (filler.queue_offset, filler.log_offset) == (bad.queue_offset, bad.start)
    assert filler.store_ms == decode_record(builder.records[9].raw).store_ms


def test_everything_behind_a_damaged_record_is_kept_and_a_second_look_finds_nothing() -> None:
    builder = three_queues()
    bad = builder.records[10]
    builder.flip(bad.start + 95)
    mend(builder, plan(builder))

    again = plan(builder)

    assert summary(again) == (builder.written, 30, [], [])
    kept = records_at(builder.view())
    assert all(kept[r.start] == r.raw for r in builder.records if r is not bad)


def test_a_record_of_zeros_is_found_by_the_gap_in_its_queue() -> None:
    builder = three_queues()
    bad = builder.records[10]
    builder.zero(bad.start, bad.end)

    repair = only_repair(plan(builder))
    filler = decode_record(repair.data)

    assert (filler.topic, filler.queue_id, filler.queue_offset) == (
        bad.topic,
        bad.queue_id,
        bad.queue_offset,
    )
    assert len(repair.data) == len(bad.raw)


def test_several_lost_records_share_the_place_and_every_queue_stays_whole() -> None:
    builder = three_queues()
    bad = builder.records[10:15]
    builder.zero(bad[0].start, bad[-1].end)

    repair = only_repair(plan(builder))

    lost = {(r.topic.encode(), r.queue_id, r.queue_offset) for r in bad}
    assert {(one.topic, one.queue_id, one.queue_offset) for one in repair.lost} == lost
    mend(builder, plan(builder))
    assert summary(plan(builder)) == (builder.written, 30, [], [])


def units_of(*known: LostRecord) -> UnitsBetween:
    """Queue files that know these records."""
    return lambda start, end: [lost for lost in known if start <= lost.start < end]


def test_units_of_the_queue_files_tell_place_and_size_of_lost_records() -> None:
    builder = three_queues()
    bad = builder.records[10:13]
    builder.zero(bad[0].start, bad[-1].end)
    units = units_of(
        *(
            LostRecord(r.topic.encode(), r.queue_id, r.queue_offset, r.start, len(r.raw))
            for r in bad
        )
    )

    repair = only_repair(plan(builder, WalkOptions(kernels=plain(), units_between=units)))

    assert [(one.start, one.size) for one in repair.lost] == [(r.start, len(r.raw)) for r in bad]
    at = 0
    for record in bad:
        filler = decode_record(repair.data, at)
        assert (filler.log_offset, filler.size) == (record.start, len(record.raw))
        assert filler.queue_offset == record.queue_offset
        at += filler.size


def test_a_lost_record_whose_queue_ends_there_is_known_from_its_unit() -> None:
    builder = three_queues(10)
    only = builder.append("Rare", 3)
    for _ in range(3):
        builder.append()
    builder.zero(only.start, only.end)
    units = units_of(LostRecord(b"Rare", 3, 0, only.start, len(only.raw)))

    repair = only_repair(plan(builder, WalkOptions(kernels=plain(), units_between=units)))

    assert [(one.topic, one.queue_id, one.queue_offset) for one in repair.lost] == [(b"Rare", 3, 0)]


def test_a_place_nobody_knows_anything_of_becomes_padding_without_a_unit() -> None:
    builder = three_queues(10)
    only = builder.append("Rare", 3)
    builder.append()
    builder.zero(only.start, only.end)

    repair = only_repair(plan(builder))
    filler = decode_record(repair.data)

    assert repair.lost == ()
    assert filler.topic == PADDING_TOPIC.decode()
    assert filler.sys_flag & SysFlag.TRANSACTION == SysFlag.ROLLBACK
    assert len(repair.data) == len(only.raw)


def test_a_lost_half_message_keeps_its_transaction_type_and_has_no_unit() -> None:
    builder = three_queues(10)
    half = builder.append("T", 0, sys_flag=SysFlag.PREPARED, queue_offset=0)
    builder.next_offsets["T", 0] = 3
    builder.append("Other", 5)
    builder.flip(half.start + 90)

    repair = only_repair(plan(builder))

    assert decode_record(repair.data).sys_flag == SysFlag.PREPARED


def test_a_lost_inner_batch_keeps_how_many_queue_offsets_it_takes() -> None:
    builder = LogBuilder()
    builder.append("B", 0)
    batch = builder.append("B", 0, b"12345678" * 20, INNER_NUM="7", INNER_BASE="1")
    builder.append("B", 0, queue_offset=8)
    builder.flip(batch.start + 90)

    filler = decode_record(only_repair(plan(builder)).data)

    assert filler.property_map["INNER_NUM"] == "7"
    assert filler.property_map["INNER_BASE"] == "1"


def numbers_lost(found: WalkResult) -> list[list[tuple[bytes, int, int]]]:
    """Return, for each bad place, the topics, first numbers and counts of what was lost there."""
    return [
        [(one.topic, one.queue_offset, one.batch_count) for one in repair.lost]
        for repair in found.repairs
    ]


def a_batch_of_seven() -> LogBuilder:
    builder = LogBuilder()
    builder.append("B", 0)
    batch = builder.append("B", 0, INNER_NUM="7", INNER_BASE="1")
    builder.zero(batch.start, batch.end)
    return builder


def test_what_a_batch_queue_lacks_is_one_filler() -> None:
    options = WalkOptions(kernels=plain(), topic_type=lambda _: QueueType.BATCH)

    builder = a_batch_of_seven()
    builder.append("B", 0, queue_offset=8)

    found = plan(builder, options)

    assert numbers_lost(found) == [[(b"B", 1, 7)]]
    assert decode_record(only_repair(found).data).property_map["INNER_NUM"] == "7"


def test_a_gap_for_which_a_place_has_no_room_is_left_in_another_queue() -> None:
    builder = a_batch_of_seven()
    builder.append("B", 0, queue_offset=8)

    assert numbers_lost(plan(builder)) == [[]]


def test_a_lost_batch_whose_unit_is_left_is_not_counted_again() -> None:
    builder = a_batch_of_seven()
    lost = builder.records[1]
    other = builder.append("Other", 0, b"room for more" * 10)
    builder.zero(other.start, other.end)
    builder.append("B", 0, queue_offset=8)

    def units(start: int, end: int) -> list[LostRecord]:
        return [LostRecord(b"B", 0, 1, lost.start, lost.end - lost.start, 7)]

    options = WalkOptions(
        kernels=plain(), units_between=units, topic_type=lambda _: QueueType.BATCH
    )
    found = plan(builder, options)

    assert numbers_lost(found) == [[(b"B", 1, 7)]]


def test_the_queue_that_goes_on_first_has_the_room() -> None:
    builder = LogBuilder()
    for topic in ("A", "Z"):
        builder.append(topic, 0)
    lost_of_z = builder.append("Z", 0)
    builder.append("Z", 0)
    lost_of_a = builder.append("A", 0)
    builder.append("A", 0)
    for lost in (lost_of_z, lost_of_a):
        builder.zero(lost.start, lost.end)

    assert numbers_lost(plan(builder)) == [[(b"Z", 1, 1)], [(b"A", 1, 1)]]


def test_what_one_place_has_no_room_for_is_filled_at_the_next() -> None:
    builder = LogBuilder()
    for _ in range(5):
        builder.append("T", 0)
        builder.append("Other", 0, b"body" * 100)
    for lost in (builder.records[4], builder.records[6]):
        builder.zero(lost.start, lost.end)

    assert numbers_lost(plan(builder)) == [[(b"T", 2, 1)], [(b"T", 3, 1)]]


def test_a_lost_blank_is_written_again_when_the_next_segment_goes_on() -> None:
    builder = three_queues(60)
    last = [r for r in builder.records if r.start < 4096][-1]
    builder.zero(last.end, last.end + 8)

    found = plan(builder)
    repair = only_repair(found)

    assert (repair.kind, repair.start) == (RepairKind.BLANK, last.end)
    assert decode_blank(repair.data) == 4096 - last.end
    assert found.end_offset == builder.written
    mend(builder, found)
    assert summary(plan(builder)) == (builder.written, 60, [], [])


def test_a_bad_record_before_the_blank_keeps_the_blank() -> None:
    builder = three_queues(60)
    last = [r for r in builder.records if r.start < 4096][-1]
    builder.zero(last.start + 4, last.end)

    repair = only_repair(plan(builder))

    assert (repair.kind, repair.start, repair.end) == (RepairKind.FILL, last.start, last.end)
    assert decode_record(repair.data).queue_offset == last.queue_offset


def test_a_bad_record_and_a_lost_blank_give_a_filler_and_a_blank() -> None:
    builder = three_queues(60)
    last = [r for r in builder.records if r.start < 4096][-1]
    builder.zero(last.start, 4096)

    found = plan(builder)
    repair = only_repair(found)

    filler = decode_record(repair.data)
    assert filler.queue_offset == last.queue_offset
    assert decode_blank(repair.data, filler.size) == 4096 - last.start - filler.size
    mend(builder, found)
    assert summary(plan(builder)) == (builder.written, 60, [], [])


def test_a_whole_lost_segment_is_bridged() -> None:
    builder = three_queues(90)
    assert len(builder.segments) >= 4
    builder.segments[1] = bytearray(4096)

    found = plan(builder)

    assert found.end_offset == builder.written
    lost = [one for repair in found.repairs for one in repair.lost]
    assert len(lost) == len([r for r in builder.records if 4096 <= r.start < 8192])
    mend(builder, found)
    assert summary(plan(builder)) == (builder.written, 90, [], [])


def test_a_record_with_a_wrong_stored_offset_stays_and_is_noted() -> None:
    builder = three_queues()
    odd = builder.records[10]
    builder.overwrite(odd.start + 28, (odd.start + 8).to_bytes(8, "big"))

    found = plan(builder)

    assert (found.end_offset, found.records, found.repairs) == (builder.written, 30, [])
    assert [note.log_offset for note in found.notes] == [odd.start]


def test_a_last_record_with_a_wrong_stored_offset_stays_if_zeros_follow() -> None:
    builder = three_queues()
    odd = builder.records[-1]
    builder.overwrite(odd.start + 28, (odd.start + 8).to_bytes(8, "big"))

    assert plan(builder).end_offset == builder.written


def test_a_last_record_with_a_wrong_stored_offset_goes_if_junk_follows() -> None:
    builder = three_queues()
    odd = builder.records[-1]
    builder.overwrite(odd.start + 28, (odd.start + 8).to_bytes(8, "big"))
    builder.overwrite(odd.end, b"junk" * 10)

    assert plan(builder).end_offset == odd.start


def test_records_of_an_earlier_life_do_not_prove_that_the_log_goes_on() -> None:
    old = three_queues(20)
    new = three_queues(12)
    # The old life ran further; its rest stands behind a torn record of the new one.
    torn = new.records[-1]
    stale = next(r for r in old.records if r.start > torn.end)
    assert stale.start == next(r.start for r in old.records if r.start > torn.end)
    for record in new.records:
        record.raw = record.raw[:56] + (2 * 10**12).to_bytes(8, "big") + record.raw[64:]
        new.overwrite(record.start, record.raw)
    new.zero(torn.start + 20, torn.end)
    new.overwrite(stale.start, bytes(old.segments[0][stale.start :]))

    found = plan(new)

    assert found.end_offset == torn.start
    assert only_repair(found).kind is RepairKind.CUT


def test_records_that_repeat_queue_offsets_do_not_prove_that_the_log_goes_on() -> None:
    builder = three_queues(12)
    torn = builder.append("T", 1)
    builder.append("T", 1, queue_offset=2)
    builder.zero(torn.start + 20, torn.end)

    assert plan(builder).end_offset == torn.start


def test_stale_records_that_happen_to_follow_exactly_are_not_taken() -> None:
    builder = LogBuilder()
    for _ in range(6):
        builder.append()
    builder.store_ms -= 10_000
    builder.append(queue_offset=3)

    found = plan(builder)

    assert found.records == 6
    assert found.end_offset == builder.records[6].start


def test_a_clock_that_was_set_back_loses_nothing() -> None:
    builder = three_queues(10)
    builder.store_ms -= 10_000
    builder.append()
    builder.append()

    assert summary(plan(builder)) == (builder.written, 12, [], [])


def test_a_half_message_behind_a_clock_that_was_set_back_is_no_stale_record() -> None:
    builder = three_queues(10)
    builder.store_ms -= 10_000
    builder.append(queue_offset=0, sys_flag=SysFlag.PREPARED.value)

    assert summary(plan(builder)) == (builder.written, 11, [], [])


def test_a_place_too_small_for_any_record_takes_the_next_one_with_it() -> None:
    builder = three_queues(10)
    first_bytes = builder.written
    builder.position += 30  # nothing was ever written there
    swallowed = builder.append()
    builder.append()

    found = plan(builder)
    repair = only_repair(found)

    assert (repair.start, repair.end) == (first_bytes, swallowed.end)
    assert decode_record(repair.data).queue_offset == swallowed.queue_offset
    assert "too small" in repair.cause


def test_a_record_with_a_damaged_topic_behind_a_small_place_does_not_stop_recovery() -> None:
    builder = three_queues(10)
    builder.position += 30  # nothing was ever written there
    odd = builder.append(body=b"")
    builder.append()
    builder.overwrite(odd.start + odd.raw.index(b"\x01T") + 1, b"\xff")

    found = plan(builder)

    assert only_repair(found).kind is RepairKind.FILL
    assert "too small" in only_repair(found).cause
    assert found.end_offset == builder.written


def test_a_filler_of_the_schedule_topic_lets_a_broker_drop_it() -> None:
    builder = LogBuilder()
    builder.append("SCHEDULE_TOPIC_XXXX", 2, DELAY="3", REAL_TOPIC="T", REAL_QID="0")
    bad = builder.append("SCHEDULE_TOPIC_XXXX", 2, DELAY="3", REAL_TOPIC="T", REAL_QID="0")
    builder.append("T", 0)
    builder.flip(bad.start + 95)

    filler = decode_record(only_repair(plan(builder)).data)

    assert filler.property_map["REAL_TOPIC"] == "RMQ_SYS_TRANS_HALF_TOPIC"


def test_a_walk_may_start_in_the_middle_with_what_the_queues_already_have() -> None:
    builder = three_queues(20)
    start = builder.records[8].start
    bad = builder.records[12]
    builder.zero(bad.start, bad.end)
    known: dict[tuple[bytes, int], int] = defaultdict(int)
    for record in builder.records[:8]:
        known[record.topic.encode(), record.queue_id] = record.queue_offset + 1
    options = WalkOptions(kernels=plain(), known_next=known)

    found = plan_recovery(builder.view(), start, options)

    assert found.records == 12
    assert [(one.topic.decode(), one.queue_offset) for one in only_repair(found).lost] == [
        (bad.topic, bad.queue_offset)
    ]


def test_a_damaged_header_does_not_claim_the_number_of_a_good_record() -> None:
    builder = LogBuilder()
    for queue_id in (1, 1, 0, 0, 1, 0):
        builder.append("T", queue_id)
    bad, first_of_queue_0, lost = builder.records[1], *builder.records[2:4]
    builder.zero(bad.start + 8, bad.start + 28)  # reads as the first message of queue 0
    builder.flip(lost.start + 95)

    found = plan(builder)
    mend(builder, found)

    assert records_at(builder.view())[first_of_queue_0.start] == first_of_queue_0.raw
    assert [repair.start for repair in found.repairs] == [bad.start, lost.start]
    assert [(one.queue_id, one.queue_offset) for r in found.repairs for one in r.lost] == [
        (1, 1),
        (0, 1),
    ]


def test_a_record_with_a_damaged_header_and_a_time_far_ahead_gives_nothing_up() -> None:
    builder = LogBuilder()
    for queue_id in (1, 1, 1, 0, 1, 0):
        builder.append("T", queue_id)
    odd = builder.records[2]
    builder.zero(odd.start + 12, odd.start + 36)  # reads as the first message of queue 0
    damage_time(builder, 2)

    found = plan(builder)
    mend(builder, found)

    kept = records_at(builder.view())
    assert [kept.get(r.start) == r.raw for r in builder.records] == [True, True, False, *[True] * 3]
    assert found.end_offset == builder.written


FAR_AHEAD_MS = 99_344_109_430_786


def damage_time(builder: LogBuilder, number: int) -> None:
    """Let a record say that it was stored in the far future; no checksum covers that."""
    at = builder.records[number].start + STORE_MS_AT
    builder.overwrite(at, FAR_AHEAD_MS.to_bytes(8, "big"))


@pytest.mark.parametrize("good_before", [0, 1, 4])
@pytest.mark.parametrize("lost_first", [0, 1, 2])
@pytest.mark.parametrize("bad", [1, 3])
def test_one_time_far_ahead_does_not_make_all_that_follows_stale(
    good_before: int, lost_first: int, bad: int
) -> None:
    builder = three_queues(30)
    if lost_first:
        builder.zero(0, builder.records[lost_first].start)
    ahead = lost_first + good_before
    damage_time(builder, ahead)
    places = builder.records[ahead + 1 : ahead + 1 + bad]
    builder.zero(places[0].start, places[-1].end)

    found = plan(builder)

    assert RepairKind.CUT not in [repair.kind for repair in found.repairs]
    assert found.end_offset == builder.written
    mend(builder, found)
    assert {r.start: r.raw for r in builder.records[ahead + 1 + bad :]}.items() <= records_at(
        builder.view()
    ).items()


def test_fillers_take_no_time_that_only_one_neighbour_names() -> None:
    builder = three_queues(10)
    builder.zero(0, builder.records[3].start)
    damage_time(builder, 3)

    (repair,) = plan(builder).repairs

    times = [decode_record(repair.data, at).store_ms for at in starts_of(repair.data)]
    assert set(times) == {FIRST_MS + 4}


def test_times_of_fillers_prove_nothing() -> None:
    builder = three_queues(10)
    for lost in builder.records[:3]:
        builder.flip(lost.start + 95)
    mend(builder, plan(builder))
    for number in range(3):
        damage_time(builder, number)
    bad = builder.records[3]
    builder.zero(bad.start, bad.end)

    found = plan(builder)

    assert [repair.kind for repair in found.repairs] == [RepairKind.FILL]
    assert found.end_offset == builder.written


def starts_of(data: bytes) -> list[int]:
    found = plain().scan(np.frombuffer(bytes(data), np.uint8), 0, len(data), 0, OPTIONS.scan)
    return (found.rows["body_at"] - 88).tolist()


@st.composite
def damaged_logs(draw: st.DrawFn) -> tuple[LogBuilder, list[tuple[int, int]]]:
    """Return a log and the ranges of it that were overwritten."""
    builder = LogBuilder(segment_bytes=draw(st.sampled_from([1024, 2048, 4096])))
    for number in range(draw(st.integers(1, 40))):
        body = bytes([number % 251]) * draw(st.integers(0, 200))
        builder.append(draw(st.sampled_from(["T", "Longer_topic", "U"])), number % 2, body)
    ranges = []
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, builder.written - 1))
        room = builder.segment_bytes - start % builder.segment_bytes
        end = start + min(draw(st.sampled_from([1, 4, 30, 300, 2000])), room)
        junk = draw(st.sampled_from([b"\x00", b"\xff", b"\x5a"])) * (end - start)
        builder.overwrite(start, junk)
        ranges.append((start, end))
    return builder, ranges


@hypothesis_settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged_logs())
def test_whatever_is_overwritten_every_untouched_record_is_kept(
    case: tuple[LogBuilder, list[tuple[int, int]]],
) -> None:
    builder, ranges = case
    untouched = [
        r for r in builder.records if all(r.end <= start or r.start >= end for start, end in ranges)
    ]
    found = plan(builder)
    swallowed = sum("too small" in repair.cause for repair in found.repairs)
    mend(builder, found)

    kept = records_at(builder.view())

    missing = [r for r in untouched if kept.get(r.start) != r.raw]
    assert len(missing) <= swallowed
    again = plan(builder)
    assert (again.repairs, again.end_offset) == ([], found.end_offset)


@pytest.mark.parametrize("variant", torn_variants())
def test_plans_for_all_damaged_stores_keep_every_valid_record(variant, tmp_path) -> None:
    root = damage(unpack("crashed", tmp_path), variant)
    cut = {"tail-half": 1, "tail-size-only": 1, "flip-last": 1, "tail-mid-file": 2}
    with open_log(guess_layout(root, settings("crashed")), Disk()) as log:
        found = plan_recovery(log, log.min_offset, OPTIONS)

        assert found.records == 1653 - cut.get(variant, 0)


@pytest.mark.parametrize("kernels", [plain(), compiled()], ids=["plain", "compiled"])
@pytest.mark.parametrize("store", ["mixed", "cleaned", "ext", "batchcq", "propcrc", "timer"])
def test_real_stores_need_no_repair(store, kernels, tmp_path) -> None:
    layout = guess_layout(unpack(store, tmp_path), settings(store))
    with open_log(layout, Disk()) as log:
        found = plan_recovery(log, log.min_offset, WalkOptions(kernels=kernels))

        assert found.repairs == []
        assert found.notes == []
        assert found.records == len(rows(store, "record"))


def test_fillers_are_marked_as_such_for_readers() -> None:
    builder = three_queues()
    builder.flip(builder.records[10].start + 95)
    fillers = [
        item.rows
        for item in walk(builder.view(), 0, OPTIONS, WalkResult(0))
        if isinstance(item, Chunk) and item.rows["marks"][0] & Mark.FILLER
    ]

    assert [len(chunk_rows) for chunk_rows in fillers] == [1]
