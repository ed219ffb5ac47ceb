"""Class paths of Maven projects of this folder, made once and kept under `build/`.

A stamp over the sources tells whether what was built is still right, so a later run costs nothing and
needs no network. ORBITMQ_COMPAT_BUILD names another place than `build/compat`: a copy of the tree can use
what was built for the tree. `why_not` of `java_store` gives the reason when Java or Maven is missing.
"""

import fcntl
import hashlib
import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
CACHE: Final = Path(os.environ.get("ORBITMQ_COMPAT_BUILD") or HERE.parents[1] / "build" / "compat")
BUILD_SECONDS_MAX: Final = 900

# What Maven says when it cannot get something, and not when it does not like our sources.
UNRESOLVED: Final = re.compile(
    r"could not (be )?resolved?|could not (find|transfer) artifact|cannot access \S+ .* in offline mode"
    r"|unknown host|connection (refused|timed out)|was not found in|no plugin found for prefix",
    re.IGNORECASE,
)


class NoJarsError(AssertionError):
    """RocketMQ's jars are neither in Maven's local repository nor can they be fetched."""


def classpath(project: str, version: str) -> str:
    """Compile the project against one version of RocketMQ if need be; return its class path.

    NoJarsError: what it needs cannot be had here.
    """
    made = _made(project, version)
    if isinstance(made, NoJarsError):
        raise made
    return made


@cache
def _made(project: str, version: str) -> str | NoJarsError:
    """Return the class path, or why there is none: what was tried in vain is not tried again."""
    sources, target = HERE / project, CACHE / f"{project.replace('/', '-')}-{version}"
    target.mkdir(parents=True, exist_ok=True)
    # Several test workers may come here at once; Maven is not made for that.
    with (CACHE / "maven.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = stamp_of(sources)
        if not _is_built(target, stamp):
            try:
                _build(sources, target, version)
            except NoJarsError as error:
                return error
            (target / "stamp").write_text(stamp)
    return f"{target / 'classes'}{os.pathsep}{(target / 'classpath.txt').read_text()}"


@cache
def compiled(source: Path, jars: str) -> Path:
    """Compile one source file if need be; return the directory of its classes."""
    target = CACHE / source.stem
    target.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{source.stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = hashlib.sha256(source.read_bytes() + jars.encode()).hexdigest()
        done = target / "stamp"
        if not done.exists() or done.read_text() != stamp:
            subprocess.run(["javac", "-d", target, "-cp", jars, source], check=True)
            done.write_text(stamp)
    return target


def stamp_of(sources: Path) -> str:
    """Return a digest of every file below a directory, but for what an older version built there."""
    digest = hashlib.sha256()
    for path in sorted(sources.rglob("*")):
        if path.is_file() and "target" not in path.relative_to(sources).parts:
            digest.update(path.relative_to(sources).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _is_built(target: Path, stamp: str) -> bool:
    stamp_file, jars = target / "stamp", target / "classpath.txt"
    if not (stamp_file.exists() and jars.exists()) or stamp_file.read_text() != stamp:
        return False
    return all(Path(jar).exists() for jar in jars.read_text().split(os.pathsep))


def _build(sources: Path, target: Path, version: str) -> None:
    goals = [
        "compile",
        "dependency:build-classpath",
        f"-Drocketmq.version={version}",
        f"-Dtarget={target}",
        f"-Dmdep.outputFile={target / 'classpath.txt'}",
    ]
    # Offline first: with everything in the local repository, Maven would still ask for updates.
    for extra in (["-o"], []):
        built = subprocess.run(
            ["mvn", "-q", "-B", *extra, *goals],
            cwd=sources,
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_SECONDS_MAX,
        )
        if built.returncode == 0:
            return
    said = built.stdout + built.stderr
    for line in said.splitlines():
        if UNRESOLVED.search(line):
            raise NoJarsError(
                "Maven cannot get RocketMQ's jars (no network, not in its cache);"
                f" without them use -m 'not compat': {line[:300]}"
            )
    raise AssertionError(f"Maven could not build {sources}:\n{said[-2000:]}")
