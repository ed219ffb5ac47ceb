"""Gives a session the reader of columns: compiles its Java text once, keeps the classes, hands them to Spark.

`format("orbitmq")` then finds the class `orbitmq.DefaultSource` before it asks for Python sources. Where that
cannot be (another Spark, Spark Connect, a system without Unix sockets, the setting spark.orbitmq.reader=rows)
the plain Python source serves, as without this module.
"""

import hashlib
import logging
import os
import socket
import zipfile
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from orbitmq.spark.start.cache_files import cache_directory, own_directory
from orbitmq.spark.start.package import is_local

logger = logging.getLogger(__name__)

SETTING: Final = "spark.orbitmq.reader"
ROWS: Final = "rows"
COLUMNS: Final = "columns"
"""Also on a cluster, where rows are the default."""
PYTHON_SETTING: Final = "spark.orbitmq.columns.python"
"""Which Python the pools run; the JVM's reader serves only where it is set."""
JARS_SETTING: Final = "spark.jars"
COLUMNS_TO_UDFS: Final = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"
SPARK: Final = "4.3"
"""The Spark whose interfaces the Java text is written for."""
_CLASS: Final = "orbitmq.DefaultSource"
# Zip archives know no earlier time; a fixed one makes equal classes equal archives.
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


@cache
def java_text() -> str:
    """Return the source of the JVM's reader."""
    return (Path(__file__).parent / "DefaultSource.java").read_text(encoding="utf-8")


def jar_path() -> Path:
    """Return where the classes for this text and this Spark lie, or would. OSError: nowhere."""
    made_from = f"{pyspark.__version__} {java_text()}"
    name = hashlib.sha256(made_from.encode()).hexdigest()[:12]
    return cache_directory() / f"orbitmq-columns-{name}.jar"


def kept_jar() -> Path | None:
    """Return the classes if they were compiled before: a session can then start with them."""
    try:
        path = jar_path()
        return path if path.is_file() else None
    except OSError:  # no home directory, or one that is not ours
        return None


def unfit() -> str:
    """Return why this machine has no reader of columns, "" if it has."""
    if not pyspark.__version__.startswith(f"{SPARK}."):
        return f"it is made for Spark {SPARK}, and this is {pyspark.__version__}"
    if not hasattr(socket, "AF_UNIX") or not hasattr(os, "fork"):
        return "this system has no Unix sockets"
    return ""


def install(spark: SparkSession) -> str:
    """Let the session read columns; return "" or why it cannot, and rows it is."""
    reason = unfit()
    if not reason:
        try:
            reason = _unwanted(spark)
            if not reason:
                _install(spark)
        except (Py4JError, PySparkException, AttributeError, OSError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
    if reason:
        logger.info("rows, not columns: %s", reason)
        spark.conf.unset(PYTHON_SETTING)
    return reason


def _unwanted(spark: SparkSession) -> str:
    """Return why this session is to read rows, "" if it is not."""
    setting = spark.conf.get(SETTING, "")
    if setting == ROWS:
        return f"{SETTING} is {ROWS}"
    if setting != COLUMNS and not is_local(spark.sparkContext.master or ""):
        return f"a cluster reads columns where {SETTING} is {COLUMNS}"
    return ""


def _install(spark: SparkSession) -> None:
    context = spark.sparkContext
    if not _is_loaded(context._jvm):
        jar = kept_jar() or _compiled_jar(context._jvm)
        spark.sql(f"ADD JAR '{jar}'")
    # Spark would look at a batch again after the answer of a function, when the reader has gone on.
    spark.conf.set(COLUMNS_TO_UDFS, "false")
    spark.conf.set(PYTHON_SETTING, context.pythonExec)


def _is_loaded(jvm: Any) -> bool:
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return loader.getResource(_CLASS.replace(".", "/") + ".class") is not None


def _compiled_jar(jvm: Any) -> Path:
    """Compile the text in the JVM and keep the classes."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(java_text())
    classes = compiler.getBytecodes()
    try:
        return _written(jar_path(), classes)
    except OSError:
        return _written(own_directory() / "orbitmq-columns.jar", classes)


def _written(target: Path, classes: Any) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    # Another process may be about to use it: it must be there whole or not at all.
    fresh = target.with_name(f"{target.name}-{os.getpid()}")
    with zipfile.ZipFile(fresh, "w") as archive:
        for name in sorted(classes.keySet()):
            entry = zipfile.ZipInfo(name.replace(".", "/") + ".class", _EPOCH)
            archive.writestr(entry, bytes(classes.get(name)))
    return fresh.replace(target)
