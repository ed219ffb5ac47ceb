"""ServerLog: the log of a server's process. It belongs to commands; programs have their own."""

import logging
import logging.handlers
import stat
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from orbitmq.errors import ConfigError
from orbitmq.logs.config import LogConfig
from orbitmq.logs.lines import JSON_START, JsonLines

logger = logging.getLogger(__name__)

_COMPLAIN_EVERY_S: Final = 60.0


class ServerLog:
    """Where everything goes that this process logs. Any thread may log; one at a time changes the log.

    with ServerLog() as log:
        log.use(LogConfig(level="debug"))

    What is logged before the first `use` waits for it.
    """

    def __init__(self) -> None:
        self.config = LogConfig()
        self._directory: Path | None = None
        self._root = logging.getLogger()
        self._handler: logging.Handler = _Waiting()

    def __enter__(self) -> Self:
        for handler in self._root.handlers[:]:
            self._root.removeHandler(handler)
        self._root.addHandler(self._handler)
        self._follow_level(self.config)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Close the log. Why the process ends is told on standard error by others, in a file only here."""
        if isinstance(self._handler, _Waiting):
            self.use(self.config)
        if isinstance(error, Exception) and self.config.file is not None:
            logger.error("ended by an error", extra={"reason": str(error)})
        self._handler.flush()

    def use(self, config: LogConfig, *, directory: Path | None = None) -> None:
        """Log as the config says from now on. ConfigError: the file cannot be written; all is as before.

        `directory` is where a running server may be told to log to if no file is given at its start.
        """
        handler = _handler_of(config)
        if directory is not None:
            self._directory = directory if config.file is None else config.file.parent
        before, self._handler = self._handler, handler
        self._root.addHandler(handler)
        self._root.removeHandler(before)
        self._follow_level(config)
        self.config = config
        if isinstance(before, _Waiting):
            before.pass_on(handler)
        before.close()

    def check_change(self, config: LogConfig) -> None:
        """ConfigError: a running server cannot log there.

        Whoever reaches a server's port can ask for that, so it is confined: to the directory of its log,
        and to files that are new or logs already.
        """
        file = config.file
        if file is None or file == self.config.file:
            return
        directory = self._directory
        if directory is None or file.resolve().parent != directory.resolve():
            rule = f"must be in {directory} while the server runs"
            raise ConfigError("logFile", str(file), rule)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            is_log = _is_new_or_log(file)
        except OSError as cause:
            raise _not_writable(file, cause) from cause
        if not is_log:
            raise ConfigError("logFile", str(file), "is there already and is no log of a server")
        _handler_of(config).close()

    def reopen(self) -> None:
        """Write to a new file of the same name: somebody has renamed the present one."""
        try:
            self.use(self.config)
        except ConfigError as error:
            logger.warning("the log file is not opened again: %s", error)
        else:
            logger.info("log file opened again")

    @staticmethod
    def _follow_level(config: LogConfig) -> None:
        # What libraries say below a warning is about them, not about this server.
        logging.getLogger().setLevel(logging.WARNING)
        logging.getLogger("orbitmq").setLevel(config.level.upper())


class _Waiting(logging.handlers.MemoryHandler):
    """Keeps what is logged before it is known where to."""

    def __init__(self) -> None:
        super().__init__(capacity=1_000, flushLevel=logging.CRITICAL + 1)

    def pass_on(self, handler: logging.Handler) -> None:
        self.setTarget(handler)
        self.flush()
        self.setTarget(None)


class _LogFile(logging.handlers.RotatingFileHandler):
    """A file that is renamed when it is long. If it cannot be written, the server goes on and says so."""

    def __init__(self, config: LogConfig) -> None:
        assert config.file is not None
        self._complained_at = -_COMPLAIN_EVERY_S
        super().__init__(
            config.file,
            maxBytes=config.file_bytes,
            backupCount=config.file_count,
            encoding="utf-8",
        )

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (logging's name)
        now = time.monotonic()
        if now - self._complained_at < _COMPLAIN_EVERY_S:
            return
        self._complained_at = now
        error = sys.exc_info()[1]
        line = f"orbitmq: log file {self.baseFilename} cannot be written: {error}\n"
        sys.stderr.write(line)


def _handler_of(config: LogConfig) -> logging.Handler:
    if config.file is None:
        handler: logging.Handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_text_lines() if sys.stderr.isatty() else JsonLines())
        return handler
    try:
        handler = _LogFile(config)
    except OSError as cause:
        raise _not_writable(config.file, cause) from cause
    handler.setFormatter(JsonLines())
    return handler


def _text_lines() -> logging.Formatter:
    from orbitmq.logs.text_lines import text_formatter

    return text_formatter(colors=True)


def _not_writable(file: Path, cause: OSError) -> ConfigError:
    rule = f"cannot be written: {cause.strerror or cause}"
    return ConfigError("logFile", str(file), rule)


def _is_new_or_log(file: Path) -> bool:
    try:
        found = file.lstat()
    except FileNotFoundError:
        return True
    if not stat.S_ISREG(found.st_mode):
        return False
    with file.open("rb") as opened:
        return opened.read(len(JSON_START)) in (b"", JSON_START)
