"""A revision of this repository as something to run: checked out, compiled, with its own environment."""

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from harness import REPOSITORY

RUN_SECONDS_MAX = 1_800
END_SECONDS_MAX = 10
LAST_LINES = 20  # of what a program said that failed
# What the measured package is made of. A change elsewhere, in the benchmarks say, does not hide in it.
MEASURED = ("src", "pyproject.toml", "constraints.txt")
# Settings of the caller that would reach into the product, or let two revisions share a cache.
LEFT_OUT = ("ORBITMQ_", "PYTHON", "NUMBA_", "SPARK_", "PYSPARK_")
COMPILE = "import sys; sys.path.insert(0, sys.argv[1]); from doors import compile_kernels; compile_kernels()"
WHERE = "import orbitmq; print(orbitmq.__file__)"


class RefusedError(Exception):
    """A revision that cannot be measured as it was asked for."""


class FailedError(Exception):
    """A program of a revision that ended badly."""


@dataclass(frozen=True)
class Revision:
    """A commit, and what it was called."""

    name: str
    commit: str

    @property
    def short(self) -> str:
        return self.commit[:7]


def resolve(name: str, repository: Path = REPOSITORY) -> Revision:
    """Return the commit of a name; RefusedError if there is none, or the tree has more than the commit."""
    commit = _git(repository, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()
    if not commit:
        raise RefusedError(f"{name}: this repository has no such revision")
    if commit == _git(repository, "rev-parse", "--verify", "--quiet", "HEAD").strip():
        changed = _git(repository, "status", "--porcelain", "--", *MEASURED).splitlines()
        if changed:
            raise RefusedError(
                f"{name}: {changed[0][3:]} has changes that are not in the commit, and only commits are "
                "measured; commit them first"
            )
    return Revision(name, commit)


def _git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@dataclass(frozen=True)
class Tree:
    """A revision's files in a directory of their own, and the Python that runs them."""

    revision: Revision
    path: Path
    python: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(LEFT_OUT)}
        cache = str(self.path / "cache")
        return {**kept, "PYTHONPATH": str(self.path / "src"), "XDG_CACHE_HOME": cache}

    def run(self, arguments: Sequence[str], seconds_max: float = RUN_SECONDS_MAX) -> str:
        """Run Python with this revision's package; return what it printed. Nothing it started is left."""
        # To a file, not a pipe: a server that is left over would hold its end open.
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                [str(self.python), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=self.environment,
                start_new_session=True,  # whatever it starts is found by its session
            )
            try:
                process.wait(seconds_max)
            except subprocess.TimeoutExpired:
                raise FailedError(f"not done after {seconds_max:.0f} s") from None
            finally:
                end_session(process)
            said, also = (_text(file) for file in (output, errors))
        if process.returncode != 0 or not said.strip():
            last = "\n".join(f"{said}{also}".splitlines()[-LAST_LINES:])
            raise FailedError(f"ended with {process.returncode}\n{last}".strip())
        return said


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def end_session(process: "subprocess.Popen[bytes]") -> None:
    """Kill what is left of a session: servers, a JVM, its workers, in whatever process group."""
    deadline = time.monotonic() + END_SECONDS_MAX
    while (left := _alive(process.pid)) and time.monotonic() < deadline:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)  # one that was just being started is found by the next look
    process.wait()


def _alive(session: int) -> list[int]:
    """Return the processes of a session that have not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, _, its_session = (
                    (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                )
            except OSError:
                continue  # it ended while we looked
            if int(its_session) == session and state != "Z":
                found.append(int(entry.name))
    return found


def check_out(revision: Revision, path: Path, repository: Path = REPOSITORY) -> Tree:
    """Write a revision's files below a directory and compile them; prove that they are what runs."""
    path.mkdir(parents=True)
    archive = ["git", "-C", str(repository), "archive", revision.commit]
    with (
        subprocess.Popen(archive, stdout=subprocess.PIPE) as git,
        tarfile.open(fileobj=git.stdout, mode="r|") as files,
    ):
        files.extractall(path, filter="data")
    tree = Tree(revision, path, _python(path, repository))
    _take_kernels(repository / "src", path / "src")
    tree.run(
        ["-c", f"import compileall; print(compileall.compile_dir({str(path / 'src')!r}, quiet=1))"]
    )
    tree.run(["-c", COMPILE + "; print('compiled')", str(Path(__file__).parent)])
    found = Path(tree.run(["-c", WHERE]).strip())
    if not found.is_relative_to(path):
        raise RefusedError(f"{revision.name}: {found} would be measured, not its own package")
    return tree


def _python(path: Path, repository: Path) -> Path:
    """Return this Python if its packages are what the revision asks for, else one with a revision's own."""
    pins = path / "constraints.txt"
    if not pins.is_file() or pins.read_bytes() == (repository / pins.name).read_bytes():
        return Path(sys.executable)
    python = path / "venv" / "bin" / "python"
    install = ["-m", "pip", "install", "--quiet", "-c", str(pins), "-e", f"{path}[dev]"]
    for command in ([sys.executable, "-m", "venv", str(path / "venv")], [str(python), *install]):
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            raise RefusedError(f"{path.name}: its own packages cannot be installed: {ended.stderr}")
    return python


def _take_kernels(ours: Path, theirs: Path) -> None:
    """Take over compiled kernels of a package whose sources are the same; the rest is compiled."""
    for cache in ours.rglob("__pycache__"):
        package = theirs / cache.parent.relative_to(ours)
        if not any(cache.glob("*.nbi")) or _sources(package) != _sources(cache.parent):
            continue
        (package / "__pycache__").mkdir(exist_ok=True)
        for file in cache.glob("*.nb[ic]"):
            shutil.copyfile(file, package / "__pycache__" / file.name)


def _sources(package: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in package.glob("*.py")}
