"""A Spark session that can run OrbitMQ's tasks.

What is set where nobody said otherwise: the Java and the Python that fit, UTC, a quiet log, the data
source "orbitmq", and for a master on this machine the loopback address. Settings of a cluster are its own.
"""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from orbitmq.errors import SparkSetupError
from orbitmq.spark.columns import install
from orbitmq.spark.start import daemon
from orbitmq.spark.start.cache_files import cached_file
from orbitmq.spark.start.class_archive import with_archive
from orbitmq.spark.start.java import Java, find_java
from orbitmq.spark.start.package import (
    INSTALLED,
    PACKAGE_SETTING,
    SEND,
    check_setting,
    is_local,
    send_package,
)
from orbitmq.spark.start.prestart import prestart_daemon, prestart_pool
from orbitmq.spark.start.worker_python import worker_python

DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.python.filterPushdown.enabled": "true",
    # The extra brings no pandas; asked for it, Spark would fail instead of doing without.
    "spark.sql.execution.arrow.pyspark.enabled": "false",
}
ON_THIS_MACHINE: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit in the programs that it starts: the JVM is there already."""
_LOG_FILE: Final = """\
# Made by orbitmq: how much Spark says, from its first line on.
rootLogger.level = {level}
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{yy/MM/dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


def make_session(
    *,
    app: str = "orbitmq",
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> SparkSession:
    """Return the running session, or a new one; `master` None: what spark-submit says, else local[*].

    `quiet` is for commands, which say errors themselves: nothing of Spark's own log.
    """
    settings = _with_reader(_settings(master, conf))
    variables = prestart_pool() if starts_pool(settings) else {}
    _start(app, settings, quiet=quiet, variables=variables)
    builder = SparkSession.builder.appName(app)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    register(session)
    return session


def starts_pool(settings: Mapping[str, str]) -> bool:
    """Return whether a session may start with the pool behind the reader of columns.

    Only a JVM that is yet to start gets to know of it; one that was kept from a session before has its own.
    """
    is_first = not _is_running() and getattr(SparkContext, "_gateway", None) is None
    has_reader = settings.get(install.SETTING) != install.ROWS and not install.unfit()
    return is_first and has_reader and _has_our_daemon(settings)


def _with_reader(settings: dict[str, str]) -> dict[str, str]:
    """Return settings of a session that starts with the reader of columns, if it was compiled before."""
    jar = None if _is_running() or install.unfit() else install.kept_jar()
    wanted = settings.get(install.SETTING)
    by_itself = is_local(settings.get("spark.master", "")) and wanted != install.ROWS
    if jar is None or not (by_itself or wanted == install.COLUMNS):
        return settings
    jars = [given for given in settings.get(install.JARS_SETTING, "").split(",") if given]
    return {**settings, install.JARS_SETTING: ",".join([*jars, str(jar)])}


def make_context(
    *,
    app: str = "orbitmq",
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> SparkContext:
    """Return the running context, or a new one, for jobs that need no SQL: it takes seconds less.

    Everything else is as in `make_session`.
    """
    return _start(app, _settings(master, conf), quiet=quiet)


def _start(
    app: str,
    settings: Mapping[str, str],
    *,
    quiet: bool,
    variables: Mapping[str, str] | None = None,
) -> SparkContext:
    quiet = quiet and os.environ.get("ORBITMQ_DEBUG") != "1"
    if quiet:
        logging.getLogger().addFilter(_is_news)
    java = None if _is_running() else find_java()
    if java is not None:
        settings = with_archive(settings, java)
    spark_conf = SparkConf().setAppName(app).setAll(list(settings.items()))
    variables = _variables(settings, java, quiet=quiet) | dict(variables or {})
    if quiet and java is not None and _has_our_daemon(settings):
        variables |= prestart_daemon()
    try:
        with _environment(variables), no_jvm_left_behind():
            context = SparkContext.getOrCreate(spark_conf)
    except PySparkException as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        step = "`orbitmq spark doctor` looks at Java, Python and the settings."
        raise SparkSetupError("Spark's JVM ended while it started", step) from error
    send_package(context)
    return context


def _is_news(record: logging.LogRecord) -> bool:
    """Py4J reports Ctrl-C with a traceback, in nobody's name; whoever pressed it knows."""
    return not record.getMessage().startswith("KeyboardInterrupt while sending")


def _has_our_daemon(settings: Mapping[str, str]) -> bool:
    """Return whether workers will be forked from `daemon`, in this Python and its environment."""
    return (
        is_local(settings.get("spark.master", ""))
        and settings.get("spark.python.daemon.module") == daemon.__name__
        and _given_python(settings) in (None, sys.executable)
        and not any(name.startswith("spark.executorEnv.") for name in settings)
    )


def _is_running() -> bool:
    active = getattr(SparkContext, "_active_spark_context", None)
    return active is not None or SUBMITTED in os.environ


def register(spark: SparkSession) -> None:
    """Make the format "orbitmq" known to a session, by columns where that can be, with push-down of filters.

    Where the package is installed, Spark finds the format by itself (`pyspark_orbitmq`), without push-down.
    """
    from orbitmq.spark.source.source import OrbitmqSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        spark.dataSource.register(OrbitmqSource)
    except AnalysisException as error:
        # Spark looks for the name in the active session, which may be another that has it.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    install.install(spark)


def _usual_master() -> str:
    """Return the master that Spark itself would take: from MASTER or spark-defaults.conf."""
    return os.environ.get("MASTER") or _defaults_file().get("spark.master") or "local[*]"


def _defaults_file() -> dict[str, str]:
    directory = _conf_directory()
    file = directory / "spark-defaults.conf" if directory else None
    if file is None or not file.is_file():
        return {}
    text = file.read_text(encoding="utf-8")
    lines = (line.split("#")[0].replace("=", " ", 1).split(None, 1) for line in text.splitlines())
    return {line[0]: line[1].strip() for line in lines if len(line) == 2}


def _conf_directory() -> Path | None:
    home, directory = os.environ.get("SPARK_HOME"), os.environ.get("SPARK_CONF_DIR")
    if directory:
        return Path(directory)
    return Path(home) / "conf" if home else None


def _settings(master: str | None, conf: Mapping[str, str] | None) -> dict[str, str]:
    given, settings = dict(conf or {}), dict(DEFAULTS)
    master = master or given.get("spark.master") or (None if _is_running() else _usual_master())
    if master is not None:
        settings["spark.master"] = master
        if is_local(master) or "//127.0.0.1:" in master or "//localhost:" in master:
            settings |= ON_THIS_MACHINE
        if is_local(master) or check_setting(given.get(PACKAGE_SETTING, SEND)) == INSTALLED:
            settings["spark.python.daemon.module"] = daemon.__name__
    return settings | given


def _variables(settings: Mapping[str, str], java: Java | None, *, quiet: bool) -> dict[str, str]:
    """Return what the start of `java` and the Python workers take from the environment."""
    found = {"PYSPARK_PYTHON": _given_python(settings) or _own_python(settings)}
    if not os.environ.get("PYSPARK_DRIVER_PYTHON"):
        found["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if java is None:
        return found
    found |= java.environment(quiet=quiet)
    if settings.get("spark.driver.host") == ON_THIS_MACHINE["spark.driver.host"]:
        found["SPARK_LOCAL_IP"] = ON_THIS_MACHINE["spark.driver.host"]
    if not _has_own_log():
        level = "OFF" if quiet else "ERROR"
        file = cached_file(f"log4j2-{level}.properties", _LOG_FILE.format(level=level))
        found["LOG4J_CONFIGURATION_FILE"] = str(file)
    return found


def _given_python(settings: Mapping[str, str]) -> str | None:
    return settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")


def _own_python(settings: Mapping[str, str]) -> str:
    """Return this Python: workers would take whatever python3 is on the PATH."""
    return worker_python() if is_local(settings.get("spark.master", "")) else sys.executable


def _has_own_log() -> bool:
    """Return whether somebody said what Spark is to log, and where."""
    directory = _conf_directory()
    if directory is not None and (directory / "log4j2.properties").is_file():
        return True
    return "LOG4J_CONFIGURATION_FILE" in os.environ


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while: only Spark's start looks at them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def no_jvm_left_behind() -> Iterator[None]:
    """End a JVM that was started inside the `with` if Ctrl-C or an error ends it before the JVM is ready.

    PySpark takes away the directory in which the JVM is to say where it listens. A JVM that comes later fails
    there, and then lives on for ever: it never gets as far as to see that nobody is left.
    """
    gateway: Any = sys.modules.get("pyspark.java_gateway")
    start, started = getattr(gateway, "Popen", None), list[Any]()
    if start is None:  # a PySpark that starts its JVM some other way
        yield
        return

    def noted(*arguments: Any, **options: Any) -> Any:
        process = start(*arguments, **options)
        started.append(process)
        return process

    gateway.Popen = noted
    try:
        yield
    except BaseException:
        if getattr(SparkContext, "_gateway", None) is None:
            for process in started:
                process.kill()
                process.wait()
        raise
    finally:
        gateway.Popen = start
