"""How the package comes to the executors of a cluster: one archive, added to the application.

    spark-submit --py-files orbitmq.zip ...        # made by `orbitmq spark package orbitmq.zip`

A session that OrbitMQ makes on a cluster sends it by itself, unless spark.orbitmq.package is "installed".
Only the package travels: numba, numpy and the other libraries must be there (or come with --archives).

The archive carries the compiled kernels too. Executors with the same kind of CPU load them, others compile
once per machine; see `unpack`.
"""

import hashlib
import zipfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from pyspark import SparkContext

import orbitmq
from orbitmq.errors import ConfigError, SparkSetupError
from orbitmq.format.kernels import compiled
from orbitmq.spark.start import unpack
from orbitmq.spark.start.cache_files import own_directory

PACKAGE_SETTING: Final = "spark.orbitmq.package"
SEND: Final = "send"
INSTALLED: Final = "installed"
ARCHIVE: Final = "orbitmq.zip"
# Zip archives know no earlier time; a fixed one makes equal packages equal archives.
EPOCH: Final = (1980, 1, 1, 0, 0, 0)


def is_local(master: str) -> bool:
    """Return whether tasks run on this machine, as processes of the driver."""
    return master.startswith("local") and not master.startswith("local-cluster")


def check_setting(value: str) -> str:
    """Return the value of spark.orbitmq.package, or raise ConfigError."""
    if value not in (SEND, INSTALLED):
        raise ConfigError(PACKAGE_SETTING, value, f"must be {SEND} or {INSTALLED}")
    return value


def send_package(context: SparkContext) -> None:
    """Send the package to all executors of an application, those that come later too, unless they have it."""
    conf = context.getConf()
    if is_local(context.master or "") or conf.get(PACKAGE_SETTING) == INSTALLED:
        return
    sent = (conf.get("spark.submit.pyFiles") or "").split(",")
    if not any(Path(file).name == ARCHIVE for file in sent):
        context.addPyFile(str(_archive()))


@cache
def _archive() -> Path:
    return write_package(own_directory("orbitmq-package-") / ARCHIVE)


def write_package(target: Path) -> Path:
    """Write the archive; the same package gives the same bytes."""
    compiled()  # once here, not once on every machine
    root = Path(orbitmq.__file__).parent
    files = {f"orbitmq/{path.relative_to(root)}": path for path in _package_files(root)}
    stand_in = Path(unpack.__file__).read_text(encoding="utf-8")
    stand_in = stand_in.replace("@digest@", _digest(files))
    try:
        with zipfile.ZipFile(target, "w") as archive:
            archive.writestr(_entry("orbitmq/__init__.py"), stand_in)
            for name, path in files.items():
                archive.writestr(_entry(f"{unpack.PAYLOAD}{name}"), path.read_bytes())
    except OSError as error:
        raise SparkSetupError(f"{target}: {error.strerror}", "Give another file.") from error
    return target


def _digest(files: Mapping[str, Path]) -> str:
    """Return a name for this version of the sources."""
    digest = hashlib.sha256()
    for name, path in files.items():
        if path.suffix in (".py", ".java"):
            digest.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def _package_files(root: Path) -> Iterator[Path]:
    """Yield the sources, and what numba compiled of them."""
    for path in sorted(root.rglob("*")):
        of_numba = path.suffix in (".nbi", ".nbc")
        if path.suffix in (".py", ".typed", ".java") or (of_numba and _is_current(path)):
            yield path


def _is_current(path: Path) -> bool:
    """Return whether a file of numba's cache is newer than the newest source beside it.

    Older ones are of earlier versions of the kernels; nobody would load them.
    """
    sources = path.parent.parent.glob("*.py")
    return path.stat().st_mtime >= max(source.stat().st_mtime for source in sources)
