"""When an index file is followed by a new one, and how many are kept, as a broker.conf says."""

from pathlib import Path

import pytest

from conf_store import SMALL, ConfStore, wires
from orbitmq.errors import ConfigError
from orbitmq.store.verify.check import check_store
from orbitmq.testing.builders import make_request
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.units import HOUR_MS, MINUTE_MS

pytestmark = pytest.mark.feature("F112")

HOURS = 6
PER_HOUR = 20
SPAN = {"indexFileRollInterval": 2 * HOUR_MS}
NEWEST = {"maxIndexFileNum": 2}


def fill(case: ConfStore, hours: int = HOURS, first: int = 0) -> None:
    """Append twenty messages an hour, one key each: a file has room for 99."""
    for number in range(first, first + hours * PER_HOUR):
        case.append(make_request(number, keys=f"k{number}", unique=False))
        case.clock.advance(HOUR_MS // PER_HOUR)


def counts(case: ConfStore) -> list[int]:
    """Return how many entries each index file has, oldest first."""
    index = case.store._parts.dispatcher.index
    return [header.next_item - 1 for _, header in index.headers()]


def found(case: ConfStore, hours: int = HOURS) -> list[int]:
    """Return the numbers of the messages that are found by their key."""
    keys = range(hours * PER_HOUR)
    return [n for n in keys if case.store.query("TopicTest", f"k{n}")]


def texts(given: dict[str, int]) -> dict[str, str]:
    return {key: str(value) for key, value in given.items()}


def on_disk(case: ConfStore) -> int:
    return len(list((case.root / "index").iterdir()))


@wires("indexFileRollInterval")
@pytest.mark.parametrize(
    ("given", "files"),
    [
        ({}, [99, 21]),
        (SPAN, [40, 40, 40]),
        ({"indexFileRollInterval": HOUR_MS}, [20] * 6),
        ({"indexFileRollInterval": 100 * HOUR_MS}, [99, 21]),
    ],
)
def test_a_file_that_is_full_or_older_than_its_span_is_followed_by_a_new_one(
    tmp_path, given, files
):
    with ConfStore(tmp_path, given) as case:
        fill(case)

        assert counts(case) == files
        assert on_disk(case) == len(files)
        assert found(case) == list(range(HOURS * PER_HOUR))


@wires("indexFileRollInterval")
def test_one_chunk_of_the_log_is_cut_where_the_span_is_over(tmp_path):
    with ConfStore(tmp_path, SPAN) as case:
        for number in range(HOURS * PER_HOUR):
            case.store.append(make_request(number, keys=f"k{number}", unique=False))
            case.clock.advance(HOUR_MS // PER_HOUR)
        assert case.store.wait_dispatched()

        assert counts(case) == [40, 40, 40]


@wires("maxIndexFileNum")
@pytest.mark.parametrize(
    ("given", "files", "first"),
    [
        (SPAN, [40, 40, 40], 0),
        ({**SPAN, **NEWEST}, [40, 40], 40),
        ({**SPAN, "maxIndexFileNum": 1}, [40], 80),
        (NEWEST, [99, 21], 0),
        ({"maxIndexFileNum": 1}, [21], 99),
    ],
)
def test_only_so_many_of_the_newest_files_are_kept(tmp_path, given, files, first):
    with ConfStore(tmp_path, given) as case:
        fill(case)

        assert counts(case) == files
        assert on_disk(case) == len(files)
        assert found(case) == list(range(first, HOURS * PER_HOUR))
        case.store.flush()  # nothing waits for the sync of a file that is gone


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_restart_goes_on_with_the_same_files(tmp_path, clean):
    given = {**SPAN, **NEWEST}
    clock = FakeClock()
    case = ConfStore(tmp_path, given, clock=clock)
    fill(case, hours=3)
    case.store.flush()
    fill(case, hours=3, first=3 * PER_HOUR)  # the oldest file goes after the last snapshot
    before = counts(case)
    if clean:
        case.store.close()
    else:
        case.store._parts.lock.release()

    with ConfStore(tmp_path, given, clock=clock) as again:
        assert not again.store.recovery_report.adopted
        assert counts(again) == before == [40, 40]
        assert found(again) == list(range(40, HOURS * PER_HOUR))


def test_an_adopted_store_has_its_rolled_files_kept(tmp_path):
    clock = FakeClock()
    with ConfStore(tmp_path, SPAN, clock=clock) as case:
        fill(case)
    (case.root / "orbitmq.snapshot").unlink()
    before = {path.name: path.read_bytes() for path in (case.root / "index").iterdir()}

    with ConfStore(tmp_path, SPAN, clock=clock) as again:
        assert again.store.recovery_report.adopted
        assert counts(again) == [40, 40, 40]
        assert found(again) == list(range(HOURS * PER_HOUR))
    assert {path.name: path.read_bytes() for path in (case.root / "index").iterdir()} == before


@pytest.mark.parametrize("given", [SPAN, NEWEST, {**SPAN, **NEWEST}])
def test_the_check_of_a_store_finds_nothing_wrong_with_these_files(tmp_path, given):
    with ConfStore(tmp_path, given) as case:
        fill(case)

    report = check_store(case.root, {**texts(given), **_sizes()})

    assert [str(finding) for finding in report.findings] == []


def test_without_the_option_missing_keys_are_damage(tmp_path):
    with ConfStore(tmp_path, {**SPAN, **NEWEST}) as case:
        fill(case)

    report = check_store(case.root, _sizes())

    assert any("in no index file" in str(finding) for finding in report.findings)


def _sizes() -> dict[str, str]:
    return {key: str(value) for key, value in SMALL.items()}


@pytest.mark.parametrize("key", ["indexFileRollInterval", "maxIndexFileNum"])
def test_a_negative_number_is_refused_by_its_key(tmp_path: Path, key):
    with pytest.raises(ConfigError, match=key):
        ConfStore(tmp_path, {key: -1})


def test_a_minute_is_enough_for_a_span(tmp_path):
    with ConfStore(tmp_path, {"indexFileRollInterval": MINUTE_MS}) as case:
        fill(case, hours=1)

        assert counts(case) == [1] * PER_HOUR
