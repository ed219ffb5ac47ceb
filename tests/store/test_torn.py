"""Every damaged variant of a real crashed store: nothing valid is given up, every fault has a name."""

import hashlib
import itertools
from pathlib import Path

import pytest

from golden_stores import rows, torn_variant, torn_variants
from orbitmq.format.record import decode_record
from orbitmq.store.index.key_query import COUNT_MAX
from orbitmq.store.store import MessageStore
from orbitmq.store.verify.findings import Kind, Severity
from torn_runs import Run, config_of, damaged, java, run, table_lines

VARIANTS = torn_variants()
DOCUMENT = Path(__file__).parents[2] / "docs" / "RECOVERY.md"

LAST, BEFORE_LAST = 1703936, 1701222
CUT = {
    "tail-half": [LAST],
    "tail-size-only": [LAST],
    "flip-last": [LAST],
    "tail-mid-file": [BEFORE_LAST, LAST],
}
"""Records at the end of the log that are really gone."""
FILLED = {"flip-early": 67274, "flip-late": 1532493, "flip-late-clean": 1532493}
"""Damaged records in the middle: a filler stands in their place."""
CHANGED = ("tail-props-zero", "tail-no-props", "bad-physical-offset")
"""The damaged record still passes all checks and is kept as it is."""

LOG, INDEX = "commitlog/%020d", "index/20261115185754065"
QUEUE_FIRST = "consumequeue/CrashAa/2/00000000000000000000"
QUEUE_LAST = "consumequeue/CrashAa/2/00000000000000002000"
NAMED = {
    "tail-half": (Kind.TAIL, LOG % 1703936, 0),
    "tail-props-zero": (Kind.PROPERTIES, LOG % 1703936, 0),
    "tail-size-only": (Kind.TAIL, LOG % 1703936, 0),
    "tail-no-props": (Kind.PROPERTIES, LOG % 1703936, 0),
    "tail-mid-file": (Kind.TAIL, LOG % 1638400, 62822),
    "flip-early": (Kind.RECORD, LOG % 65536, 67274 - 65536),
    "flip-late": (Kind.RECORD, LOG % 1507328, 1532493 - 1507328),
    "flip-late-clean": (Kind.RECORD, LOG % 1507328, 1532493 - 1507328),
    "flip-last": (Kind.TAIL, LOG % 1703936, 0),
    "bad-physical-offset": (Kind.STORED_OFFSET, LOG % 1507328, 1532493 - 1507328),
    "blank-lost": (Kind.BLANK, LOG % 1638400, 63108),
    "no-abort": (Kind.CHECKPOINT, "checkpoint", 8),
    "no-checkpoint": (Kind.CHECKPOINT, "checkpoint", 0),
    "checkpoint-zero": (Kind.CHECKPOINT, "checkpoint", 0),
    "log-short": (Kind.FILE, LOG % 1703936, 65535),
    "log-empty-next": (Kind.FILE, LOG % 1769472, 0),
    "index-chain-past-end": (Kind.CHAIN, INDEX, 9496),
    "index-chain-self": (Kind.CHAIN, INDEX, 9496),
    "index-chain-zero": (Kind.CHAIN, INDEX, 9496),
    "index-slot-past-end": (Kind.CHAIN, INDEX, 1692),
    "index-missing": (Kind.INDEX, "index/20261115185750429", 0),  # the keys should follow this one
    "cq-missing-first": (Kind.QUEUE, QUEUE_FIRST, 0),
    "cq-missing-last": (Kind.QUEUE, QUEUE_LAST, 0),
    "cq-missing-all": (Kind.QUEUE, QUEUE_FIRST, 0),
    "cq-missing-all-clean": (Kind.QUEUE, QUEUE_FIRST, 0),
    "cq-none": (Kind.QUEUE, "consumequeue", 0),
    "cq-none-clean": (Kind.QUEUE, "consumequeue", 0),
    "cq-zero-unit": (Kind.QUEUE, QUEUE_LAST, 360),
    "cq-wrong-size": (Kind.QUEUE, QUEUE_LAST, 360),
    "cq-wrong-offset": (Kind.QUEUE, QUEUE_LAST, 360),
    "cq-ahead": (Kind.QUEUE, QUEUE_LAST, 400),
    "cq-wrong-tag-early": (Kind.QUEUE, QUEUE_FIRST, 200),
}
"""What `check` must say before the store is opened: kind, file, position."""


# Of the module: so the tests of a variant follow each other, in one process, and it is opened once.
@pytest.fixture(scope="module", params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def done(variant: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(variant, tmp_path_factory.mktemp("torn"))


def valid_records(variant: str) -> list[dict]:
    gone = [*CUT.get(variant, []), FILLED.get(variant), torn_variant(variant).get("record")]
    if variant == "blank-lost":
        gone = []
    return [row for row in rows("crashed", "record") if row["phyOffset"] not in gone]


def test_there_are_32_variants_besides_the_undamaged_store() -> None:
    assert len(VARIANTS) == 33
    assert set(NAMED) == set(VARIANTS) - {"none"}


def test_we_keep_at_least_what_the_java_store_keeps(variant: str, done: Run) -> None:
    theirs = java(variant)

    assert done.max_offset >= (theirs.max_offset or 0)
    assert done.units >= (theirs.units or 0)


def test_every_place_of_every_queue_is_kept(variant: str, done: Run) -> None:
    cut = CUT.get(variant, [])

    assert done.units == 1653 - len(cut)
    assert done.max_offset == (cut[0] if cut else 1706772)
    assert all(low == 0 for low, _ in done.queues.values())


def test_every_undamaged_message_is_read_with_its_content(variant: str, done: Run) -> None:
    for row in valid_records(variant):
        record = done.records[row["phyOffset"]]
        assert hashlib.sha256(record.body).hexdigest() == row["bodySha256"]
        assert (record.topic, record.queue_id) == (row["topic"], row["queueId"])
        assert record.queue_offset == row["queueOffset"]
        assert record.properties.decode() == row["propertiesString"]


def test_only_what_is_damaged_differs(variant: str, done: Run) -> None:
    kept = {row["phyOffset"] for row in valid_records(variant)}
    odd = {torn_variant(variant)["record"]} if variant in CHANGED else set()

    assert set(done.records) == kept | odd
    assert not any(record.is_filler for record in done.records.values())


def test_a_damaged_record_in_the_middle_lies_in_quarantine(variant: str, done: Run) -> None:
    kept = [path.name for path in done.report.kept]

    if variant in FILLED:
        row = next(r for r in rows("crashed", "record") if r["phyOffset"] == FILLED[variant])
        assert kept == [f"{row['phyOffset']}-{row['size']}.bin"]
    elif variant in CUT:
        assert kept[0].startswith(f"{CUT[variant][0]}-")
    else:
        assert kept == []


def test_check_names_the_planted_fault(variant: str, done: Run, tmp_path: Path) -> None:
    if variant == "none":
        assert done.before.findings == ()
        return
    kind, file, position = NAMED[variant]

    found = [
        finding
        for finding in done.before.findings
        if finding.kind is kind and finding.path.as_posix().endswith(f"crashed/{file}")
    ]

    assert position in [finding.position for finding in found]
    assert all(finding.cause and finding.advice for finding in found)


def test_after_opening_nothing_is_wrong_any_more(variant: str, done: Run) -> None:
    assert done.after.errors == ()
    assert done.after.lagging == 0
    notes = {finding.kind for finding in done.after.findings}
    allowed = {Kind.STORED_OFFSET, Kind.PROPERTIES} if variant in CHANGED else set()
    assert notes <= allowed
    assert all(finding.severity is Severity.NOTE for finding in done.after.findings)


def test_the_second_opening_reads_nothing_of_the_log(done: Run) -> None:
    assert done.report.adopted
    assert not done.second.adopted
    assert done.second.clean
    assert (done.second.records, done.second.repairs) == (0, ())
    assert done.second.end_offset == done.max_offset


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.startswith(("index", "none"))])
def test_every_key_finds_its_message_although_the_index_was_damaged(
    variant: str, tmp_path: Path
) -> None:
    root = damaged(variant, tmp_path)
    with MessageStore.open(config_of(root), background=False) as store:
        for row in rows("crashed", "record"):
            unique = row["properties"].get("UNIQ_KEY")
            if unique:
                # In its time: else each key is looked for in all files.
                about = row["storeTimestamp"] - 2_000, row["storeTimestamp"] + 2_000
                found = store.query(row["topic"], unique, COUNT_MAX, *about)
                assert row["phyOffset"] in [decode_record(raw).log_offset for raw in found]


def test_a_filler_keeps_topic_queue_and_number_of_the_lost_message(tmp_path: Path) -> None:
    root = damaged("flip-late", tmp_path)
    with MessageStore.open(config_of(root), background=False):
        pass

    segment = (root / "commitlog" / f"{1507328:020d}").read_bytes()
    row = next(r for r in rows("crashed", "record") if r["phyOffset"] == FILLED["flip-late"])
    filler = decode_record(segment, row["phyOffset"] - 1507328)
    assert filler.is_filler
    assert (filler.topic, filler.queue_id, filler.queue_offset, filler.size) == (
        row["topic"],
        row["queueId"],
        row["queueOffset"],
        row["size"],
    )


def documented() -> list[str]:
    """Return the lines of the table in the document, its head first."""
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    start = lines.index(table_lines({})[0])
    return list(itertools.takewhile(lambda line: line.startswith("|"), lines[start:]))


def test_the_table_in_the_document_shows_what_really_happens(variant: str, done: Run) -> None:
    *head, line = table_lines({variant: done})

    assert documented()[: len(head)] == head
    place = len(head) + VARIANTS.index(variant)
    assert documented()[place] == line, "paste what `python tests/torn_runs.py` prints"


def test_the_table_in_the_document_has_no_other_variant() -> None:
    assert len(documented()) == len(table_lines({})) + len(VARIANTS)
