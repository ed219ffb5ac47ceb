"""One key: what the index has under it, what a scan of the log finds, and the difference."""

from collections.abc import Iterator
from dataclasses import dataclass

from orbitmq.doctor.report import Finding, Severity, share

SUBJECT = "key"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFacts:
    """A key that was asked for. `scanned` is None where nobody read all messages."""

    topic: str
    key: str
    indexed: int  # messages that the index leads to
    walked: int = 0  # entries of the chains that were followed
    foreign: int = 0  # of these, entries of other keys' hashes
    scanned: int | None = None  # messages that have it, index or not
    index_enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAdvice:
    """The commands that help; `scan` reads all messages."""

    scan: str
    rebuild: str


def examine(facts: KeyFacts, advice: KeyAdvice) -> Iterator[Finding]:
    """Yield why a query for the key finds nothing, or less than there is."""
    if facts.scanned is not None and facts.scanned > facts.indexed:
        yield _finding(
            facts,
            Severity.CRITICAL,
            "the index does not lead to all messages of the key",
            f"a broker's query gives {facts.indexed} of {facts.scanned} messages",
            advice.rebuild,
        )
    elif not facts.indexed:
        if facts.scanned is None:
            meaning = (
                "no message has this key (or id), or it was stored without an index; a scan tells"
            )
            command = advice.scan
        else:
            meaning = "no message of the topic has this key; only KEYS and the unique id are keys"
            command = advice.scan
        yield _finding(facts, Severity.NOTE, "nothing is found by the key", meaning, command)


def summary(facts: KeyFacts) -> str:
    text = f"{facts.key!r} of {facts.topic} has {facts.indexed} messages"
    if facts.walked:
        text += f", {facts.walked} entries walked, {share(facts.foreign, facts.walked):g} % foreign"
    return text


def _finding(facts: KeyFacts, severity: Severity, what: str, meaning: str, command: str) -> Finding:
    numbers: dict[str, int | float | str] = {"by_index": facts.indexed}
    if facts.scanned is not None:
        numbers["by_scan"] = facts.scanned
    if facts.walked:
        numbers |= {"entries_walked": facts.walked, "foreign": facts.foreign}
    if not facts.index_enabled:
        numbers["messageIndexEnable"] = "false"
    return Finding(
        severity=severity,
        subject=SUBJECT,
        what=what,
        where=f"{facts.topic}, key {facts.key}",
        numbers=numbers,
        meaning=meaning,
        command=command,
    )
