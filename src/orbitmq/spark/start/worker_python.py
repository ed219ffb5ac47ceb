"""How Spark starts Python on this machine: this very Python, without the archives that Spark names first.

Spark has its own Python side once more, as archives, for machines that have nothing else, and puts them
first on the module path. They hold no compiled modules: each process that plans a query would compile most
of PySpark, for nearly a second. A script in between leaves them out: PySpark is installed here.
(Where it is installed on the machines of a cluster, `daemon.installed_first` does that for tasks.)
"""

import hashlib
import shlex
import sys
from pathlib import Path
from typing import Final

import pyspark

from orbitmq.spark.start.cache_files import cached_file

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
    """Return the program to start workers with."""
    archives = str(Path(pyspark.__file__).parent / "python" / "lib") + "/"
    script = _SCRIPT.format(archives=shlex.quote(archives), python=shlex.quote(sys.executable))
    name = hashlib.sha256(script.encode()).hexdigest()[:12]
    return str(cached_file(f"python-{name}/python", script, mode=0o755))
