"""What a lake holds after one commit: its files, and which messages of its source they are.

Commits are whole or not there: the newest manifest counts, and nothing of a commit that has begun since,
although some of its files may be in their places already. Removing days is the exception, for it can only be
counted as done: what is half removed cannot be read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow.parquet as pq

from orbitmq.errors import ConfigError, PipelineError
from orbitmq.spark.jobs.export.covered import Covered, Key, Span
from orbitmq.spark.jobs.export.lake_rows import LakeRows
from orbitmq.spark.jobs.export.lakes.files import file_bytes, open_parquet
from orbitmq.spark.jobs.export.lakes.lake import lake_at
from orbitmq.spark.jobs.export.names import place_of, table_name
from orbitmq.spark.jobs.export.notes import Anchor, LakeFile, Manifest, covered_by
from orbitmq.spark.jobs.export.options import Format, catalog_of
from orbitmq.spark.remote.address import Address
from orbitmq.spark.source.held import Held, HeldSpan, Spans

TRIES: Final = 5
"""Looks at a lake from which days are being removed meanwhile."""
_ANY: Final = 2**62


class LakePart(NamedTuple):
    """A Parquet file of a lake. Travels to tasks."""

    topic: str
    path: str
    bytes: int
    first_log_offset: int
    last_log_offset: int
    first_ms: int | None  # None: no row has a time
    last_ms: int | None
    table: str = ""
    order: tuple[str, ...] = ()  # by which its rows are sorted; none: as the log has them


class Expiry(NamedTuple):
    """A commit that removed days: what the lake held then, and by topic the time before which all went."""

    number: int
    covered: Covered
    before: Mapping[str, int]

    @classmethod
    def of(cls, manifest: Manifest, covered: Covered) -> "Expiry":
        names = {table_name(one, dlq=dlq): one for one in manifest.values for dlq in (False, True)}
        before = {names[table]: day_ms(day) for table, day in manifest.expired.items()}
        return cls(manifest.number, covered, before)

    def span(self, key: Key) -> Span | None:
        return self.covered.spans.get(key, self.covered.others)


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake after one commit. Immutable."""

    root: Path | Address
    source: str  # what its offsets count: log, queues
    covered: Covered
    anchor: Anchor | None
    files: Sequence[LakePart]
    expiries: Sequence[Expiry] = ()

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def held(self, firsts: Mapping[Key, int]) -> Held:
        """Return which messages of the source are here. `firsts`: where the source began before this look."""
        covered, expiries = self.covered, self.expiries
        keys: dict[Key, Span] = dict(covered.spans)
        if (
            covered.others is not None
        ):  # topics without a range of their own, of which days were removed
            keys = {(topic,): covered.others for one in expiries for topic in one.before} | keys
        spans = {key: _pieces(key, span, expiries) for key, span in keys.items()}
        others = () if covered.others is None else (HeldSpan(*covered.others),)
        return Held(spans, others, firsts)


def _pieces(key: Key, span: Span, expiries: Sequence[Expiry]) -> Spans:
    """Cut a range where days were removed from a part of it only: the rest came later."""
    removed = [
        (where, one.before[str(key[0])])
        for one in expiries
        if str(key[0]) in one.before and (where := one.span(key)) is not None
    ]
    bounds = {bound for where, _ in removed for bound in where if span.start < bound < span.end}
    edges = [span.start, *sorted(bounds), span.end]
    made = []
    for start, end in pairwise(edges):
        since = [time for where, time in removed if where.start <= start and end <= where.end]
        made.append(HeldSpan(start, end, max(since, default=None)))
    return tuple(made)


def day_ms(day: str) -> int:
    """Return when a day (2026-11-18) begins, UTC."""
    return round(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000)


def read_lake(root: Path | Address, catalog: str = "") -> Lake:
    """Look at a lake. ConfigError: there is none; StateFileError: a manifest cannot be read.

    `catalog` is the database of Iceberg tables at s3://.
    """
    notes = _Look(root, catalog)
    for _ in range(TRIES):
        found = notes.look()
        if found is not None:
            return found
    what = f"{root}: days are being removed again and again"
    raise PipelineError(what, "Ask again when that is done.")


class _Look:
    """Looks at one lake, again if days went meanwhile. Not thread-safe."""

    def __init__(self, root: Path | Address, catalog: str) -> None:
        self._root, self._lake = root, lake_at(root, catalog=catalog)
        self._notes = self._lake.notes
        self._manifests: dict[int, Manifest] = {}

    def look(self) -> Lake | None:
        """Return what the lake holds; None: files were removed while it was listed."""
        manifests, removals = self._state()
        if not manifests:
            rule = "is no directory that `orbitmq spark export` made, or nothing is in it yet"
            raise ConfigError("lake", str(self._root), rule)
        last = manifests[-1]
        catalog_of(self._root, last.format, self._lake.catalog)
        expiries = [Expiry.of(one, covered_by(one, self._root)) for one in removals]
        files = list(_left(self._files(manifests), expiries))
        now = self._state()
        if len(now[1]) != len(removals) or _rewritten(now[0]) != _rewritten(manifests):
            return None
        covered = covered_by(last, self._root)
        return Lake(self._root, last.source, covered, last.anchor, files, expiries)

    def _state(self) -> tuple[list[Manifest], list[Manifest]]:
        """Return all commits that are done, and those that removed days or are about to."""
        pending = self._notes.pending()  # first: one that is done meanwhile is among the manifests
        for number in self._notes.numbers():
            if number not in self._manifests:
                self._manifests[number] = self._notes.done(number)
        manifests = [self._manifests[number] for number in sorted(self._manifests)]
        if manifests and pending and pending.number > manifests[-1].number:
            manifests += [pending] if self._has_replaced(pending) else []
        removals = {one.number: one for one in (*manifests, pending) if one and one.expired}
        return manifests, list(removals.values())

    def _has_replaced(self, pending: Manifest) -> bool:
        """Tell whether a commit has begun to remove files of directories for new ones, which are there."""
        if not pending.replaced or pending.format != Format.PARQUET:
            return False
        return all(self._lake.has_file(file.path) for file in pending.files)

    def _files(self, manifests: Sequence[Manifest]) -> Iterator[tuple[LakePart, int]]:
        """Yield all files, and the commits after which only a removal of days can have changed them."""
        last, noted = manifests[-1], self._noted(manifests)
        tables = self._lake.tables(Format(last.format), LakeRows(last.values))
        for topic in sorted(last.values):
            for table in (table_name(topic), table_name(topic, dlq=True)):
                mine = noted.get(table, {})
                names = tables.files(table, last.number)
                if names is None:
                    yield from mine.values()
                else:  # the table itself knows what is left
                    for name in names:
                        known = mine.get(name)
                        yield (
                            known[0] if known else self._by_footer(topic, table, name),
                            last.number,
                        )

    def _noted(self, manifests: Sequence[Manifest]) -> dict[str, dict[str, tuple[LakePart, int]]]:
        """Return by table and name what exports have written, and in which commits."""
        noted: dict[str, dict[str, tuple[LakePart, int]]] = {}
        for manifest in manifests:
            for table, old in manifest.replaced.items():
                for name in old:
                    noted.get(table, {}).pop(name, None)
            for file in manifest.files:
                noted.setdefault(file.table, {})[file.path] = self._part(file), manifest.number
        return noted

    def _part(self, file: LakeFile) -> LakePart:
        return LakePart(
            file.topic,
            place_of(self._root, file.path),
            file.bytes,
            file.first_log_offset,
            file.last_log_offset,
            file.first_ms,
            file.last_ms,
            file.table,
            tuple(file.order),
        )

    def _by_footer(self, topic: str, table: str, name: str) -> LakePart:
        """Return a file that no export wrote: another engine has made it of others."""
        path = place_of(self._root, name)
        with open_parquet(self._root, path) as file:
            offsets = _range(file.metadata, "log_offset") or (0, _ANY)
            low, high = _range(file.metadata, "store_time") or (-_ANY, _ANY)
        length = file_bytes(self._root, path)
        return LakePart(topic, path, length, *offsets, low // 1000, high // 1000, table)


def _rewritten(manifests: Sequence[Manifest]) -> list[int]:
    return [one.number for one in manifests if one.replaced]


def _left(files: Iterable[tuple[LakePart, int]], expiries: Sequence[Expiry]) -> Iterator[LakePart]:
    """Yield the files that no later commit removed. A file is of one day."""
    for part, commit in files:
        gone = [one.before.get(part.topic, 0) for one in expiries if one.number > commit]
        if part.last_ms is None or part.last_ms >= max(gone, default=part.last_ms):
            yield part


def _range(footer: pq.FileMetaData, name: str) -> tuple[int, int] | None:
    """Return the lowest and highest value of a column of numbers, None if the file does not tell."""
    columns = {footer.schema.column(at).path: at for at in range(footer.num_columns)}
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    found = [group.column(columns[name]).statistics for group in groups]
    if not found or not all(one is not None and one.has_min_max for one in found):
        return None
    return min(one.min_raw for one in found), max(one.max_raw for one in found)
