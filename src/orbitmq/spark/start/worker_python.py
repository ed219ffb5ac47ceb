"""The program that Spark starts Python workers with on this machine."""

import shlex
import sys
from pathlib import Path
from typing import Final

import pyspark

from orbitmq.spark.start.cache_files import cached_script

_SCRIPT: Final = """\
#!/bin/sh
# Made by orbitmq: leaves Spark's archives of installed modules out of the module path.
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
    case "$entry" in
        {archives}*.zip) ;;
        *) kept="$kept${{kept:+:}}$entry" ;;
    esac
done
unset IFS
PYTHONPATH="$kept" exec {python} "$@"
"""


def worker_python() -> str:
    """Return the program to start workers with: this very Python, without archives that Spark names first.

    Spark has its own Python side once more, as archives, for machines that have nothing else, and puts them
    first on the module path. They hold no compiled modules: each process that plans a query would compile
    most of PySpark, for nearly a second. A script in between leaves them out: PySpark is installed here.
    (Where it is installed on the machines of a cluster, `daemon.installed_first` does that for tasks.)
    """
    archives = str(Path(pyspark.__file__).parent / "python" / "lib") + "/"
    script = _SCRIPT.format(archives=shlex.quote(archives), python=shlex.quote(sys.executable))
    return str(cached_script("python", "python", script))
