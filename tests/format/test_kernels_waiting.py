"""Timer messages by kernels: compiled ones give what plain ones give, and both what the store's rules say."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orbitmq.format.kernels import Kernels, compiled, plain
from orbitmq.format.record import BODY_CRC_AT, decode_record, encode_record
from orbitmq.format.timer_log import UNIT, UNIT_BYTES
from orbitmq.format.waiting import WAITED_FOR, WAITING, WAITING_PROPERTIES_MAX
from orbitmq.message import TIMER_TOPIC, AppendRequest, Host, SysFlag
from orbitmq.store.timer.waiting import NEVER_ENQUEUED, delivery, read_record, read_waiting
from rounds import rounds

MANY = settings(max_examples=rounds(300), deadline=None)
BORN, STORE = Host(b"\x0a\x00\x00\x01", 5000), Host(b"\x0a\x00\x00\x02", 10911)
NOW_MS, STORE_MS, LOG_OFFSET, POSITION = 1_700_000_009_000, 1_700_000_009_123, 1 << 40, 13
BODY_MAX = 5_000
SLOT = "TIMER_OUT_MS\x011700000008000\x02"
PLACE = "REAL_TOPIC\x01Orders\x02REAL_QID\x013\x02"
USUAL = f"UNIQ_KEY\x01AB12\x02TIMER_DELIVER_MS\x011700000008500\x02{SLOT}{PLACE}"

strange = st.sampled_from(
    [
        USUAL[:-1],  # no separator at the end
        f"{USUAL}TIMER_DEL_UNIQKEY\x01Orders+AB12\x02",
        f"{USUAL}TIMER_DEL_UNIQKEY\x01\x02",
        f"{USUAL}UNIQ_KEY\x01CD34\x02UNIQ_KEY\x01\x02",
        f"{USUAL}REAL_TOPIC\x01Payments\x02",
        f"{USUAL}REAL_TOPIC\x01{'T' * 127}\x02",
        f"{USUAL}REAL_TOPIC\x01{'T' * 128}\x02",
        f"{USUAL}REAL_TOPIC\x01Zoë\x02",
        f"{USUAL}REAL_QID\x01{'9' * 9}\x02",
        f"{USUAL}REAL_QID\x011{'0' * 9}\x02",
        f"{USUAL}REAL_QID\x01-1\x02",
        f"{USUAL}REAL_QID\x01٣\x02",
        f"{USUAL}TIMER_OUT_MS\x01+5\x02",
        f"{USUAL}TIMER_OUT_MS\x01{'9' * 18}\x02",
        f"{USUAL}TIMER_OUT_MS\x01{'9' * 19}\x02",
        f"{USUAL}TIMER_OUT_MS\x0117x\x02",
        f"{USUAL}TIMER_OUT_M\x015\x02TIMER_OUT_MSX\x016\x02TIMER_OUT_MS\x017\x018\x02",
        f"{USUAL}a\x01INNER_\x02",
        f"{USUAL}a\x01INNER\x02INNE_R\x01x\x02",
        f"{USUAL}TIMER_ENQUEUE_MS\x011\x02",
        f"{USUAL}TIMER_ENQUEUE_M\x011\x02",
        f"{USUAL}a\x01\0b\x02",
        f"{USUAL}\x01value\x02name\x02\x02",
        f"{SLOT}REAL_TOPIC\x01Orders\x02",
        f"{SLOT}REAL_QID\x013\x02",
        PLACE,
        "",
        f"a\x01{'b' * (WAITING_PROPERTIES_MAX - len(USUAL) - 3)}\x02{USUAL}",
        f"a\x01{'b' * (WAITING_PROPERTIES_MAX - len(USUAL) - 2)}\x02{USUAL}",
    ]
)
usual = st.builds(
    lambda topic, queue, slot: (
        f"{USUAL}REAL_TOPIC\x01{topic}\x02REAL_QID\x01{queue}\x02TIMER_OUT_MS\x01{slot}\x02"
    ),
    st.sampled_from(["A", "Orders", "Bills"]),
    st.integers(0, 3),
    st.integers(0, 10**13),
)
flags = st.sampled_from([0, 0, 0, *(flag.value for flag in SysFlag)])
topics = st.sampled_from([TIMER_TOPIC, TIMER_TOPIC, TIMER_TOPIC, "rmq_sys_wheel_timeR", "T"])


@st.composite
def records(draw: st.DrawFn) -> bytes:
    sys_flag = draw(flags)
    born = Host(bytes(16), 1) if sys_flag & SysFlag.BORN_HOST_V6 else BORN
    store = Host(bytes(16), 1) if sys_flag & SysFlag.STORE_HOST_V6 else STORE
    request = AppendRequest(
        draw(topics),
        0,
        draw(st.binary(max_size=40) | st.just(b"x" * BODY_MAX) | st.just(b"x" * (BODY_MAX + 1))),
        draw(usual | usual | strange).encode(),
        draw(st.integers(-(2**31), 2**31 - 1)),
        sys_flag,
        draw(st.integers(-(2**63), 2**63 - 1)),
        born,
        reconsume_times=draw(st.integers(-(2**31), 2**31 - 1)),
        prepared_offset=draw(st.integers(0, 2**40)),
    )
    raw = encode_record(
        request, queue_offset=7, log_offset=99, store_ms=STORE_MS - 5, store_host=store
    )
    return draw(st.sampled_from([raw, raw, raw, raw[:-1], raw + b"\0"]))


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[int], list[int]]:
    """Bytes of a log, and where and how long its units say that records are."""
    found = draw(st.lists(records(), max_size=5))
    data, sizes = bytearray(b"".join(found)), [len(raw) for raw in found]
    at = [sum(sizes[:number]) for number in range(len(sizes))]
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2])) if data else 0):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    if at and draw(st.integers(0, 9)) == 0:
        at[draw(st.integers(0, len(at) - 1))] += draw(st.sampled_from([-1, 1, 2**62, -(2**62)]))
    if at and draw(st.integers(0, 9)) == 0:
        sizes[draw(st.integers(0, len(at) - 1))] += draw(st.sampled_from([-1, 1, 2**30, -(2**30)]))
    return bytes(data), at, sizes


class Outcome:
    """Everything that a set of kernels makes of a log."""

    def __init__(
        self,
        kernels: Kernels,
        log: tuple[bytes, list[int], list[int]],
        times: list[int],
        *,
        queues_max: int = 2,
        check_crc: bool = True,
    ) -> None:
        data, at, sizes = np.frombuffer(log[0], dtype=np.uint8), *map(_ints, log[1:])
        rows, queues = np.zeros(len(at), dtype=WAITING), np.zeros(queues_max, dtype=WAITED_FOR)
        self.count, queue_count = kernels.read_waiting(
            data, at, sizes, _ints(times), NOW_MS, BODY_MAX, rows, queues, check_crc=check_crc
        )
        self.rows = [dict(zip(WAITING.names or (), row, strict=True)) for row in rows.tolist()]
        self.rows = self.rows[: self.count]
        self.queues = queues[:queue_count].tolist()
        queues["next_offset"] = [100 * number for number in range(queues_max)]
        size = sum(row["bytes"] for row in self.rows)
        out = np.full(POSITION + size + 7, 0xEE, dtype=np.uint8)
        host = np.frombuffer(STORE.packed(), dtype=np.uint8)
        given = out, POSITION, LOG_OFFSET, STORE_MS, host, NOW_MS, data, rows, self.count, queues
        self.end = kernels.write_due(*given)
        assert self.end == POSITION + size
        self.unpublished = out.tobytes()
        kernels.publish_due(out, POSITION, rows, self.count)
        self.records = out.tobytes()
        self.next_offsets = queues["next_offset"].tolist()


def _ints(numbers: list[int]) -> Any:
    return np.array(numbers, dtype=np.int64)


def _with_wrong_checksum() -> tuple[bytes, list[int], list[int]]:
    request = AppendRequest(TIMER_TOPIC, 0, b"hello", USUAL.encode(), born_host=BORN)
    raw = bytearray(
        encode_record(request, queue_offset=7, log_offset=99, store_ms=5, store_host=STORE)
    )
    raw[BODY_CRC_AT] ^= 1
    return bytes(raw), [0], [len(raw)]


times = st.sampled_from([NEVER_ENQUEUED, 0, 9, 10, 1_700_000_005_000])


@MANY
@given(logs(), times, st.booleans(), st.sampled_from([0, 1, 2, 5]))
@example(_with_wrong_checksum(), 0, False, 1)
def test_compiled_gives_what_plain_gives(
    log: tuple[bytes, list[int], list[int]], time: int, check_crc: bool, queues_max: int
) -> None:
    given_times = [time + 0 * at for at in log[1]]
    one, other = (
        Outcome(kernels, log, given_times, queues_max=queues_max, check_crc=check_crc)
        for kernels in (plain(), compiled())
    )
    assert vars(one) == vars(other)


@MANY
@given(logs(), times)
@example((b"", [], []), 0)
def test_what_they_find_and_write_is_what_the_rules_say(
    log: tuple[bytes, list[int], list[int]], time: int
) -> None:
    data, at, sizes = log
    outcome = Outcome(plain(), log, [time] * len(at), queues_max=9)
    position, offsets = POSITION, {}
    assert set(outcome.unpublished[:POSITION]) <= {0xEE}
    for index, row in enumerate(outcome.rows):
        raw = memoryview(data)[at[index] : at[index] + sizes[index]]
        waiting, record = read_waiting(raw), read_record(raw)
        assert waiting is not None
        assert record is not None
        assert (row["slot_ms"], bool(row["cancels"])) == (waiting.slot_ms, waiting.cancels)
        key = data[row["key_at"] : row["key_at"] + row["key_length"]].decode("utf-8", "replace")
        assert key == (record.unique_key or "")
        request = delivery(record, time, NOW_MS)
        assert request is not None
        queue = request.topic, request.queue_id
        offsets.setdefault(queue, 100 * len(offsets))
        expected = encode_record(
            request,
            queue_offset=offsets[queue],
            log_offset=LOG_OFFSET + position - POSITION,
            store_ms=STORE_MS,
            store_host=STORE,
        )
        offsets[queue] += 1
        end = position + row["bytes"]
        assert outcome.records[position:end] == expected
        assert outcome.unpublished[position:end] == bytes(8) + expected[8:]
        assert decode_record(expected).body_crc == record.body_crc
        position = end
    assert position == outcome.end
    assert set(outcome.records[position:]) == {0xEE}


@pytest.mark.parametrize("kernels", [plain(), compiled()], ids=lambda kernels: kernels.name)
def test_a_usual_record_is_simple(kernels: Kernels) -> None:
    request = AppendRequest(TIMER_TOPIC, 0, b"hello", USUAL.encode(), born_host=BORN)
    raw = encode_record(request, queue_offset=1, log_offset=0, store_ms=5, store_host=STORE)
    log = raw * 3, [0, len(raw), 2 * len(raw)], [len(raw)] * 3
    outcome = Outcome(kernels, log, [1, 2, 3])
    assert outcome.count == 3
    assert outcome.queues == [(*outcome.queues[0][:2], 3, 3, 0, 0)]
    bad = raw[:90] + b"X" + raw[91:]
    assert Outcome(kernels, (raw + bad, log[1][:2], log[2][:2]), [1, 2]).count == 1
    assert Outcome(kernels, (raw + bad, log[1][:2], log[2][:2]), [1, 2], check_crc=False).count == 2


# The links of a slot


def _unit(previous: int, **given: int) -> bytes:
    fields = {"size": UNIT_BYTES, "magic": 1, "write_ms": 5_000, "delay_ms": 3_000} | given
    names = ("write_ms", "delay_ms")
    return UNIT.pack(
        fields["size"], previous, fields["magic"], *(fields[name] for name in names), 1, 2, 3, 0
    )


unit_bytes = st.builds(
    lambda previous, changed: _unit(previous, **changed),
    st.integers(-2, 6).map(lambda number: 1040 + number * UNIT_BYTES)
    | st.sampled_from([-1, -2, 0, 52, 1041, 2**63 - 1, -(2**63)]),
    st.sampled_from([{}] * 9 + [{"size": 51}, {"magic": 16}, {"magic": -1}, {"magic": 15}])
    | st.sampled_from(
        [{"write_ms": 5_001}, {"delay_ms": -1}, {"write_ms": 9_000, "delay_ms": -1_000}]
    ),
)


@MANY
@given(st.lists(unit_bytes, max_size=6), st.integers(-1, 7), st.sampled_from([1, 3, 9]))
def test_a_slot_is_walked_alike(units: list[bytes], start: int, room: int) -> None:
    data = np.frombuffer(b"".join(units), dtype=np.uint8)
    found = []
    for kernels in (plain(), compiled()):
        positions, marks = np.zeros((2, room), dtype=np.int64)
        count, left, sound = kernels.walk_slot(
            data, 1040, 1040 + start * UNIT_BYTES, 8_000, positions, marks
        )
        found.append((positions[:count].tolist(), marks[:count].tolist(), left, sound))
    assert found[0] == found[1]
    positions_found, _, left, _ = found[0]
    assert positions_found == sorted(positions_found, reverse=True)
    assert all(position > left for position in positions_found)
