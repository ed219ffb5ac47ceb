"""A worker of the pool: answers the requests of the JVM's reader, one connection after the other."""

import socket
import traceback
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa

from orbitmq.errors import OrbitError
from orbitmq.spark.columns.frames import (
    FILE,
    JSON,
    METRICS,
    BrokenRequestError,
    FrameSink,
    receive_request,
    send_error,
    send_frame,
    send_json,
)
from orbitmq.spark.columns.query import Query
from orbitmq.spark.shared_paths import task_of_the_jvm
from orbitmq.spark.source.in_place import mark_of
from orbitmq.spark.source.log_table import LogTask
from orbitmq.spark.source.metrics import ReadMetrics

_TYPE: Final = "orbitmq.errors"
"""By this name an error is found again on the driver (`failures`)."""


class Request(msgspec.Struct, frozen=True):
    """What the reader wants: the schema, an answer about filters or groups, a plan, the rows of a task."""

    what: Literal["schema", "filters", "groups", "plan", "read"]
    query: Query
    task: LogTask | None = None
    name: str = ""


def serve(link: socket.socket) -> None:
    """Answer the request of one connection. Whatever goes wrong is told there; the worker goes on."""
    try:
        request = msgspec.json.decode(receive_request(link), type=Request)
        _answer(link, request)
    except (BrokenPipeError, ConnectionResetError, BrokenRequestError):
        return  # Spark has the rows that it wanted (a limit), or the query was cancelled.
    except OrbitError as error:
        _tell(link, f"{_TYPE}.{type(error).__name__}: {error}")
    except Exception:  # a worker is for many tasks: one that fails is told, with all that is known
        _tell(link, traceback.format_exc())


def _tell(link: socket.socket, text: str) -> None:
    try:
        send_error(link, text)
    except OSError:
        return  # nobody listens


def _answer(link: socket.socket, request: Request) -> None:
    query = request.query
    answers: dict[str, Any] = {
        "schema": lambda: {"schema": query.schema_text()},
        "filters": lambda: {"taken": query.taken()},
        "groups": lambda: {"schema": query.grouped_schema_text()},
        "plan": lambda: {"tasks": query.tasks(), "options": query.absolute_options()},
    }
    if request.what in answers:
        send_json(link, JSON, answers[request.what]())
    elif request.task is not None:
        with task_of_the_jvm():
            _send_rows(link, query, request.task, request.name)


def _send_rows(link: socket.socket, query: Query, task: LogTask, name: str) -> None:
    sink, metrics = FrameSink(link), ReadMetrics(tasks=1)
    with pa.ipc.new_stream(sink, query.arrow_schema()) as writer:
        for batch in query.rows(task, name, metrics):
            stretch = mark_of(batch)
            if stretch is not None:
                send_frame(link, FILE, [stretch])
            writer.write_batch(batch)
            sink.send()
    sink.send()
    send_json(link, METRICS, {"log_bytes": metrics.log_bytes})


def work(orders: socket.socket) -> None:
    """Serve the connections that the pool hands over, until the pool is gone."""
    while True:
        word, files, _, _ = socket.recv_fds(orders, 1, 1)
        if not word:
            return
        for file in files:
            with socket.socket(fileno=file) as link:
                serve(link)
        try:
            orders.sendall(word)  # idle again
        except OSError:
            return
