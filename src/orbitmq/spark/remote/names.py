"""A store's names and lengths in a directory here: what is planned from names needs nothing else.

The files are as long as the objects and hold nothing, but for the checkpoint and the first bytes of the last
segments; whoever opens one as a segment gets the bytes of the object (`log_read.segment.opened_by`).
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, cast

from orbitmq.errors import NotAStoreError, OrbitError, StoreError
from orbitmq.files.disk import Disk
from orbitmq.format.segment_name import parse_segment_name
from orbitmq.log_read import Gap, Segment, Split
from orbitmq.log_read.segment import opened_by
from orbitmq.spark.remote.address import Address, is_remote
from orbitmq.spark.shared_paths import without_log_paths

if TYPE_CHECKING:
    from orbitmq.spark.remote.objects import Found, Objects
    from orbitmq.store.verify.findings import Finding

LOG: Final = "commitlog"
CHECKPOINT: Final = "checkpoint"
_HEAD_BYTES: Final = 8
_STEP: Final = (
    "Give the address under which `commitlog` lies (a copy of a broker's storePathRootDir)."
)


@dataclass(frozen=True, slots=True)
class StoreNames:
    """A store directory, or what stands for one at a distance."""

    root: Path
    address: Address | None
    settings: Mapping[str, str] | None

    @property
    def shown(self) -> str:
        """What to call it."""
        return str(self.address or self.root)

    @property
    def is_remote(self) -> bool:
        return self.address is not None

    def split(self, split: Split) -> Split:
        """Return a split for a task, which knows nothing of this directory."""
        return split if self.address is None else split._replace(path=self._text(split.path))

    def gap(self, gap: Gap) -> Gap:
        """Return a gap with the name of the file that people know."""
        return gap if self.address is None else gap._replace(path=self._told(gap.path))

    def finding(self, finding: "Finding") -> "Finding":
        """Return what is wrong with a file of the copy here, told of the file itself."""
        # The path is shown only; `Path` would make one slash of the two.
        path = cast(Path, self._told(str(finding.path)))
        return replace(finding, path=path, cause=self._told(finding.cause))

    def _text(self, path: str) -> str:
        assert self.address is not None
        return self.address.below(str(PurePosixPath(path).relative_to(self.root))).text

    def _told(self, text: str) -> str:
        return text.replace(str(self.root), self.shown)

    def rename(self, error: OrbitError) -> None:
        """Let an error speak of the address, not of the directory that stands for it."""
        error.args = tuple(self._told(str(part)) for part in error.args)
        if isinstance(error, StoreError):
            error.path = Path(self._told(str(error.path)))


@contextmanager
def store_names(
    path: str | Path, settings: Mapping[str, str] | None = None
) -> Iterator[StoreNames]:
    """Yield the store at a path, or the names of one at an address. NotAStoreError: nothing is there."""
    if not is_remote(path):
        yield StoreNames(Path(path), None, settings)
        return
    # With the package that speaks to object stores, which reads of directories do without.
    from orbitmq.spark.remote.objects import objects_at
    from orbitmq.spark.remote.segment import open_remote

    address = Address.of(path)
    objects = objects_at(address)
    found = store_objects(objects)
    with TemporaryDirectory(prefix="orbitmq-names-") as directory:
        names = StoreNames(Path(directory), address, without_log_paths(settings))
        _make(names.root, found, objects)
        lengths = {str(names.root / item.name): item.length for item in found}

        def opened(text: str, base_offset: int) -> Segment:
            below = address.below(str(PurePosixPath(text).relative_to(names.root)))
            return open_remote(below, base_offset, lengths.get(text), sliding=True)

        try:
            with opened_by(names.root, opened):
                yield names
        except OrbitError as error:
            names.rename(error)
            raise


def store_objects(objects: "Objects") -> "list[Found]":
    """Return the files of a store. NotAStoreError: there are none."""
    found = [item for item in objects.list() if _is_file(item.name)]
    if not any(item.name.startswith(f"{LOG}/") for item in found):
        what = "is no message store: no object lies below its commitlog"
        raise NotAStoreError(objects.address.url, what, _STEP)
    return found


def _is_file(name: str) -> bool:
    """Some tools make objects that stand for directories; and no name may lead out of one."""
    return not name.endswith("/") and not {"", ".", ".."} & set(name.split("/"))


def _make(root: Path, found: "Sequence[Found]", objects: "Objects") -> None:
    disk = Disk()
    for directory in sorted({(root / item.name).parent for item in found}):
        disk.make_directory(directory)
    for item in found:
        (root / item.name).touch()
        os.truncate(root / item.name, item.length)
    checkpoint = objects.read(CHECKPOINT) if any(one.name == CHECKPOINT for one in found) else None
    if checkpoint:
        (root / CHECKPOINT).write_bytes(checkpoint)
    _make_heads(root, found, objects)


def _make_heads(root: Path, found: "Sequence[Found]", objects: "Objects") -> None:
    """Fetch the first bytes of segments, from the last one back to the last that was written to."""
    names = [item for item in found if _is_segment(item) and item.length >= _HEAD_BYTES]
    for item in reversed(names):
        (head,) = objects.read_ranges(item.name, [(0, _HEAD_BYTES)])
        with (root / item.name).open("r+b") as file:
            file.write(head)
        if any(head):
            return


def _is_segment(item: "Found") -> bool:
    directory, _, name = item.name.partition("/")
    return directory == LOG and parse_segment_name(name) is not None
