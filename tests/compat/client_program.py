"""A program of `clients/` that runs: commands go in, rows come out (its language: clients/README.md)."""

import contextlib
import io
import itertools
import json
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

Row = dict[str, Any]

WAIT_SECONDS: Final = 60.0
END_SECONDS_MAX: Final = 30.0


@dataclass
class Talk:
    """One command and the rows that it has given so far."""

    program: "ClientProgram"
    id: str
    rows: list[Row] = field(default_factory=list)
    kinds: Counter[str] = field(
        default_factory=Counter
    )  # how many rows of each: asked at every row

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self.kinds[row["type"]] += 1

    def of(self, kind: str) -> list[Row]:
        """Return the rows of one type, in the order of arrival."""
        with self.program.changed:
            return [row for row in self.rows if row["type"] == kind]

    def bodies(self, kind: str) -> list[str]:
        return [row["body"] for row in self.of(kind)]

    def wait(self, kind: str, count: int = 1, seconds: float = WAIT_SECONDS) -> list[Row]:
        """Wait until `count` rows of a type are there; an error row fails the test at once."""
        self.program.wait(
            lambda: self.count(kind) >= count or self.count("error") > 0,
            seconds,
            lambda: f"{self.count(kind)} of {count} rows {kind!r}; last: {self.rows[-3:]}",
        )
        errors = self.of("error")
        assert not errors, errors
        return self.of(kind)

    def count(self, kind: str) -> int:
        return self.kinds[kind]

    def stop(self) -> list[Row]:
        """End a send early; return what was acknowledged."""
        self.program.say("stop", self.id)
        self.wait("done")
        return self.of("sent")

    def resign(self) -> None:
        """Shut a transactional producer down."""
        self.program.say("resign", self.id)
        self.wait("done")

    def leave(self) -> list[Row]:
        """Shut a consumer down; return all that it got."""
        self.program.say("leave", self.id)
        self.wait("done")
        return self.of("got")


class ClientProgram:
    """A running client program; several tests may give it commands at the same time."""

    def __init__(self, name: str, command: Sequence[str], directory: Path, **environment: str):
        self.name = name
        directory.mkdir(parents=True, exist_ok=True)
        self.errors = directory / f"{name}.errors.txt"
        self.changed = threading.Condition()
        self._numbers = itertools.count(1)
        self._input = threading.Lock()
        self._talks: defaultdict[str, Talk] = defaultdict(lambda: Talk(self, ""))
        with self.errors.open("ab") as errors:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=directory,
                env=environment or None,
            )
        self._reader = threading.Thread(target=self._read, name=f"rows of {name}", daemon=True)
        self._reader.start()

    def say(self, verb: str, id_: str = "", **words: object) -> Talk:
        """Write one command."""
        talk = Talk(self, id_ or str(next(self._numbers)))
        if not id_:
            with self.changed:
                self._talks[talk.id] = talk
        line = " ".join(
            [verb, f"id={talk.id}", *(f"{key}={value}" for key, value in words.items())]
        )
        assert self._process.stdin is not None
        try:
            with self._input:
                self._process.stdin.write(line.encode() + b"\n")
                self._process.stdin.flush()
        except BrokenPipeError:
            raise AssertionError(f"{self.name} is gone:\n{self.tail()}") from None
        return talk

    def wait(self, is_so: Callable[[], bool], seconds: float, what: Callable[[], str]) -> None:
        """Wait for a condition on the rows."""
        deadline = time.monotonic() + seconds
        with self.changed:
            while not is_so():
                left = deadline - time.monotonic()
                if left <= 0 or self._process.poll() is not None:
                    raise AssertionError(f"{self.name}: {what()}\n{self.tail()}")
                self.changed.wait(min(left, 0.5))

    def tail(self) -> str:
        return self.errors.read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        self._process.kill()
        self._close()

    def end(self) -> None:
        """Let the program shut everything down and exit."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._close()

    def _close(self) -> None:
        self._process.wait()
        self._reader.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        stream, rest = cast(io.BufferedReader, self._process.stdout), b""
        while data := stream.read1():
            *lines, rest = (rest + data).split(b"\n")
            # some clients print a greeting of their own
            self._add([json.loads(line) for line in lines if line.startswith(b"{")])
        self._add([])

    def _add(self, rows: Sequence[Row]) -> None:
        """Keep what came together; whoever waits looks once, not at each row."""
        with self.changed:
            for row in rows:
                self._talks[row["id"]].add(row)
            self.changed.notify_all()


@dataclass(frozen=True)
class Client:
    """A client program on one cluster; `modes` are the ways in which it can send."""

    program: ClientProgram
    namesrv: str
    modes: Sequence[str]

    def start_send(self, **words: object) -> Talk:
        """Begin to send; the talk's rows tell how far it is."""
        return self.program.say("send", namesrv=self.namesrv, **words)

    def send(self, **words: object) -> list[Row]:
        """Send, wait for the end, and return the acknowledged messages."""
        talk = self.start_send(**words)
        talk.wait("done")
        return talk.of("sent")

    def recall(self, topic: str, handle: str) -> str:
        """Take back a message that waits; return its id."""
        talk = self.program.say("recall", namesrv=self.namesrv, topic=topic, handle=handle)
        (row,) = talk.wait("recalled")
        return str(row["message_id"])

    def request(self, **words: object) -> Talk:
        """Send requests, and return when each has its reply or none came."""
        talk = self.program.say("request", namesrv=self.namesrv, **words)
        talk.wait("done")
        return talk

    def answer(self, **words: object) -> Talk:
        """Start a consumer that replies, and return when it runs."""
        talk = self.program.say("answer", namesrv=self.namesrv, **words)
        talk.wait("ready")
        return talk

    def subscribe(self, **words: object) -> Talk:
        """Start a consumer and return when it runs."""
        talk = self.program.say("subscribe", namesrv=self.namesrv, **words)
        talk.wait("ready")
        return talk

    def transact(self, **words: object) -> Talk:
        """Start a transactional producer and return when its messages are sent."""
        talk = self.program.say("transact", namesrv=self.namesrv, **words)
        talk.wait("ready")
        return talk
