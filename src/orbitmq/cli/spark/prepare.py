"""`orbitmq spark prepare`: make Spark start sooner on this machine."""

import shlex
import sys
from pathlib import Path
from typing import Final

from orbitmq.cli.output import bytes_text, note
from orbitmq.cli.spark.options import require_pyspark
from orbitmq.units import MiB

_SETTINGS: Final = {"maxHashSlotNum": "100", "maxIndexNum": "400"}
_MESSAGES: Final = 100
_JOBS: Final = (
    f"import sys, pathlib, {__name__} as it; it.run_jobs(*map(pathlib.Path, sys.argv[1:]))"
)


def prepare() -> None:
    """Make Spark start sooner on this machine: make a class data sharing archive (AppCDS). Once is enough.

    Takes most of a minute, and 170 MB in the user's cache directory, which may be deleted at any time.
    Every session uses it, those of Python programs too. Again after another Java or Spark was installed.
    """
    require_pyspark()
    from orbitmq.spark.start.class_archive import make_archive

    note("running each kind of job once; Java then writes the class data sharing archive ...")
    file = make_archive([sys.executable, "-c", _JOBS])
    note(
        f"{file}: {bytes_text(file.stat().st_size)} of class data, which Spark starts with from now on"
    )


def run_jobs(root: Path, archive: Path) -> None:
    """Run each kind of job on a tiny store, in a JVM that archives the classes that it has loaded.

    In a process of its own: the JVM writes when it ends.
    """
    from orbitmq.spark.jobs.rebuild.job import rebuild
    from orbitmq.spark.jobs.verify.job import verify
    from orbitmq.spark.start.class_archive import DRIVER_OPTIONS
    from orbitmq.spark.start.session import make_session

    _make_store(root)
    conf = {DRIVER_OPTIONS: f"-XX:ArchiveClassesAtExit={shlex.quote(str(archive))} -Xlog:cds=off"}
    session = make_session(app="orbitmq prepare", master="local[2]", conf=conf, quiet=True)
    rebuild(session, root, _SETTINGS)
    verify(session, root, _SETTINGS)
    table = session.read.format("orbitmq").load(str(root))
    table.where("topic = 'T'").groupBy("topic").count().collect()
    session.stop()


def _make_store(root: Path) -> None:
    from orbitmq.message import AppendRequest
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.store import MessageStore

    config = StoreConfig(
        root=root, segment_bytes=1 * MiB, cq_file_bytes=2000, index_slots=100, index_items=400
    )
    with MessageStore.open(config) as store:
        for number in range(_MESSAGES):
            store.append(AppendRequest("T", number % 4, b"body", b"KEYS\x01k%d\x02" % number))
