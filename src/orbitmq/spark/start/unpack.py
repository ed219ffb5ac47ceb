"""Stands for the package where it came to an executor as one archive; see `package`.

The archive has this file as `orbitmq/__init__.py` and the package itself as `payload/`. Importing it unpacks
the payload, once per machine and version, and goes on there: numba keeps compiled code beside a module's
file, and finds it again only if that file is at the same place the next time.

Nothing of the package can be imported here.
"""

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

DIGEST = "@digest@"
PAYLOAD = "payload/"


def unpack(archive: Path) -> Path:
    """Return the directory that holds the unpacked package."""
    name = f"package-{DIGEST}"
    last: OSError | None = None
    for place in places():
        try:
            return unpack_to(archive, place / name)
        except OSError as error:
            last = error
    raise ImportError(f"{archive}: no directory to unpack it to can be written to") from last


def places() -> Iterator[Path]:
    """Yield where an executor may keep files: the user's cache, its own working directory, any."""
    cache = os.environ.get("XDG_CACHE_HOME")
    if cache:
        yield Path(cache) / "orbitmq"
    with suppress(RuntimeError):  # a user without a home directory
        yield Path.home() / ".cache" / "orbitmq"
    yield Path.cwd()
    yield Path(tempfile.mkdtemp(prefix="orbitmq-"))


def unpack_to(archive: Path, target: Path) -> Path:
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # Other workers do the same at this moment: whole directories are put in place, the first one stays.
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        with zipfile.ZipFile(archive) as packed:
            members = [name for name in packed.namelist() if name.startswith(PAYLOAD)]
            packed.extractall(fresh, members)
        try:
            (fresh / PAYLOAD).rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target


if __name__ == "orbitmq":  # in the archive: <archive>/orbitmq/__init__.py
    _directory = unpack(Path(__file__).parents[1]) / "orbitmq"
    __path__ = [str(_directory)]
    exec(compile((_directory / "__init__.py").read_text(), str(_directory / "__init__.py"), "exec"))
