"""Stores to be audited, and what a plain look at each of their records, one after another, says of them."""

import json
import math
import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from golden_stores import Row
from orbitmq.client.trace.records import ConsumeCode, TraceKind, TraceRecord, encode_record
from orbitmq.errors import FormatError
from orbitmq.format.properties import encode_properties
from orbitmq.format.record import decode_record
from orbitmq.message import AppendRequest, SysFlag
from orbitmq.spark.jobs.audit.histogram import Spread
from orbitmq.spark.jobs.audit.job import audit
from orbitmq.spark.jobs.audit.report import AuditReport
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing import FakeClock
from orbitmq.units import HOUR_MS, KiB
from spark.rebuild_world import InProcessSpark

SETTINGS = {"mappedFileSizeCommitLog": str(64 * KiB), "mappedFileSizeConsumeQueue": "2000"}
START_MS = 500_000 * HOUR_MS
TRACE = "RMQ_SYS_TRACE_TOPIC"
TAGS = (None, "Aa", "BB", "paid", "<img src=x onerror=alert(1)>")
"""Two of them have the same hash."""
QUEUES = 3


class Seen(NamedTuple):
    """A record as a plain reader has it."""

    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    size: int
    born_ms: int
    store_ms: int
    sys_flag: int
    reconsume_times: int
    properties: dict[str, str]

    @property
    def count(self) -> int:
        return int(self.properties["INNER_NUM"]) if self.sys_flag & SysFlag.INNER_BATCH else 1

    @property
    def first(self) -> int:
        inner = self.sys_flag & SysFlag.INNER_BATCH
        return int(self.properties["INNER_BASE"]) if inner else self.queue_offset


def of_manifest(rows: Iterable[Row]) -> list[Seen]:
    """Return what RocketMQ's own reader said of a store."""
    return [
        Seen(
            row["topic"],
            row["queueId"],
            row["queueOffset"],
            row["phyOffset"],
            row["size"],
            row["bornTimestamp"],
            row["storeTimestamp"],
            row["sysFlag"],
            row["reconsumeTimes"],
            row["properties"],
        )
        for row in rows
    ]


def of_log(root: Path) -> list[Seen]:
    """Read all segments of a log, record by record."""
    found = []
    for path in sorted((root / "commitlog").iterdir()):
        data, at = path.read_bytes(), 0
        while True:
            try:
                one = decode_record(data, at)
            except FormatError:
                break  # the blank at the end, or zeros
            numbers = one.log_offset, one.size, one.born_ms, one.store_ms
            rest = one.sys_flag, one.reconsume_times, one.property_map
            found.append(Seen(one.topic, one.queue_id, one.queue_offset, *numbers, *rest))
            at += one.size
    return found


# --- a store with everything in it ---


@dataclass
class Writer:
    """Appends messages at times of its own."""

    store: MessageStore
    clock: FakeClock
    chance: random.Random

    def put(
        self,
        topic: str,
        properties: dict[str, str],
        *,
        body: bytes = b"x",
        early_ms: int = 0,
        times: int = 0,
        sys_flag: int = 0,
        queue_id: int | None = None,
    ) -> None:
        queue = self.chance.randrange(QUEUES) if queue_id is None else queue_id
        now = self.clock.now_ms()
        self.store.append(
            AppendRequest(
                topic,
                queue,
                body,
                encode_properties(properties),
                born_ms=now - early_ms,
                reconsume_times=times,
                sys_flag=sys_flag,
            )
        )

    def message(self, number: int) -> dict[str, str]:
        chance = self.chance
        properties = {"UNIQ_KEY": f"{chance.getrandbits(96):024X}", "price": str(number % 90)}
        if (tag := chance.choice(TAGS)) is not None:
            properties["TAGS"] = tag
        if number % 3 == 0:
            properties["KEYS"] = f"k{chance.randrange(60)} k{number} k{number}"
        return properties


def write_store(root: Path, count: int = 900, seed: int = 7) -> list[str]:
    """Write a store over two days, with duplicates of every kind; return the ids of the topic Orders."""
    clock, chance = FakeClock(START_MS), random.Random(seed)
    config = StoreConfig(root=root, segment_bytes=64 * KiB, cq_file_bytes=2000, index_enabled=False)
    ids: list[str] = []
    with MessageStore.open(config, background=False, clock=clock) as store:
        writer = Writer(store, clock, chance)
        for number in range(count):
            clock.advance(chance.randrange(400_000))
            _write_some(writer, number, ids)
        store.wait_dispatched(timeout=30)
    return ids


def _write_some(writer: Writer, number: int, ids: list[str]) -> None:
    chance = writer.chance
    topic = chance.choice(("Orders", "Orders", "Stock", "Rare"))
    properties = writer.message(number)
    body = b"y" * chance.choice((10, 100, 1000))
    early = {0: -chance.randrange(1, 50), 1: chance.randrange(100_000)}.get(number % 9, number % 40)
    if topic == "Orders":
        ids.append(properties["UNIQ_KEY"])
    match number % 20:
        case 3 if ids:  # a producer did not get its answer
            writer.put("Orders", properties | {"UNIQ_KEY": chance.choice(ids)}, early_ms=early)
        case 5:  # a batch of a Java producer: one id for all of its messages
            for _ in range(chance.randrange(2, 9)):
                writer.put(topic, properties, body=body, early_ms=early, queue_id=1)
        case 7:  # was delayed
            writer.put(topic, properties | {"REAL_TOPIC": topic}, early_ms=50_000)
        case 11:
            back = {"RETRY_TOPIC": "Orders", "REAL_TOPIC": "%RETRY%shop"}
            writer.put("%RETRY%shop", properties | back, times=1 + number // 20 % 4, queue_id=0)
        case 13:
            back = {"DLQ_ORIGIN_TOPIC": "Stock", "RETRY_TOPIC": "Stock"} if number % 3 else {}
            writer.put("%DLQ%shop", properties | back, times=16, queue_id=0)
        case 17:  # no id, and nothing that a consumer could see
            del properties["UNIQ_KEY"]
            writer.put(topic, properties, body=body, early_ms=early)
            writer.put(topic, properties, sys_flag=SysFlag.PREPARED)
        case _:
            writer.put(topic, properties, body=body, early_ms=early)


def write_offsets(root: Path, offsets: dict[str, dict[int, int]]) -> None:
    (root / "config").mkdir(exist_ok=True)
    table = {name: {str(q): at for q, at in row.items()} for name, row in offsets.items()}
    path = root / "config" / "consumerOffset.json"
    path.write_text(json.dumps({"offsetTable": table}), encoding="utf-8")


def write_filters(root: Path, filters: dict[str, dict[str, str]]) -> None:
    """Write what a RocketMQ broker keeps of SQL92 subscriptions, by topic and group."""
    table = {
        topic: {
            "groupFilterData": {
                group: {"expression": text, "expressionType": "SQL92", "deadTime": 9}
                for group, text in by_group.items()
            }
        }
        for topic, by_group in filters.items()
    }
    path = root / "config" / "consumerFilter.json"
    path.write_text(json.dumps({"filterDataByTopic": table}), encoding="utf-8")


# --- traces ---


def sent(message_id: str, topic: str, **given: Any) -> TraceRecord:
    return TraceRecord(
        kind=TraceKind.PUB, message_id=message_id, topic=topic, group="makers", **given
    )


def tried(
    message_id: str, group: str, request: str, at_ms: int, cost_ms: int, *, ok: bool, times: int = 0
) -> list[TraceRecord]:
    code = ConsumeCode.SUCCESS if ok else ConsumeCode.EXCEPTION
    return [
        TraceRecord(
            kind=TraceKind.SUB_BEFORE,
            message_id=message_id,
            group=group,
            request_id=request,
            time_ms=at_ms,
            retry_times=times,
        ),
        TraceRecord(
            kind=TraceKind.SUB_AFTER,
            message_id=message_id,
            group=group,
            request_id=request,
            time_ms=at_ms + cost_ms,
            cost_ms=cost_ms,
            success=ok,
            code=code,
        ),
    ]


def append_traces(root: Path, records: Iterable[TraceRecord], at_ms: int) -> None:
    """Append trace messages of five records each; every third one is packed."""
    config = StoreConfig(root=root, segment_bytes=64 * KiB, cq_file_bytes=2000, index_enabled=False)
    texts = [encode_record(one) for one in records]
    with MessageStore.open(config, background=False, clock=FakeClock(at_ms)) as store:
        for number, start in enumerate(range(0, len(texts), 5)):
            body = "".join(texts[start : start + 5]).encode()
            packed = number % 3 == 0
            given = (zlib.compress(body), int(SysFlag.COMPRESSED)) if packed else (body, 0)
            store.append(AppendRequest(TRACE, 0, given[0], sys_flag=given[1]))


# --- audits ---


def audit_here(root: Path, settings: dict[str, str] | None = None, **given: Any) -> AuditReport:
    """Audit without Spark."""
    spark: Any = InProcessSpark()
    return audit(spark, store=root, settings=SETTINGS if settings is None else settings, **given)


# --- the plain computation ---


def is_ordinary(topic: str) -> bool:
    return not topic.startswith(("%", "rmq_sys_", "RMQ_SYS_", "SCHEDULE_TOPIC"))


def visible(records: Iterable[Seen]) -> list[Seen]:
    return [one for one in records if one.sys_flag & SysFlag.TRANSACTION not in (4, 12)]


def ordinary(records: Iterable[Seen]) -> list[Seen]:
    return [one for one in visible(records) if is_ordinary(one.topic)]


def traffic_of(records: Iterable[Seen]) -> dict[tuple[str, str | None, int], tuple[int, int, int]]:
    found: dict[tuple[str, str | None, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for one in records:
        hour = one.store_ms - one.store_ms % HOUR_MS
        sums = found[one.topic, one.properties.get("TAGS"), hour]
        sums[0] += one.count
        sums[1] += 1
        sums[2] += one.size
    return {key: (sums[0], sums[1], sums[2]) for key, sums in found.items()}


def require_spread(spread: Spread, numbers: list[int]) -> None:
    """Compare figures with all numbers: a percentile may be too high by one part in 64."""
    good = sorted(number for number in numbers if number >= 0)
    assert (spread.values, spread.early) == (len(good), len(numbers) - len(good))
    if not good:
        assert spread[1:8] == (None,) * 7
        return
    assert (spread.least, spread.most) == (good[0], good[-1])
    assert math.isclose(spread.mean or 0, sum(good) / len(good))
    shares = (0.5, spread.p50), (0.9, spread.p90), (0.99, spread.p99), (0.999, spread.p999)
    for share, found in shares:
        truth = good[max(math.ceil(share * len(good)), 1) - 1]
        assert found is not None
        assert truth <= found <= max(truth, truth * (1 + 1 / 64))


def copies_by_id(records: Iterable[Seen]) -> dict[str, dict[str, list[Seen]]]:
    """Return by topic and id the first messages of each copy: neighbours of a batch are one."""
    found: dict[str, dict[str, list[Seen]]] = defaultdict(lambda: defaultdict(list))
    ends: dict[tuple[str, str], Seen] = {}
    for one in records:
        if (unique := one.properties.get("UNIQ_KEY")) is None:
            continue
        last = ends.get((one.topic, unique))
        ends[one.topic, unique] = one
        goes_on = (
            last is not None
            and last.log_offset + last.size == one.log_offset
            and (last.queue_id, last.born_ms, last.store_ms)
            == (one.queue_id, one.born_ms, one.store_ms)
        )
        if not goes_on:
            found[one.topic][unique].append(one)
    return found


def copies_by_key(records: Iterable[Seen]) -> dict[str, dict[str, list[Seen]]]:
    found: dict[str, dict[str, list[Seen]]] = defaultdict(lambda: defaultdict(list))
    for one in records:
        for key in dict.fromkeys(one.properties.get("KEYS", "").split(" ")):
            if key:
                found[one.topic][key].append(one)
    return found


def duplicate_rows(records: list[Seen]) -> set[tuple[str, str, int, int, int, int]]:
    rows = set()
    with_id = Counter(one.topic for one in records if "UNIQ_KEY" in one.properties)
    for by, found in (("id", copies_by_id(records)), ("key", copies_by_key(records))):
        for topic, copies in found.items():
            counts = [len(places) for places in copies.values()]
            batched = with_id[topic] - sum(counts) if by == "id" else 0
            several = [count for count in counts if count > 1]
            rows.add((topic, by, len(counts), len(several), sum(counts) - len(counts), batched))
    return rows


def offset_id(one: Seen) -> str:
    """Return the id that names the place of a message in a store of these tests."""
    return f"7F00000100002A9F{one.log_offset:016X}"


Wants = Callable[[dict[str, str]], bool]


def lag_of(records: Iterable[Seen], topic: str, queue_id: int, offset: int, wants: Wants) -> int:
    return sum(
        one.first + one.count - max(one.first, offset)
        for one in visible(records)
        if (one.topic, one.queue_id) == (topic, queue_id)
        and one.first + one.count > offset
        and wants(one.properties)
    )
