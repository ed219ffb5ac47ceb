"""The class data sharing archive (AppCDS) of Spark's JVM: one file, with which Spark starts seconds sooner.

Most of Spark's start is finding, reading and checking classes, the same ones each time. Java can archive
what it has loaded (-XX:ArchiveClassesAtExit) and map that file the next time. It compares the file with
the Java and the jars that it was made from, and does without where they changed.

`orbitmq spark prepare` makes the archive once, from a run of the jobs; every session on this machine uses it.
"""

import hashlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyspark

from orbitmq.errors import SparkSetupError
from orbitmq.spark.start.cache_files import cache_directory
from orbitmq.spark.start.java import Java, find_java

DRIVER_OPTIONS: Final = "spark.driver.extraJavaOptions"
QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""An archive that does not fit any more is no use, but no news either."""
_RUN_SECONDS_MAX: Final = 300


def archive_path(java: Java) -> Path:
    """Return where the archive of this Java and this Spark lies, or would."""
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    made_from = f"{java.executable.resolve()} {java.version} {home} {pyspark.__version__}"
    name = hashlib.sha256(made_from.encode()).hexdigest()[:12]
    return cache_directory() / f"spark-classes-{name}.jsa"


def found_archive(java: Java) -> Path | None:
    """Return the archive, None if nobody made one."""
    try:
        path = archive_path(java)
        return path if path.is_file() else None
    except OSError:  # no home directory, or one that is not ours
        return None


def with_archive(settings: Mapping[str, str], java: Java) -> dict[str, str]:
    """Return the settings of a session whose JVM uses the archive, if there is one."""
    given, path = settings.get(DRIVER_OPTIONS, ""), found_archive(java)
    if "Archive" in given or path is None:
        return dict(settings)
    options = f"{given} -XX:SharedArchiveFile={shlex.quote(str(path))} {QUIET}"
    return {**settings, DRIVER_OPTIONS: options.strip()}


def make_archive(command: Sequence[str]) -> Path:
    """Make the archive anew. SparkSetupError: this Java cannot, or Spark does not run here.

    The command gets two more arguments, a directory for a store and the file, and runs jobs in a JVM that
    writes the file when it ends.
    """
    java = find_java()
    try:
        target = archive_path(java)
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        step = "Set XDG_CACHE_HOME to a directory that can be written to."
        raise SparkSetupError(f"there is no place for the archive: {cause}", step) from cause
    with tempfile.TemporaryDirectory(prefix="orbitmq-classes-", dir=target.parent) as directory:
        fresh = Path(directory) / "classes.jsa"
        said = _run([*command, str(Path(directory) / "store"), str(fresh)])
        if not fresh.is_file():
            what = f"{java.executable} (Java {java.version}) wrote no class data sharing archive"
            step = "Spark works without it. A full JDK or JRE can write one; set JAVA_HOME to it."
            raise SparkSetupError(f"{what}: {said}" if said else what, step)
        return fresh.replace(target)


def _run(command: Sequence[str]) -> str:
    """Run it to its end and that of its JVM; return the last words."""
    try:
        # Both streams are the JVM's too: they end when it has written the file, not before.
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_RUN_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired as error:
        step = "`orbitmq spark doctor` looks at Java, Python and the settings."
        raise SparkSetupError(f"no end after {_RUN_SECONDS_MAX} seconds", step) from error
    lines = done.stderr.strip().splitlines()
    if done.returncode:
        step = "`orbitmq spark doctor` looks at Java, Python and the settings."
        raise SparkSetupError(lines[-1] if lines else "the jobs failed", step)
    return lines[-1] if lines else ""
