"""Put a new file in place of an old one, so that after a power cut there is one of the two, whole."""

from collections.abc import Callable
from pathlib import Path

from orbitmq.errors import StoreError
from orbitmq.files.disk import Disk, exists, is_missing


def bak_path(path: Path) -> Path:
    """Return where the previous version of a file is kept."""
    return path.with_name(path.name + ".bak")


def read_whole(disk: Disk, path: Path) -> bytes | None:
    """Return the content of a small file, None if there is none."""
    try:
        fd = disk.open(path, writable=False)
    except StoreError as error:
        if is_missing(error):
            return None
        raise
    try:
        return disk.read_at(path, fd, 0, disk.length(path, fd))
    finally:
        disk.close(path, fd)


def replace_file(
    disk: Disk,
    path: Path,
    data: bytes,
    *,
    keep_bak: bool = False,
    worth_keeping: Callable[[Path], bool] = exists,
) -> None:
    """Write `data` as the new content of `path`, durable when this returns.

    With `keep_bak` the old file becomes `<name>.bak`, if it is worth it: a broken file must not
    replace a good .bak. A reader then finds one of the two whole at every moment.
    """
    new = path.with_name(path.name + ".tmp")
    make_durable_directory(disk, path.parent)
    write_durably(disk, new, data)
    if keep_bak and worth_keeping(path):
        disk.rename(path, bak_path(path))
        # On disk before the next step: else both names could lead to the same lost file.
        disk.sync_directory(path.parent)
    disk.rename(new, path)
    # The rename itself is durable only now.
    disk.sync_directory(path.parent)


def make_durable_directory(disk: Disk, directory: Path) -> None:
    """Make a directory if there is none; a power cut does not take it away again."""
    missing = [path for path in (directory, *directory.parents) if not exists(path)]
    disk.make_directory(directory)
    for path in missing:
        disk.sync_directory(path.parent)


def write_durably(disk: Disk, path: Path, data: bytes) -> None:
    """Write a file in place and sync it; its name is durable with its directory."""
    fd = disk.open(path, create=True)
    try:
        disk.truncate(path, fd, 0)
        disk.write_at(path, fd, 0, data)
        disk.sync_data(path, fd)
    finally:
        disk.close(path, fd)
