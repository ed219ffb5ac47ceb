"""Files that somebody else fills."""

from collections.abc import Iterable

from orbitmq.files.disk import Disk, FilePath
from orbitmq.files.positioned import FileCache


class FollowedFiles(FileCache):
    """Open files whose bytes are there already: while `following`, writes are left out.

    Removing whole files and zeroing ends stay real: that is what cleaning and recovery do.
    """

    def __init__(self, disk: Disk, max_open: int = 512) -> None:
        super().__init__(disk, max_open)
        self.following = True
        self._cut: set[str] = set()

    def write(
        self,
        path: FilePath,
        position: int,
        data: bytes | bytearray | memoryview,
        *,
        file_bytes: int | None = None,
    ) -> None:
        if not self.following:
            super().write(path, position, data, file_bytes=file_bytes)

    def truncate_zero(self, path: FilePath, position: int) -> None:
        self._cut.add(str(path))
        super().truncate_zero(path, position)

    def sync(self, paths: Iterable[FilePath]) -> None:
        """Make durable what was changed here; the rest was when its writer said that it is there."""
        if not self.following:
            super().sync(paths)
            return
        cut = {str(path) for path in paths} & self._cut
        super().sync(cut)
        self._cut -= cut
