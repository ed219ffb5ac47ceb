"""What an opening leaves on disk before anything else: the directory, and the mark of a running store."""

import os

from orbitmq.files.disk import Disk
from orbitmq.files.layout import StoreLayout


def make_root(layout: StoreLayout, disk: Disk) -> None:
    """Make the store's directory if there is none; a power cut does not take it away again."""
    missing = [path for path in (layout.root, *layout.root.parents) if not path.exists()]
    disk.make_directory(layout.root)
    for path in missing:
        disk.sync_directory(path.parent)


def write_abort(layout: StoreLayout, disk: Disk) -> None:
    """Leave the mark of a running store, durable before anything else is written."""
    fd = disk.open(layout.abort, create=True)
    try:
        disk.truncate(layout.abort, fd, 0)
        disk.write_at(layout.abort, fd, 0, str(os.getpid()).encode())
        disk.sync_data(layout.abort, fd)
    finally:
        disk.close(layout.abort, fd)
    disk.sync_directory(layout.root)
