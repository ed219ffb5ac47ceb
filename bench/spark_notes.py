"""What one run of the Spark benchmark leaves for the next one in the same directory."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import spark_log
from harness import Row
from spark_log import Log


class Notes:
    """Facts in small files of JSON beside the logs; what a run was killed over is not noted."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def keep(self, name: str, fact: Any) -> None:
        self._path(name).write_text(json.dumps(fact, default=spark_log.plain))

    def kept(self, name: str) -> Row | None:
        path = self._path(name)
        found: Row | None = json.loads(path.read_text()) if path.exists() else None
        return found

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.json"

    def keep_digest(self, log: Log, digest: str) -> None:
        self.keep(log.root.name, {"log": log, "digest": digest})

    def digest(self, log: Log) -> str | None:
        """Return the checksum of a log that is there, with the files that live dispatch made, else None."""
        noted = self.kept(log.root.name)
        if noted is None or noted["log"] != json.loads(json.dumps(spark_log.plain(log))):
            return None
        digest: str = noted["digest"]
        return digest if spark_log.digest(log.root) == digest else None


@contextmanager
def place(kept: Path | None, parent: Path | None) -> Iterator[Path]:
    """Give the directory that is to be kept, or one that is not."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-", dir=parent) as directory:
        yield Path(directory)
