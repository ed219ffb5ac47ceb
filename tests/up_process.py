"""`orbitmq up` as a real process, for tests that must not share one with the broker."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from command import ORBITMQ


@dataclass
class Up:
    """A running name server and broker."""

    process: "subprocess.Popen[str]"
    namesrv: str
    broker: str
    errors: Path

    def memory_bytes(self) -> int:
        """Return the process's anonymous memory: page cache and mapped files apart."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise OSError("this kernel does not tell RssAnon")

    def stop(self) -> int:
        """Ask it to stop, as a supervisor does; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextmanager
def up_process(directory: Path, *options: str) -> Iterator[Up]:
    """Start it on free ports with a store below the directory; kill it if it is still there at the end."""
    errors = directory / "up-errors.txt"
    command = [
        *(str(ORBITMQ), "up", "--store", str(directory / "up-store"), "--output", "json"),
        *("--namesrv-port", "0", "--broker-port", "0"),
        *("--set", f"mappedFileSizeCommitLog={64 << 20}", *options),
    ]
    with errors.open("w") as sink:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=sink, text=True, env={**os.environ}
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, errors.read_text()
        ready = json.loads(line)
        yield Up(process, ready["namesrv"], ready["broker"], errors)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()
