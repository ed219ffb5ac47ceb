"""A lake in an object store: the steps of a commit by puts, copies and conditions.

    _orbitmq/lock                     a lease: who has the lake, renewed as long as he lives
    _orbitmq/attempts/<job>/          files of tasks
    _orbitmq/pending/00000002.json    a commit that has begun, made by a put that only one can do
    _orbitmq/commits/00000001.json    a manifest, likewise

A put is durable and seen whole, so nothing has to be synced. A rename is a copy inside the store, and the
files of attempts go when all is done. A lease can be lost by whoever sleeps for too long. So it only saves
work that would be for nothing; what decides is that of each number there is one manifest.
"""

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Final

import msgspec

from orbitmq.errors import MissingObjectError, PipelineError, StateFileError
from orbitmq.files.disk import Disk
from orbitmq.spark.jobs.export.lake_rows import LakeRows
from orbitmq.spark.jobs.export.lakes.attempts import RemoteAttempts
from orbitmq.spark.jobs.export.lakes.here import part_is_gone
from orbitmq.spark.jobs.export.notes import DIRECTORY, STEP, LakeFile, Manifest
from orbitmq.spark.jobs.export.options import Format
from orbitmq.spark.jobs.export.tables import Tables
from orbitmq.spark.remote.address import Address
from orbitmq.spark.remote.lease import Lease
from orbitmq.spark.remote.objects import Objects, objects_at

COMMITS: Final = f"{DIRECTORY}/commits"
PENDING: Final = f"{DIRECTORY}/pending"
ATTEMPTS: Final = f"{DIRECTORY}/attempts"
LOCK: Final = f"{DIRECTORY}/lock"
REQUESTS: Final = 8
_DAY: Final = re.compile(r"[^/]+/day=(\d{4}-\d\d-\d\d)/")


class RemoteNotes:
    """The notes of one lake (`lake.LakeNotes`)."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def numbers(self) -> list[int]:
        return [int(PurePosixPath(one.name).stem) for one in self._objects.list(COMMITS)]

    def done(self, number: int) -> Manifest:
        found = self._read(_name(COMMITS, number))
        if found is None:
            url = self._objects.address.below(_name(COMMITS, number)).url
            raise StateFileError(url, "is gone", STEP)
        return found

    def last(self) -> Manifest | None:
        found = self.numbers()
        return self.done(found[-1]) if found else None

    def pending(self) -> Manifest | None:
        for found in self._objects.list(PENDING):
            begun = self._read(found.name)
            done = self._read(_name(COMMITS, begun.number)) if begun is not None else None
            if done is None or begun is None or done.job == begun.job:
                return begun
            self._objects.delete([found.name])  # of one that slept while another did this number
        return None

    def begin(self, manifest: Manifest) -> None:
        name = _name(PENDING, manifest.number)
        if self._objects.create(name, msgspec.json.encode(manifest)) is None:
            raise self._outrun(manifest)
        # Whoever did this number while we slept has taken his note away, but not before this:
        if self._read(_name(COMMITS, manifest.number)) is not None:
            self._objects.delete([name])
            raise self._outrun(manifest)

    def end(self, manifest: Manifest) -> None:
        name = _name(COMMITS, manifest.number)
        if self._objects.create(name, msgspec.json.encode(manifest)) is None:
            done = self._read(name)
            if done is None or done.job != manifest.job:
                raise self._outrun(manifest)
        self._objects.delete([_name(PENDING, manifest.number)])

    def _outrun(self, manifest: Manifest) -> PipelineError:
        what = f"{self._objects.address}: another export has made commit {manifest.number}"
        return PipelineError(what, "Nothing was done twice; run the export again.")

    def _read(self, name: str) -> Manifest | None:
        data = self._objects.read(name)
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=Manifest)
        except msgspec.MsgspecError as error:
            url = self._objects.address.below(name).url
            raise StateFileError(url, f"is no manifest ({error})", STEP) from error


class RemoteLake:
    """The objects below an address (`lake.Lake`)."""

    def __init__(self, root: Address, catalog: str) -> None:
        self.root, self.catalog = root, catalog
        self._objects = objects_at(root)
        self.notes = RemoteNotes(self._objects)
        self._lease: Lease | None = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        with Lease(self._objects, LOCK) as self._lease:
            yield

    def attempt_files(self, job: str) -> RemoteAttempts:
        return RemoteAttempts(f"{ATTEMPTS}/{job}", job, "export", lake=self.root)

    def part_length(self, path: str) -> int:
        length = self._objects.length(path)
        return -1 if length is None else length

    def below(self, path: str) -> str:
        return path

    def settle(self, files: Sequence[LakeFile]) -> None:
        """Uploads are durable; look once more that the lake is ours."""
        if self._lease is not None:
            self._lease.require_held()

    def give_names(self, files: Sequence[LakeFile]) -> None:
        with ThreadPoolExecutor(REQUESTS, thread_name_prefix="orbitmq-names") as threads:
            for _ in threads.map(self._give_name, files):
                pass

    def _give_name(self, file: LakeFile) -> None:
        if self._objects.length(file.path) == file.bytes:
            return
        try:
            self._objects.copy(file.part, file.path)
        except MissingObjectError:
            raise part_is_gone(self.root.below(file.part).url) from None

    def tables(self, format_: Format, rows: LakeRows) -> Tables:
        match format_:
            case Format.DELTA:
                from orbitmq.spark.jobs.export.delta import DeltaTables

                return DeltaTables(self.root, rows)
            case Format.ICEBERG:
                from orbitmq.spark.jobs.export.iceberg import IcebergTables

                return IcebergTables(self.root, rows, self.catalog)
            case _:
                return RemotePlainTables(self._objects)

    def sync(self, tables: Tables) -> None:
        """What was put is durable."""

    def has_table(self, name: str) -> bool:
        return bool(self._objects.list(name))

    def has_file(self, name: str) -> bool:
        return self._objects.length(name) is not None

    def remove_attempts(self) -> None:
        self._objects.delete([found.name for found in self._objects.list(ATTEMPTS)])


class RemotePlainTables:
    """Parquet files under names of tables and days (`tables.Tables`)."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def commit(self, table: str, files: Sequence[LakeFile], manifest: Manifest) -> None:
        """Files that have their names are all that is needed."""

    def expire(self, table: str, before: str) -> None:
        """Remove the files of these days."""
        days = ((found.name, _DAY.match(found.name)) for found in self._objects.list(table))
        self._objects.delete([name for name, day in days if day is not None and day[1] < before])

    def replace(
        self, table: str, files: Sequence[LakeFile], old: Sequence[str], manifest: Manifest
    ) -> None:
        """Remove what the new files stand for."""
        self._objects.delete(old)

    def files(self, table: str, commit: int) -> None:
        """Nobody rewrites them."""

    def sync(self, disk: Disk) -> None:
        """What was put is durable."""


def _name(below: str, number: int) -> str:
    return f"{below}/{number:08}.json"
