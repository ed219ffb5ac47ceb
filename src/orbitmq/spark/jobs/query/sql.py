"""A user's SQL over the messages, and what is wrong with it in one sentence."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession

from orbitmq.errors import ConfigError

VIEW: Final = "messages"
_CODE: Final = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+;?\s*")


def run_sql(spark: SparkSession, text: str, messages: DataFrame) -> DataFrame:
    """Return what a query over the view `messages` gives. ConfigError: it cannot be asked."""
    messages.createOrReplaceTempView(VIEW)
    parser: Any = spark._jsparkSession.sessionState().sqlParser()
    with _told(text):
        parser.parsePlan(text)  # first, for its errors count the places of this text
        # Inside of brackets only a query can stand; a command would be done at once.
        parser.parsePlan(f"SELECT * FROM ({text}\n)")
        return spark.sql(text)


def require_pattern(spark: SparkSession, text: str) -> None:
    """Raise ConfigError where Java does not take a regular expression."""
    jvm: Any = spark.sparkContext._jvm
    try:
        jvm.java.util.regex.Pattern.compile(text)
    except IllegalArgumentException as error:
        why = str(error).splitlines()[0]
        raise ConfigError("body", text, f"is no regular expression: {why}") from None


@contextmanager
def _told(text: str) -> Iterator[None]:
    try:
        yield
    except AnalysisException as error:  # a text that cannot be parsed is one of its kinds
        raise ConfigError("sql", text, sentence(str(error))) from None


def sentence(told: str) -> str:
    """Return what Spark said without its codes, its plan and its copy of the text."""
    line = next((line for line in told.splitlines() if line.strip()), "Spark does not take it")
    return _STATE.sub(" ", _CODE.sub("", line.strip())).strip().rstrip(";")
