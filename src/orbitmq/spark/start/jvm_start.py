"""The start of Spark's JVM, which may be broken off."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import SparkContext, java_gateway


@contextmanager
def no_jvm_left_behind() -> Iterator[None]:
    """End a JVM that was started inside the `with` if Ctrl-C or an error ends it before the JVM is ready.

    PySpark takes away the directory in which the JVM is to say where it listens. A JVM that comes later fails
    there, and then lives on for ever: it never gets as far as to see that nobody is left.
    """
    gateway: Any = java_gateway
    start, started = gateway.Popen, list[Any]()

    def noted(*arguments: Any, **options: Any) -> Any:
        process = start(*arguments, **options)
        started.append(process)
        return process

    gateway.Popen = noted
    try:
        yield
    except BaseException:
        if SparkContext._gateway is None:
            for process in started:
                process.kill()
                process.wait()
        raise
    finally:
        gateway.Popen = start
