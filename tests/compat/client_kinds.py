"""The client programs, each built once into `build/compat` and started once for a test run."""

import fcntl
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from compat.client_program import Client, ClientProgram
from compat.java_cluster import JAVA_VERSION, header_type
from compat.java_store import why_not as why_no_java
from compat.maven import BUILD_SECONDS_MAX, CACHE, HERE, classpath, stamp_of

CLIENTS: Final = HERE / "clients"
JAVA_OLD_VERSION: Final = "4.9.8"
PYPI_CLIENT: Final = "rocketmq==0.4.4"


MODES: Final = ("sync", "async", "oneway", "batch")
MODES_OF: Final = {"node": ("sync", "async"), "cpp": ("sync", "async", "oneway")}
JAVA_CLIENTS: Final = {
    "java-new-json": (JAVA_VERSION, False),
    "java-new-binary": (JAVA_VERSION, True),
    "java-old-json": (JAVA_OLD_VERSION, False),
    "java-old-binary": (JAVA_OLD_VERSION, True),
}
NAMES: Final = (*JAVA_CLIENTS, "go", "node", "cpp", "ours-json", "ours-binary")
NEEDED: Final = {"go": "go", "node": "npm"}


class Clients:
    """Starts each client program when the first test asks for it, and ends them together."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: dict[str, ClientProgram] = {}
        self._locks = {name: threading.Lock() for name in NAMES}

    def get(self, name: str, namesrv: str) -> Client:
        """Return a client on the cluster of a name server; skips the test where it cannot run."""
        if reason := why_no(name):
            pytest.skip(reason)
        with self._locks[name]:
            if name not in self._started:
                self._started[name] = self._start(name)
        return Client(self._started[name], namesrv, MODES_OF.get(name, MODES))

    def end(self) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(ClientProgram.end, self._started.values()))

    def _start(self, name: str) -> ClientProgram:
        directory = self._directory / name
        command = _command(name, directory)
        return ClientProgram(name, command, directory, **{**os.environ, "HOME": str(directory)})


def _command(name: str, directory: Path) -> list[str]:
    """Return the command line of a client program, which is built if need be."""
    match name.split("-"):
        case ["java", *_]:
            return _java_command(*JAVA_CLIENTS[name], directory)
        case ["go"]:
            return [str(_go_program())]
        case ["node"]:
            return ["node", str(_node_program())]
        case ["cpp"]:
            return [str(_cpp_python()), str(CLIENTS / "cpp" / "program.py")]
        case ["ours", encoding]:
            return [sys.executable, str(CLIENTS / "ours" / "program.py"), encoding.upper()]
    raise AssertionError(f"no client {name}")


def _java_command(version: str, binary: bool, directory: Path) -> list[str]:
    """Return the command line for one version of RocketMQ's client and one type of header."""
    return [
        "java",
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Duser.home={directory}",
        *header_type(binary),
        "-cp",
        classpath("clients/java", version),
        "orbitmq.javaclient.Program",
    ]


@cache
def why_no(name: str) -> str | None:
    """Return why a client cannot be run here, or None."""
    if name.startswith("java-"):
        return why_no_java()
    command = NEEDED.get(name)
    if command is None or shutil.which(command):
        return None
    return f"no {command} command on this machine"


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
