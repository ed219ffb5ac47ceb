"""A user's SQL and regular expressions, and what is wrong with them in one sentence."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession

from orbitmq.errors import ConfigError

VIEW: Final = "messages"
_LOGGER: Final = "SQLQueryContextLogger"
"""Where PySpark writes a page about each text that is wrong, beside the error."""
_CODE: Final = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_PLACE: Final = re.compile(r"\s*(?:SQLSTATE: \w+;?|\(line \d+, pos \d+\)|;? *line \d+,? pos \d+;?)")


def run_sql(spark: SparkSession, text: str, messages: DataFrame) -> DataFrame:
    """Return what a query over the view `messages` gives. ConfigError: it cannot be asked."""
    messages.createOrReplaceTempView(VIEW)
    with _told(text):
        # In brackets only a query can stand: a command, which Spark would carry out at once, is refused.
        return spark.sql(f"SELECT * FROM (\n{text}\n)")


def require_pattern(spark: SparkSession, text: str) -> None:
    """Raise ConfigError where Java does not take a regular expression."""
    try:
        jvm: Any = spark.sparkContext._jvm
        jvm.java.util.regex.Pattern.compile(text)
    except IllegalArgumentException as error:
        why = str(error).splitlines()[0]
        raise ConfigError("body", text, f"is no regular expression: {why}") from None
    except (AttributeError, Py4JError):
        return  # it cannot be asked; the query itself will tell


@contextmanager
def _told(text: str) -> Iterator[None]:
    log = logging.getLogger(_LOGGER)
    before, log.disabled = log.disabled, True
    try:
        yield
    except AnalysisException as error:  # a text that cannot be parsed is one of its kinds
        raise ConfigError("sql", text, sentence(str(error))) from None
    finally:
        log.disabled = before


def sentence(told: str) -> str:
    """Return what Spark said without its codes, its plan and its copy of the text."""
    line = next((line for line in told.splitlines() if line.strip()), "Spark does not take it")
    return _PLACE.sub("", _CODE.sub("", line.strip())).strip().rstrip(";")
