"""Stores written by a real RocketMQ broker, and what that broker says about them.

`tests/golden/README.md` tells what each archive is. Nothing here interprets a store: the functions
unpack, damage and read the manifests, and the tests compare.
"""

import gzip
import json
import os
import shutil
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).with_name("golden")
STORES = ("mixed", "crashed", "cleaned", "ext", "batchcq", "propcrc", "timer", "indexroll")

Row = dict[str, Any]


def unpack(name: str, target: Path) -> Path:
    """Unpack a store below `target`; return its root. Every call gives a fresh copy.

    Its files are as new as those of a broker that has just stopped: segments whose time to be kept is
    over would be deleted, and the archives get older every day.
    """
    root = target / name
    if root.exists():
        shutil.rmtree(root)
    target.mkdir(parents=True, exist_ok=True)
    for entry, content in _entries(name):
        path = target / entry.name
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content)
    return root


@cache
def _entries(name: str) -> list[tuple[tarfile.TarInfo, bytes | None]]:
    """Return what an archive holds, None for the content of a directory: hundreds of tests ask for one."""
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
        files = ((entry, archive.extractfile(entry)) for entry in archive)
        return [(entry, None if file is None else file.read()) for entry, file in files]


@cache
def manifest(name: str) -> list[Row]:
    """Return all rows that the Java store gave for a store. Shared between tests: do not change them."""
    return _read_rows(GOLDEN / f"{name}.manifest.jsonl.gz")


@cache
def rows(name: str, row_type: str) -> list[Row]:
    """Return the manifest's rows of one type ("record", "queue", "keyQuery", ...), in order."""
    return [row for row in manifest(name) if row["type"] == row_type]


def row(name: str, row_type: str) -> Row:
    """Return the manifest's only row of a type ("opened", "checkpointAsShipped")."""
    (found,) = rows(name, row_type)
    return found


@cache
def acks(name: str) -> list[Row]:
    """Return what the producers saw acknowledged, in that order."""
    return _read_rows(GOLDEN / f"{name}.acks.jsonl.gz")


def settings(name: str) -> dict[str, str]:
    """Return the broker's settings that a reader must be given: they are not in the files."""
    lines = (GOLDEN / f"{name}.conf").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line)


def torn_variants() -> list[str]:
    """Return the names of the damaged variants of `crashed`; the first, "none", is undamaged."""
    return list(_patches())


def torn_variant(variant: str) -> Row:
    """Return what a variant is: "what" in words, "steps", and "record", "queue" or "query" if it has one."""
    return _patches()[variant]


def torn_results(variant: str) -> list[Row]:
    """Return what the Java store made of a variant: its rows, each with "variant" and "type"."""
    return [result for result in _torn_rows() if result["variant"] == variant]


def damage(copy: Path, variant: str) -> Path:
    """Damage an unpacked copy of `crashed` as the variant says; return the same root."""
    for step in torn_variant(variant)["steps"]:
        _apply(copy / step["file"], step)
    return copy


def _apply(path: Path, step: Row) -> None:
    if step.get("delete"):
        path.unlink()
    elif "truncate" in step:
        os.truncate(path, step["truncate"])
    elif "create" in step:
        path.write_bytes(bytes.fromhex(step["create"]))
    else:
        _overwrite(path, step["offset"], bytes.fromhex(step["old"]), bytes.fromhex(step["new"]))


def _overwrite(path: Path, position: int, old: bytes, new: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        if file.read(len(old)) != old:
            raise ValueError(f"{path}: not the bytes that this damage was made for, at {position}")
        file.seek(position)
        file.write(new)


@cache
def _patches() -> dict[str, Row]:
    loaded: dict[str, Row] = json.loads((GOLDEN / "torn.patches.json").read_text(encoding="utf-8"))
    return loaded


@cache
def _torn_rows() -> list[Row]:
    return _read_rows(GOLDEN / "torn.results.jsonl.gz")


def _read_rows(path: Path) -> list[Row]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
