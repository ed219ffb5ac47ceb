"""Bytes of the golden stores, read straight out of the archives: for tests that need no directory."""

import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath

from golden_stores import GOLDEN


@cache
def files(name: str, folder: str) -> dict[str, bytes]:
    """Return the content of every file below a folder of a store, by its path inside that folder."""
    start = PurePosixPath(name, folder)
    found = {}
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            if member.isfile() and path.is_relative_to(start):
                content = archive.extractfile(member)
                assert content is not None
                found[str(path.relative_to(start))] = content.read()
    return dict(sorted(found.items()))


@cache
def segments(name: str) -> tuple[tuple[int, bytes], ...]:
    """Return base offset and bytes of every segment of a store's commit log, in order."""
    return tuple((int(path), data) for path, data in files(name, "commitlog").items())


@cache
def joined_log(name: str) -> tuple[int, bytes]:
    """Return the base offset of a store's commit log, and all of its bytes in one piece."""
    parts = segments(name)
    return parts[0][0], b"".join(data for _, data in parts)


def records(name: str, rows: list[dict]) -> Iterator[tuple[dict, bytes]]:
    """Yield each of the manifest's record rows with the record's bytes."""
    base, log = joined_log(name)
    for row in rows:
        start = row["phyOffset"] - base
        yield row, log[start : start + row["size"]]
