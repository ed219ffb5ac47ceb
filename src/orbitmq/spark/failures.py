"""What went wrong, in one sentence: Spark wraps every error of a task in pages of Java.

An error of ours that a task, a reader or the planner raised comes back as the same type with the same
text (its attributes stayed in the other process and are None). Anything else becomes a JobFailedError
or a SparkSetupError that says what is known. The original stays its `__cause__`.
"""

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from orbitmq import errors
from orbitmq.errors import JobFailedError, OrbitError, PipelineError, SparkSetupError

_OURS: Final = re.compile(r"^(?:.*?: )?orbitmq\.errors\.(\w+): (.+)$", re.MULTILINE)
_LAST_LINE: Final = re.compile(r"^([\w.]*(?:Error|Exception|Exit|Interrupt))(?:: (.*))?$")
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: \w+\s*$")
_JAVA_CLASS: Final = re.compile(r"^: (?:[\w$]+\.)+([\w$]+): ")
SENTENCE_MAX: Final = 300
DETAILS: Final = "ORBITMQ_DEBUG=1 shows all of what Spark said."


class _Known(NamedTuple):
    """A cause that many meet: what to look for, what it means, what to do."""

    pattern: str
    error: type[PipelineError]
    what: str
    next_step: str


_KNOWN: Final = (
    _Known(
        r"ModuleNotFoundError: No module named '(\w+)",
        SparkSetupError,
        "the Python of the executors has no module {0}",
        "Install it there, or send it along: docs/SPARK.md says how.",
    ),
    _Known(
        r'Cannot run program "([^"]+)"',
        SparkSetupError,
        "Spark cannot start {0}",
        "Set PYSPARK_PYTHON to a Python that the executors have.",
    ),
    _Known(
        r"\[PYTHON_VERSION_MISMATCH\] ([^\n]+)",
        SparkSetupError,
        "{0}",
        "Set PYSPARK_PYTHON to the driver's version of Python.",
    ),
    _Known(
        r"OutOfMemoryError: ([^\n]+)",
        JobFailedError,
        "the JVM ran out of memory ({0})",
        "Give it more: --conf spark.driver.memory=4g, on a cluster spark.executor.memory too.",
    ),
    _Known(
        r"Python worker exited unexpectedly|Python worker process crash",
        JobFailedError,
        "a Python worker ended in the middle of a task",
        "Mostly memory is short: give fewer cores (--master 'local[1]') or more memory.",
    ),
    _Known(
        r"ExecutorLostFailure[^\n]*?Reason: ([^\n]+)",
        JobFailedError,
        "an executor was lost too often ({0})",
        "The executors' logs on the workers say why.",
    ),
    _Known(
        r"All masters are unresponsive",
        SparkSetupError,
        "no Spark master answers at that address",
        "Look whether it runs, and at --master.",
    ),
    _Known(
        r"cancelled as part of cancellation of all jobs|Job \d+ cancelled",
        JobFailedError,
        "the job was cancelled",
        "",
    ),
    _Known(
        r"SparkContext was shut ?down|stopped SparkContext",
        JobFailedError,
        "Spark was stopped while the job ran",
        "",
    ),
)


@contextmanager
def clear_errors(what: str) -> Iterator[None]:
    """Raise errors of Spark as errors of ours; `what` names the work, as in "rebuild"."""
    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise explained(error, what) from error


def explained(error: BaseException, what: str) -> OrbitError:
    """Return the error of ours that stands for one of Spark."""
    if isinstance(error, OrbitError):
        return error
    if isinstance(error, Py4JNetworkError):
        return JobFailedError(f"{what}: Spark's JVM is gone", "Its messages stand above, if any.")
    text = _text_of(error)
    return _ours(text) or _known(text, what) or _other(text, what)


def _text_of(error: BaseException) -> str:
    text = str(error)
    java = getattr(error, "java_exception", None)
    if java is None:
        return text
    try:
        return f"{text}\n{java.toString()}"
    except Py4JError:
        return text  # the JVM is gone; what py4j noted is all there is


def _ours(text: str) -> OrbitError | None:
    """Return the error of ours that the text holds; the last one, for causes stand before effects."""
    found = [match for match in _OURS.finditer(text) if _class(match[1]) is not None]
    if not found:
        return None
    kind = _class(found[-1][1])
    assert kind is not None
    error = kind.__new__(kind)
    for name in list(inspect.signature(kind.__init__).parameters)[1:]:
        if name.isidentifier() and name not in ("args", "kwargs"):
            setattr(error, name, None)
    error.args = (_SQLSTATE.sub("", found[-1][2]),)
    return error


def _class(name: str) -> type[OrbitError] | None:
    kind = getattr(errors, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, OrbitError) else None


def _known(text: str, what: str) -> PipelineError | None:
    for known in _KNOWN:
        if match := re.search(known.pattern, text):
            sentence = known.what.format(*match.groups())
            return known.error(f"{what}: {sentence}", known.next_step)
    return None


def _other(text: str, what: str) -> JobFailedError:
    return JobFailedError(f"{what} failed: {_sentence(text)}", DETAILS)


def _sentence(text: str) -> str:
    """Return the line of an unknown error that says most."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if "Traceback (most recent call last)" in text:
        for line in reversed(lines):
            if _LAST_LINE.match(line):
                return line[:SENTENCE_MAX]
    for line in lines:
        if _JAVA_CLASS.match(line):  # the line behind py4j's "An error occurred while calling ..."
            return _JAVA_CLASS.sub("", line)[:SENTENCE_MAX]
    return _SQLSTATE.sub("", lines[0])[:SENTENCE_MAX] if lines else "Spark gave no reason"
