"""What an opening leaves on disk before anything else: the mark of a running store."""

import os

from orbitmq.files.disk import Disk
from orbitmq.files.layout import StoreLayout


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
