"""A real S3 server on this machine (versitygw over a directory, `s3_server`), and stores copied to it."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from orbitmq.spark.remote.address import Address
from orbitmq.spark.remote.objects import Objects, objects_at

SOURCE: Final = Path(__file__).parent / "s3_server"
_KEPT: Final = Path(__file__).parents[2] / "build" / "compat"
BUILD: Final = Path(os.environ.get("ORBITMQ_COMPAT_BUILD", _KEPT)) / "s3_server"
BUCKET: Final = "orbitmq-tests"
KEYS: Final = {
    "AWS_ACCESS_KEY_ID": "orbitmq-test-key",
    "AWS_SECRET_ACCESS_KEY": "orbitmq-test-secret",
}


class S3Server:
    """A running server; `files` is what its bucket holds, as files."""

    def __init__(self, endpoint: str, files: Path) -> None:
        self.endpoint, self.files = endpoint, files

    def url(self, name: str) -> str:
        """Return an address with all that a process without the variables needs."""
        return f"s3://{BUCKET}/{name}?endpoint={self.endpoint}"

    def objects(self, name: str) -> Objects:
        return objects_at(Address.of(self.url(name)))

    def upload(self, root: Path, name: str) -> str:
        """Copy a directory to the server; return its address."""
        objects = self.objects(name)
        for path in sorted(root.rglob("*")):
            if path.is_file():
                objects.put_file(str(path.relative_to(root)), path)
        return self.url(name)


def built_server() -> Path:
    """Return the server's program, built once for each version of its source."""
    if shutil.which("go") is None:
        pytest.skip("no Go to build an S3 server with")
    digest = hashlib.sha256()
    for name in ("main.go", "go.mod", "go.sum"):
        digest.update((SOURCE / name).read_bytes())
    program = BUILD / f"s3_server-{digest.hexdigest()[:16]}"
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:  # several test processes may want it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _build(program)
    return program


def _build(program: Path) -> None:
    # Not optimized: the compiler is the most of what a test with this server costs.
    unfinished = program.with_suffix(".new")
    words = ["go", "build", "-gcflags=github.com/...=-N -l", "-ldflags=-s -w"]
    done = subprocess.run(
        [*words, "-o", unfinished, "."], cwd=SOURCE, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    unfinished.rename(program)


@contextmanager
def s3_server(directory: Path) -> Iterator[S3Server]:
    """Have a server with one empty bucket."""
    files, metadata = directory / "files", directory / "metadata"
    (files / BUCKET).mkdir(parents=True)
    metadata.mkdir()
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [built_server(), files, metadata],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=os.environ | KEYS,
            text=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        said = (line.strip() for line in process.stdout)
        endpoint = next((line for line in said if line.startswith("http://")), "")
        assert endpoint, (directory / "server.log").read_text()
        yield S3Server(endpoint, files / BUCKET)
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()
