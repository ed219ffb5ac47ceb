"""The command lines of the client programs, each built once into `build/compat`; why one cannot be."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from compat.client_program import ClientProgram, running_program
from compat.java_cluster import JAVA_VERSION, header_type
from compat.maven import BUILD_SECONDS_MAX, CACHE, HERE, classpath, stamp_of

CLIENTS: Final = HERE / "clients"
JAVA_OLD_VERSION: Final = "4.9.8"
PYPI_CLIENT: Final = "rocketmq==0.4.4"


@contextmanager
def java_client(
    directory: Path, namesrv: str, *, version: str = JAVA_VERSION, binary: bool = False
) -> Iterator[ClientProgram]:
    """Run the Java program with one version of RocketMQ's client and one type of header."""
    name = f"java-{version}{'-binary' if binary else ''}"
    command = [
        "java",
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Duser.home={directory}",
        *header_type(binary),
        "-cp",
        classpath("clients/java", version),
        "orbitmq.javaclient.Program",
        namesrv,
    ]
    with running_program(name, command, directory) as program:
        yield program


@contextmanager
def go_client(directory: Path, namesrv: str) -> Iterator[ClientProgram]:
    """Run the Go program (rocketmq-client-go v2.1.2)."""
    with running_program("go", [str(_go_program()), namesrv], directory) as program:
        yield program


@contextmanager
def node_client(directory: Path, namesrv: str) -> Iterator[ClientProgram]:
    """Run the Node program (ali-ons)."""
    with running_program("node", ["node", str(_node_program()), namesrv], directory) as program:
        yield program


@contextmanager
def cpp_client(directory: Path, namesrv: str) -> Iterator[ClientProgram]:
    """Run the C++ client that is inside the PyPI package `rocketmq`."""
    command = [str(_cpp_python()), str(CLIENTS / "cpp" / "program.py"), namesrv]
    environment = {**os.environ, "HOME": str(directory)}
    with running_program("cpp", command, directory, **environment) as program:
        yield program


@contextmanager
def our_client(directory: Path, namesrv: str, *, binary: bool = False) -> Iterator[ClientProgram]:
    """Run the program of our own client."""
    program = CLIENTS / "ours" / "program.py"
    encoding = "BINARY" if binary else "JSON"
    command = [sys.executable, str(program), namesrv, encoding]
    with running_program(f"ours-{encoding}", command, directory) as running:
        yield running


@cache
def why_no(command: str) -> str | None:
    """Return why a client cannot be run here, or None."""
    return None if shutil.which(command) else f"no {command} command on this machine"


@cache
def _go_program() -> Path:
    program = CACHE / "clients-go" / "program"
    command = ["go", "build", "-o", str(program), "."]
    _build_once("go", program, [command], CLIENTS / "go")
    return program


@cache
def _node_program() -> Path:
    place = CACHE / "clients-node"
    place.mkdir(parents=True, exist_ok=True)
    for source in ("package.json", "program.js"):
        shutil.copy(CLIENTS / "node" / source, place)
    install = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--prefer-offline"]
    _build_once("node", place / "node_modules", [install], place)
    return place / "program.js"


@cache
def _cpp_python() -> Path:
    place = CACHE / "clients-cpp"
    make = [sys.executable, "-m", "venv", str(place)]
    install = [str(place / "bin" / "pip"), "install", "--quiet", PYPI_CLIENT]
    _build_once("cpp", place / "bin" / "python", [make, install], CLIENTS / "cpp")
    return place / "bin" / "python"


def _build_once(name: str, result: Path, commands: list[list[str]], where: Path) -> None:
    """Run the commands unless they already ran for the sources as they are."""
    CACHE.mkdir(parents=True, exist_ok=True)
    stamp, done = stamp_of(CLIENTS / name), CACHE / f"clients-{name}.stamp"
    with (CACHE / f"clients-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if result.exists() and done.exists() and done.read_text() == stamp:
            return
        for command in commands:
            built = subprocess.run(
                command,
                cwd=where,
                capture_output=True,
                text=True,
                check=False,
                timeout=BUILD_SECONDS_MAX,
            )
            said = (built.stdout + built.stderr)[-2000:]
            assert built.returncode == 0, f"{' '.join(command)} failed:\n{said}"
        done.write_text(stamp)
