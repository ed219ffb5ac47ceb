"""The sentence follows the figures: the same code says that a claim holds, and that it does not."""

import pytest

from orbitmq.lab.experiment import Row, figure_text, times, verdict
from orbitmq.lab.experiments import (
    buffers,
    file_copy,
    flush,
    mapped_memory,
    one_log,
    page_cache,
    sequential,
    storage,
    transfer,
)

HOLDS, DOES_NOT, CANNOT_TELL = (
    ": it holds here.",
    ": it does not hold here.",
    ": this run cannot tell.",
)


def rates(names, values, figure="rate"):
    return [Row(name, {figure: value}) for name, value in zip(names, values, strict=True)]


def cold_reads(in_order, at_random):
    names = (
        page_cache.IN_ORDER,
        page_cache.MERGED,
        page_cache.RANDOM,
        page_cache.WARM,
    )
    return rates(names, (in_order, 1, at_random, 9_000))


@pytest.mark.feature("F57")
def test_of_a_cold_log():
    agreed = page_cache.judge(cold_reads(8_000, 500), kept=0.0)
    denied = page_cache.judge(cold_reads(500, 8_000), kept=0.0)
    unknown = page_cache.judge(cold_reads(8_000, 500), kept=0.9)

    assert (agreed.holds, denied.holds, unknown.holds) == (True, False, None)
    assert "8 000 messages/s of one queue in order and 500 at random (16.0 times" in agreed.sentence
    assert agreed.sentence.endswith(HOLDS)
    assert denied.sentence.endswith(DOES_NOT)
    assert "90% of the log stayed in memory" in unknown.sentence
    assert unknown.sentence.endswith(CANNOT_TELL)


@pytest.mark.feature("F57")
def test_what_differs_as_little_as_runs_do_is_no_difference():
    assert page_cache.judge(cold_reads(1_050, 1_000), kept=0.0).holds is False


def costs(copy, mapped, sendfile, stream=(30, 20, 10)):
    pull, flow = "pull of 32 x 1 KiB", "stream, sender's CPU"
    both = zip(transfer.WAYS, stream, (copy, mapped, sendfile), strict=True)
    return [Row(name, {flow: one, pull: other}) for name, one, other in both]


@pytest.mark.feature("F92")
def test_of_ways_of_transfer():
    agreed = transfer.judge(costs(60, 40, 20))
    mixed = transfer.judge(costs(60, 20, 90))
    denied = transfer.judge(costs(60, 20, 90, stream=(10, 10, 30)))

    assert (agreed.holds, mixed.holds, denied.holds) == (True, False, False)
    assert "sendfile is cheapest for a pull" in agreed.sentence
    assert "mapped slices is cheapest for a pull" in mixed.sentence
    assert mixed.sentence.endswith("it holds here for a stream, it does not hold here for a pull.")
    assert denied.sentence.endswith(DOES_NOT)


@pytest.mark.feature("F93")
def test_of_copies_of_a_file():
    agreed = file_copy.judge(rates(file_copy.WAYS, (300, 90, 80, 60, 50), "time"))
    denied = file_copy.judge(rates(file_copy.WAYS, (90, 40, 80, 60, 70), "time"))

    assert (agreed.holds, denied.holds) == (True, False)
    assert "6.0 times as long in the loop" in agreed.sentence
    assert "fastest was loop, 1 MiB buffer with 40 ms" in denied.sentence


@pytest.mark.feature("F94")
def test_of_heap_and_mapped_memory():
    def judged(heap, direct):
        figures = dict.fromkeys(buffers.UNITS, 100.0)
        figures |= {buffers.WRITE_HEAP: heap, buffers.WRITE_DIRECT: direct}
        return buffers.judge([Row("4 KiB", {}), Row("1 MiB", figures)])

    assert (judged(90_000, 40_000).holds, judged(40_000, 41_000).holds) == (True, False)
    assert "writing 1 MiB takes 90 us from the heap and 40 us" in judged(90_000, 40_000).sentence


@pytest.mark.feature("F101")
def test_of_storages():
    def judged(*written):
        return storage.judge(
            [
                Row(name, {"written": rate, "written, synced": rate})
                for name, rate in zip(storage.STORAGES, written, strict=True)
            ]
        )

    assert judged(300_000, 200_000, 20_000).holds is True
    assert judged(100_000, 200_000, 300_000).holds is False
    without = judged(300_000, None, 20_000)
    assert without.holds is None
    assert "LMDB (key-value) not installed: pip install 'orbitmq[lab]'" in without.sentence


@pytest.mark.feature("F102")
def test_of_orders_of_blocks():
    def judged(values, kept=0.0):
        return sequential.judge(rates(NAMES_OF_BLOCKS, values), kept)

    agreed = judged((900, 50, 800, 20, 5_000, 100))
    denied = judged((90, 90, 20, 20, 5_000, 400))
    unread = judged((900, 50, 800, 20, 5_000, 100), kept=1.0)

    assert (agreed.holds, denied.holds, unread.holds) == (True, False, None)
    assert (
        "writes in order are 18.0 times as fast as at random, cold reads 40.0 times"
        in agreed.sentence
    )
    assert denied.sentence.endswith(DOES_NOT)
    assert "this run cannot tell for cold reads." in unread.sentence


NAMES_OF_BLOCKS = (
    sequential.WRITE_ORDER,
    sequential.WRITE_RANDOM,
    sequential.READ_ORDER,
    sequential.READ_RANDOM,
    sequential.MEMORY_ORDER,
    sequential.MEMORY_RANDOM,
)


@pytest.mark.feature("F103")
def test_of_one_log_and_many():
    def judged(many):
        figures = [
            (one_log.ONE, 1, 1_000),
            (one_log.ONE, 8_192, 1_000),
            (one_log.MANY, 1, 1_000),
            (one_log.MANY, 8_192, many),
        ]
        return one_log.judge(
            [
                Row(name, {"partitions": count, "written": rate, "written, synced": rate})
                for name, count, rate in figures
            ]
        )

    assert (judged(10).holds, judged(1_000).holds, judged(None).holds) == (True, False, False)
    assert "with 8192 partitions 1 000 appends/s into one log and 10 into" in judged(10).sentence
    assert (
        "with 1 partitions" in judged(None).sentence
    )  # those that could not be opened do not count


@pytest.mark.feature("F122")
def test_of_flush_modes():
    def judged(asynchronous, synchronous, pool):
        by_mode = {"async": asynchronous, "sync": synchronous, "pool": pool}
        return flush.judge(
            [
                Row(flush.row_name(mode, threads), {"rate": rate, "p50": 5.0, "p99": 9.0})
                for mode, rate in by_mode.items()
                for threads in flush.THREADS
            ]
        )

    agreed = judged(100_000, 10_000, 200_000)
    assert (agreed.holds, judged(1_000, 10_000, 900).holds) == (True, False)
    assert "async 10.0 times as many as sync" in agreed.sentence
    assert "it does not hold here for the pool." in judged(100_000, 10_000, 90_000).sentence


@pytest.mark.feature("F59")
def test_of_page_faults():
    def judged(faults, kept=0.0):
        names = (
            mapped_memory.NEW,
            mapped_memory.WARMED,
            mapped_memory.AHEAD,
            mapped_memory.NOT_AHEAD,
            mapped_memory.STORE,
            mapped_memory.STORE_WARMED,
        )
        made = zip(names, faults, strict=True)
        return mapped_memory.judge(
            [Row(name, {"minor faults": n, "major faults": n}) for name, n in made], kept
        )

    assert judged((1_000, 0, 2, 1_000, 500, 0)).holds is True
    assert judged((10, 10, 9, 9, 0, 100)).holds is False
    assert judged((1_000, 0, 2, 1_000, 500, 0), kept=1.0).holds is None
    assert "for warm-up of a store" in judged((1_000, 0, 2, 1_000, 0, 100)).sentence


def test_parts_that_hold_and_parts_that_do_not_are_named():
    found = verdict("much", "it is so", {"one": True, "two": False, "three": None})

    assert found.holds is False
    assert found.sentence == (
        "Seen: much; the documents say that it is so: it holds here for one, it does not hold here for two,"
        " this run cannot tell for three."
    )


def test_figures_for_people():
    assert [figure_text(value) for value in (None, 0.01234, 5, 99.94, 100.4, 1_234_567)] == [
        "-",
        "0.0123",
        "5",
        "99.9",
        "100",
        "1 234 567",
    ]
    assert (times(3, 2), times(500, 2), times(1, 0)) == ("1.5 times", "250 times", "inf times")
