"""A disk that passes every call on to another: the base of the fakes."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from orbitmq.files.disk import Disk, FilePath

P = ParamSpec("P")
T = TypeVar("T")


def passed_on(operation: Callable[Concatenate[Disk, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a method that does this operation of a disk on the inner one."""
    name = operation.__name__

    @functools.wraps(operation)
    def call(self: "ForwardingDisk", /, *arguments: P.args, **named: P.kwargs) -> T:
        result: T = getattr(self.inner, name)(*arguments, **named)
        return result

    return call


class ForwardingDisk(Disk):
    """A disk that passes every call on to another; fakes override what they change."""

    def __init__(self, disk: Disk | None = None) -> None:
        self.inner = disk or Disk()
        self.mappings = self.inner.mappings

    open = passed_on(Disk.open)
    close = passed_on(Disk.close)
    length = passed_on(Disk.length)
    read_at = passed_on(Disk.read_at)
    write_at = passed_on(Disk.write_at)
    truncate = passed_on(Disk.truncate)
    allocate = passed_on(Disk.allocate)
    zero = passed_on(Disk.zero)
    map = passed_on(Disk.map)
    sync_data = passed_on(Disk.sync_data)
    sync_directory = passed_on(Disk.sync_directory)
    sync_file_system = passed_on(Disk.sync_file_system)
    rename = passed_on(Disk.rename)
    remove = passed_on(Disk.remove)
    remove_directory = passed_on(Disk.remove_directory)
    make_directory = passed_on(Disk.make_directory)

    def exchange(self, first: FilePath, second: FilePath) -> bool:
        """Not in one step: the fakes know renames only, and callers must cope with that."""
        return False
