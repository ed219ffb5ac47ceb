"""Files of tasks for a lake at a distance: written here, uploaded when they are whole."""

from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO

from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles
from orbitmq.spark.remote.address import Address


@dataclass(slots=True)
class RemoteAttempts(AttemptFiles):
    """Names of objects below the lake. Travels to tasks; there, one attempt uses it."""

    lake: Address | None = None

    def require_seen(self) -> None:
        """An object store has no directories that could be missing."""

    def temporary(self) -> IO[bytes]:
        """Return a file without a name: it goes with the process, however that ends."""
        return TemporaryFile()

    def upload(self, path: str, file: IO[bytes]) -> int:
        """Have a whole file under its name, durably; return its length."""
        from orbitmq.spark.remote.objects import objects_at

        assert self.lake is not None
        length = file.seek(0, 2)
        file.seek(0)
        objects_at(self.lake).put_file(path, file)
        return length
