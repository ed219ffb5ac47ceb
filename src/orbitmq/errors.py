"""Every exception that OrbitMQ raises on purpose.

OrbitError
├── ConfigError              a setting has a value that cannot work
├── FormatError              bytes are not what they should be (no file known yet)
├── StoreError               something about a store directory; has `path`
│   ├── NotAStoreError         there is no store here, or not one that can be read
│   ├── StoreLockedError       another process has the store open
│   ├── StoreClosedError       the store was closed; nothing can be asked of it
│   ├── StoreFailedError       an earlier write or sync failed; appends are refused until a restart
│   ├── MissingObjectError     an object store has no such object
│   ├── StoreIOError           the operating system refused a read, write or sync
│   │   ├── NoSpaceError         the disk is full
│   │   └── NoPermissionError    the file or directory may not be used
│   ├── WrongFileError         a file has the wrong kind, name or length
│   ├── CorruptRecordError     a record fails its own checks
│   └── StateFileError         a JSON state file cannot be understood
├── WireError                something between two programs; has `peer`
│   ├── RemoteProtocolError    the peer sent bytes that are no command; its connection is closed
│   ├── FieldError             a header field of a request is missing or cannot be understood
│   ├── UnreachableError       no connection, or it broke before the answer came
│   ├── RequestTimeoutError    no answer in time; whether the request was done is not known
│   ├── TooManyRequestsError   more requests wait for answers than the limit allows
│   └── ResponseError          the peer answered that it could not do it; has `code` and `remark`
├── ClientError              something about a producer, a consumer or an admin
│   ├── NoRouteError           no name server knows the topic, or nobody serves it
│   ├── InvalidMessageError    a message or a name that no broker would take
│   ├── SendFailedError        every try to send a message failed; has `attempts`
│   ├── TransactionInDoubtError  its end got no answer; its broker will ask the group's checkers
│   ├── ClientClosedError      the producer or consumer was closed
│   └── InProgressError        a message with the same business key is being handled
├── Sql92SyntaxError         a text is no SQL92 expression
├── Sql92EvaluationError     a property does not fit what an SQL92 expression compares it with
├── Sql92TranslationError    an SQL92 expression cannot be a column of Spark
└── PipelineError            something about Spark
    ├── SparkSetupError        Spark, its Java or its Python workers cannot be used as they are
    ├── StaleQueryError        what a query was planned from is gone; made again, it can be answered
    └── JobFailedError         a Spark job ended without its result; what it was to change is as before

A message answers three questions: what and where, what it means, what to do next. `exit_code` is what
the command line returns: 2 usage, 3 unreachable, 4 corrupt or unreadable.

Statuses of an append or a read (see `orbitmq.message`) are values, not exceptions: a caller handles
them on every call.
"""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any


class OrbitError(Exception):
    """Base of all errors of OrbitMQ. They may cross processes, with everything that they know."""

    exit_code = 4

    def __reduce__(self) -> tuple[Callable[..., "OrbitError"], tuple[Any, ...]]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    kind: type[OrbitError], arguments: tuple[Any, ...], state: dict[str, Any]
) -> OrbitError:
    """Return an error as it was; the constructor of most takes other arguments than the text."""
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(state)
    return error


class ConfigError(OrbitError):
    """A setting has a value that cannot work."""

    exit_code = 2

    def __init__(self, setting: str, value: object, rule: str) -> None:
        self.setting, self.value, self.rule = setting, value, rule
        super().__init__(f"setting {setting} = {value!r}: {rule}")


class FormatError(OrbitError):
    """Bytes are not what they should be; `position` counts from the start of the buffer."""

    def __init__(self, reason: str, position: int = 0) -> None:
        self.reason, self.position = reason, position
        super().__init__(f"{reason} (at byte {position})")


class StoreError(OrbitError):
    """Something is wrong with a store directory or a file in it."""

    def __init__(self, path: Path | str, what: str, next_step: str) -> None:
        self.path, self.what, self.next_step = Path(path), what, next_step
        super().__init__(f"{path}: {what}. {next_step}")


class NotAStoreError(StoreError):
    """There is no store at this path, or it cannot be read as one."""


class StoreLockedError(StoreError):
    """Another process has this store open."""


class StoreClosedError(StoreError):
    """The store was closed; nothing can be asked of it."""


class StoreFailedError(StoreError):
    """A write or sync failed earlier. Appends are refused: a repeated sync can succeed over lost pages."""


class WrongFileError(StoreError):
    """A file of the store has the wrong kind, name or length."""


class StateFileError(StoreError):
    """A JSON state file cannot be understood."""


class CorruptRecordError(StoreError):
    """A record of the commit log fails its own checks."""

    def __init__(self, path: Path | str, position: int, reason: str, next_step: str) -> None:
        self.position, self.reason = position, reason
        super().__init__(path, f"position {position}: {reason}", next_step)


class MissingObjectError(StoreError):
    """An object store has no such object, or no such bucket."""


class StoreIOError(StoreError):
    """The operating system refused an operation on a file of the store."""

    def __init__(self, path: Path | str, operation: str, cause: OSError, next_step: str) -> None:
        self.operation, self.errno = operation, cause.errno
        super().__init__(path, f"{operation} failed: {cause.strerror or cause}", next_step)


class NoSpaceError(StoreIOError):
    """The disk is full."""


class NoPermissionError(StoreIOError):
    """The file or directory may not be used by this user."""


def io_error(path: Path | str, operation: str, cause: OSError) -> StoreError:
    """Return the typed error for what the operating system said; raise it `from` the cause."""
    match cause.errno:
        case errno.ENOSPC | errno.EDQUOT:
            step = "Free space on that disk or lower the retention, then start again."
            return NoSpaceError(path, operation, cause, step)
        case errno.EACCES | errno.EPERM | errno.EROFS:
            step = "Give this user read and write permission for the store directory."
            return NoPermissionError(path, operation, cause, step)
        case errno.EISDIR | errno.ENOTDIR | errno.EEXIST:
            step = "Move away what lies there; `orbitmq store check` shows what belongs in a store."
            return WrongFileError(path, f"{operation} failed: {cause.strerror}", step)
    step = "Look at the disk (`dmesg`), then run `orbitmq store check` on the directory."
    return StoreIOError(path, operation, cause, step)


class WireError(OrbitError):
    """Something went wrong between two programs; `peer` is the other's address, empty if not known."""

    exit_code = 3

    def __init__(self, peer: str, what: str, next_step: str = "") -> None:
        self.peer, self.what, self.next_step = peer, what, next_step
        text = f"{peer}: {what}" if peer else what
        super().__init__(f"{text}. {next_step}" if next_step else text)


class RemoteProtocolError(WireError):
    """The peer sent bytes that are no command. Nothing behind them can be understood: close."""

    def __init__(self, what: str, peer: str = "") -> None:
        super().__init__(peer, what)


class FieldError(WireError):
    """A header field is missing or cannot be understood; `field` is its name on the wire."""

    def __init__(self, field: str, what: str, peer: str = "") -> None:
        self.field = field
        super().__init__(peer, f"header field {field}: {what}")


class UnreachableError(WireError):
    """No connection could be made, or it broke before the answer came."""


class RequestTimeoutError(WireError):
    """No answer came in time. Whether the request was done is not known."""


class TooManyRequestsError(WireError):
    """More requests wait for an answer than the limit allows; try again when some are answered."""


class ResponseError(WireError):
    """The peer answered that it could not do it."""

    exit_code = 1

    def __init__(self, code: int, remark: str, peer: str = "", next_step: str = "") -> None:
        self.code, self.remark = code, remark
        super().__init__(peer, f"answer code {code}: {remark}", next_step)


class ClientError(OrbitError):
    """Something about a producer, a consumer or an admin client."""

    exit_code = 3


class NoRouteError(ClientError):
    """No name server knows the topic, or no broker that serves it is registered."""

    def __init__(self, topic: str, what: str, next_step: str) -> None:
        self.topic = topic
        super().__init__(f"topic {topic}: {what}. {next_step}")


class Sql92SyntaxError(OrbitError):
    """A text that is no SQL92 expression."""

    exit_code = 2


class Sql92EvaluationError(OrbitError):
    """A property whose value does not fit what an SQL92 expression compares it with."""


class Sql92TranslationError(OrbitError):
    """An SQL92 expression that cannot be a column of Spark with the same answers."""

    exit_code = 2


class InvalidMessageError(ClientError):
    """A message, topic or group that no broker would take."""

    exit_code = 2


class SendFailedError(ClientError):
    """Every try to send a message failed; `attempts` says where and why."""

    def __init__(self, topic: str, attempts: list[tuple[str, Exception]]) -> None:
        self.topic, self.attempts = topic, attempts
        tries = "; ".join(f"{broker}: {error}" for broker, error in attempts)
        super().__init__(f"topic {topic}: not sent after {len(attempts)} tries: {tries}")


class TransactionInDoubtError(ClientError):
    """The broker may or may not have heard how a transaction ended; `state` is how."""

    def __init__(self, transaction_id: str, state: str, why: str) -> None:
        self.transaction_id, self.state = transaction_id, state
        super().__init__(
            f"transaction {transaction_id}: no answer to its {state}: {why}. "
            "Its broker asks a producer of the group later; keep one with a checker running."
        )


class ClientClosedError(ClientError):
    """The producer, consumer or admin client was closed."""


class InProgressError(ClientError):
    """Another handler is busy with a message of the same business key; let this one come again."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"key {key!r} is being handled already; let the message come again later")


class PipelineError(OrbitError):
    """Something about Spark; `next_step` says what to do."""

    def __init__(self, what: str, next_step: str = "") -> None:
        self.what, self.next_step = what, next_step
        super().__init__(f"{what}. {next_step}" if next_step else what)


class SparkSetupError(PipelineError):
    """Spark, its Java or its Python workers cannot be used as they are."""

    exit_code = 2


class StaleQueryError(PipelineError):
    """What a query was planned from was deleted since; made again, it can be answered."""

    exit_code = 3


class JobFailedError(PipelineError):
    """A Spark job ended without its result. What it was to change is as it was before."""

    exit_code = 3
