"""What all commands of `orbitmq spark` share: where Spark runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.errors import ConfigError, SparkSetupError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

Master = Annotated[
    str | None,
    typer.Option(help="Where Spark runs: local[*] (default), spark://host:port, yarn, k8s://..."),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A Spark setting; may be given many times."),
]


@contextmanager
def spark_context(master: str | None, conf: list[str] | None) -> Iterator["SparkContext"]:
    """Start Spark as the options say, without SQL; stop it at the end."""
    settings = spark_settings(conf)
    require_pyspark()
    from orbitmq.spark.context import stop_quickly
    from orbitmq.spark.failures import clear_errors
    from orbitmq.spark.start.session import make_context

    with clear_errors("the start of Spark"):
        context = make_context(master=master, conf=settings, quiet=True)
    try:
        yield context
    finally:
        stop_quickly(context)


def open_session(master: str | None, conf: list[str] | None) -> "SparkSession":
    """Start Spark as the options say, with SQL."""
    settings = spark_settings(conf)
    require_pyspark()
    from orbitmq.spark.failures import clear_errors
    from orbitmq.spark.start.session import make_session

    with clear_errors("the start of Spark"):
        return make_session(master=master, conf=settings, quiet=True)


def spark_settings(conf: list[str] | None) -> dict[str, str]:
    """Return what the options --conf say."""
    pairs = [text.partition("=") for text in conf or ()]
    for name, sign, _ in pairs:
        if not sign or not name:
            raise ConfigError("--conf", name, "must be NAME=VALUE")
    return {name: value for name, _, value in pairs}


def require_pyspark() -> None:
    """Raise SparkSetupError where the extra was not installed."""
    try:
        import pyarrow
        import pyspark
    except ImportError as error:
        step = "pip install 'orbitmq[spark]' brings Spark, and a Java where there is none."
        raise SparkSetupError(f"the package {error.name} is not installed", step) from error
    del pyarrow, pyspark
