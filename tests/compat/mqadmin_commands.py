"""RocketMQ's mqadmin as a real process: one that runs many commands, and what it printed for each.

Each command is a line as a person types it. Before it runs, `NAMESRV` and `BROKER` become addresses,
`ID0`, `ID1` ... the ids of the messages that sendMessage printed, and `CLIENT` that of the consumer. In
what it prints, times, addresses, ids and process-specific figures become words, so that two clusters
can be compared.
"""

import re
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from compat.java_cluster import java_command, server_jars
from compat.maven import HERE, compiled

PROGRAM: Final = HERE / "mqadmin" / "ManyCommands.java"
LOGBACK: Final = HERE / "mqadmin" / "rmq.logback.xml"
END: Final = "\f\n"
COMMAND_SECONDS_MAX: Final = 90

_MASKS: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?"), "TIME"),
    (re.compile(r"\b1[5-9]\d{11}\b"), "MILLISECONDS"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\b[0-9A-F]{32,56}\b"), "ID"),
    (re.compile(r"/\S*/store/commitlog"), "COMMITLOG"),
    (re.compile(r"spentTimeMills=\d+"), "spentTimeMills=N"),
    # RocketMQ takes a topic with consumers for a group of itself: not something to copy.
    (re.compile(r"^DefaultCluster +(\S+) +\1 *\n", re.MULTILINE), ""),
    (re.compile(r"MessageTrack \[consumerGroup=AdmT,[^\]]*\](\n(?=M))?"), ""),
    (re.compile(r"^(AdmT) +\1 .*\n", re.MULTILINE), ""),
)


class MqadminProcess:
    """One process for one cluster."""

    def __init__(self, namesrv: str, broker: str, home: Path) -> None:
        self.names = {"NAMESRV": namesrv, "BROKER": broker}
        self._ids: list[str] = []
        options = (
            f"-Drocketmq.namesrv.addr={namesrv}",
            f"-Drmq.logback.configurationFile={LOGBACK}",
        )
        home.mkdir(parents=True, exist_ok=True)
        self._errors = (home / "errors.txt").open("wb")
        self._process = subprocess.Popen(
            java_command(
                PROGRAM.stem,
                home=home,
                heap="256m",
                options=options,
                classes=str(compiled(PROGRAM, server_jars())),
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=home,
            text=True,
        )

    def __enter__(self) -> "MqadminProcess":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def run(self, command: str) -> str:
        """Run one command and return what it printed."""
        assert self._process.stdin is not None
        words = "\t".join(self._word(word) for word in command.split())
        self._process.stdin.write(words + "\n")
        self._process.stdin.flush()
        text = self._read(command)
        if command.startswith("sendMessage"):
            self._ids += re.findall(r"\b[0-9A-F]{32,56}\b", text)
        if client := re.search(r"\S+@subscriber", text):
            self.names["CLIENT"] = client[0]
        return text

    def _read(self, command: str) -> str:
        assert self._process.stdout is not None
        lines: list[str] = []
        too_late = threading.Timer(COMMAND_SECONDS_MAX, self._process.kill)
        too_late.start()
        try:
            while (line := self._process.stdout.readline()) != END:
                assert line, f"mqadmin ended, or took too long, in {command!r}:\n{''.join(lines)}"
                lines.append(line)
        finally:
            too_late.cancel()
        return "".join(lines)

    def run_all(self, commands: Iterable[str]) -> dict[str, str]:
        return {command: masked(self.run(command)) for command in commands}

    def _word(self, word: str) -> str:
        if word.startswith("ID") and word[2:].isdigit():
            return self._ids[int(word[2:])]
        return self.names.get(word, word)


def masked(text: str) -> str:
    """Return the text without what differs from run to run."""
    for pattern, word in _MASKS:
        text = pattern.sub(word, text)
    return text
