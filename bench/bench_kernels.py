"""The hot loops alone, in memory: what a rebuild or a dispatch can reach at best, plain and compiled.

    python bench/bench_kernels.py [--records 400000] [--plain-records 10000] [--threads 2]

Stands for: a log of 1 KiB messages of 64 queues, each with a unique key, one key and a tag, read,
checked and dispatched from memory. Every result is compared: counts, bytes and checksums.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from orbitmq.format.client_batch import ClientMessage, encode_client_batch
from orbitmq.format.columns import APPEND, ScanOptions, Stop, as_bytes_array
from orbitmq.format.index_file import key_hash
from orbitmq.format.kernels import Kernels, compiled, plain
from orbitmq.format.record import encode_record
from orbitmq.message import LOOPBACK, AppendRequest

BODY_BYTES = 1024
QUEUES = 64
TOPIC = b"Bench00000"
STORE_MS = 1_700_000_000_000
SLOTS = 5_000_000
CHAIN_LOOKUPS = 2000

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Messages:
    """The same messages as a producer's batch and as a log of several queues."""

    batch: Array  # a client batch
    log: Array
    count: int


@dataclass(frozen=True)
class Figure:
    what: str
    form: str
    per_second: float
    gigabytes: float | None = None


def make_messages(count: int, seed: int = 1) -> Messages:
    bodies = np.random.default_rng(seed).bytes(BODY_BYTES + 64)
    batch, log = [], bytearray()
    for index in range(count):
        properties = (
            b"UNIQ_KEY\x01%032X\x02KEYS\x01key%d\x02WAIT\x01true\x02TAGS\x01Tag%d\x02"
            b"CLUSTER\x01DefaultCluster\x02" % (index, index, index % 4)
        )
        body = bodies[index % 64 : index % 64 + BODY_BYTES]
        topic = f"Bench{index % QUEUES // 8:05d}"
        log += encode_record(
            AppendRequest(topic, index % 8, body, properties),
            log_offset=len(log),
            queue_offset=index // QUEUES,
            store_ms=STORE_MS,
            store_host=LOOPBACK,
        )
        batch.append(ClientMessage(body, properties))
    return Messages(as_bytes_array(encode_client_batch(batch)), np.frombuffer(log, np.uint8), count)


def timed(work: Callable[[], Any], times: int) -> tuple[float, Any]:
    """Return the best time and the last result."""
    best, result = float("inf"), None
    for _ in range(times):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


def bench_scan(kernels: Kernels, given: Messages, times: int) -> Iterator[Figure]:
    log = given.log
    for check_crc in (False, True):
        options = ScanOptions(check_crc=check_crc)
        seconds, result = timed(partial(kernels.scan, log, 0, len(log), 0, options), times)
        assert (len(result.rows), result.stop) == (given.count, Stop.END)
        name = "scan with CRC" if check_crc else "scan"
        yield Figure(name, kernels.name, given.count / seconds, len(log) / seconds / 1e9)


def bench_threads(kernels: Kernels, given: Messages, threads: int, times: int) -> Iterator[Figure]:
    """Scan with CRC, each thread its part; the parts start at a record that is searched for."""
    log, options = given.log, ScanOptions(check_crc=True)
    cuts = [
        kernels.find_record(log, len(log) * part // threads, len(log), 0) for part in range(threads)
    ]
    ranges = list(zip(cuts, [*cuts[1:], len(log)], strict=True))
    with ThreadPoolExecutor(threads) as pool:

        def work() -> int:
            parts = pool.map(lambda part: len(kernels.scan(log, *part, 0, options).rows), ranges)
            return sum(parts)

        seconds, count = timed(work, times)
    assert count == given.count
    name = f"scan with CRC, {threads} threads"
    yield Figure(name, kernels.name, given.count / seconds, len(log) / seconds / 1e9)


def bench_find(kernels: Kernels, given: Messages, times: int) -> Iterator[Figure]:
    log = given.log
    # No record says that it lies one byte further on: the search goes through the whole log.
    seconds, found = timed(lambda: kernels.find_record(log, 0, len(log), 1), times)
    assert found == -1
    yield Figure("search for a record", kernels.name, 1 / seconds, len(log) / seconds / 1e9)


def bench_units(kernels: Kernels, given: Messages, times: int) -> Iterator[Figure]:
    rows = compiled().scan(given.log, 0, len(given.log), 0, ScanOptions()).rows
    table = kernels.queue_table()
    for index in range(QUEUES):
        table.add(b"Bench%05d" % (index // 8), index % 8)
    seconds, numbers = timed(lambda: table.resolve(given.log, rows), times)
    yield Figure("number the queues", kernels.name, given.count / seconds)
    seconds, packed = timed(lambda: kernels.pack_units(rows, numbers), times)
    assert len(packed.runs) == min(QUEUES, given.count)
    assert len(packed.units) == 20 * given.count
    yield Figure("pack units", kernels.name, given.count / seconds)


def bench_index(kernels: Kernels, given: Messages, times: int) -> Iterator[Figure]:
    rows = compiled().scan(given.log, 0, len(given.log), 0, ScanOptions()).rows
    seconds, items = timed(lambda: kernels.index_items(given.log, rows), times)
    assert len(items) == 2 * given.count
    yield Figure("index items", kernels.name, len(items) / seconds)

    slots = np.zeros(SLOTS, dtype=np.int32)
    entries, state = np.zeros(20 * (len(items) + 1), dtype=np.uint8), np.zeros(6, dtype=np.int64)

    def insert() -> int:
        slots[:] = 0
        state[:] = 0, 0, 0, 0, 0, 1
        return kernels.index_insert(items, 0, slots, entries, 0, state, len(items) + 1)

    seconds, inserted = timed(insert, times)
    assert inserted == len(items)
    yield Figure("index inserts", kernels.name, inserted / seconds)
    yield _bench_chains(kernels, given.count, slots, entries, state)


def _bench_chains(
    kernels: Kernels, count: int, slots: Array, entries: Array, state: Array
) -> Figure:
    header = state[:4].astype(">i8").tobytes() + state[4:].astype(">i4").tobytes()
    content = header + slots.astype(">i4").tobytes() + entries.tobytes()
    file = np.frombuffer(content, dtype=np.uint8)
    wanted = [index * 7919 % count for index in range(CHAIN_LOOKUPS)]
    hashes = [key_hash(f"Bench{index % QUEUES // 8:05d}", f"key{index}") for index in wanted]

    def work() -> int:
        found = [kernels.index_chain(file, SLOTS, hashed, 0, 2**62, 64) for hashed in hashes]
        return sum(map(len, found))

    seconds, found = timed(work, 3)
    assert found >= CHAIN_LOOKUPS
    return Figure("index lookups", kernels.name, CHAIN_LOOKUPS / seconds)


def bench_encode(kernels: Kernels, given: Messages, times: int) -> Iterator[Figure]:
    shared = np.zeros(1, dtype=APPEND)
    shared["version"] = 1
    out = np.zeros(len(given.log), dtype=np.uint8)

    def work() -> Any:
        return kernels.encode_client_batch(out, 0, 0, STORE_MS, shared, TOPIC, given.batch, b"")

    seconds, sizes = timed(work, times)
    assert len(sizes) == given.count
    assert len(kernels.scan(out, 0, int(sizes.sum()), 0, ScanOptions()).rows) == given.count
    size = int(sizes.sum())
    yield Figure("client batch", kernels.name, given.count / seconds, size / seconds / 1e9)


def run(records: int, plain_records: int, threads: int, times: int = 3) -> list[Figure]:
    figures = []
    for kernels, count in ((plain(), plain_records), (compiled(), records)):
        given = make_messages(count)
        for bench in (bench_scan, bench_find, bench_units, bench_index, bench_encode):
            figures += list(bench(kernels, given, times))
        if kernels.name == "compiled":
            figures += list(bench_threads(kernels, given, threads, times))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--plain-records", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    figures = run(chosen.records, chosen.plain_records, chosen.threads)
    print(f"{'':28} {'plain':>12} {'compiled':>12}   compiled")
    for what in dict.fromkeys(figure.what for figure in figures):
        by_form = {figure.form: figure for figure in figures if figure.what == what}
        speeds = [
            f"{by_form[form].per_second:12,.0f}" if form in by_form else f"{'':12}"
            for form in ("plain", "compiled")
        ]
        gigabytes = by_form["compiled"].gigabytes
        print(f"{what:28} {speeds[0]} {speeds[1]} /s", f"{gigabytes:.2f} GB/s" if gigabytes else "")


if __name__ == "__main__":
    main()
