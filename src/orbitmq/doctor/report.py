"""What the doctor says: findings, worst first, and what was looked at and found well."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

Numbers = dict[str, int | float | str]


class Severity(IntEnum):
    """How bad a finding is."""

    NOTE = 1  # worth knowing; nothing is lost or late because of it
    WARNING = 2  # will hurt, or hurts somebody a little
    CRITICAL = 3  # messages are not seen, not taken or about to be lost
    CORRUPT = 4  # files are damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong: what and where, since when and how bad, what it means, what to run."""

    severity: Severity
    subject: str  # one of the words that `Report.looked_at` begins with
    what: str
    where: str
    meaning: str
    command: str
    numbers: Numbers = field(default_factory=dict)
    since_ms: int | None = None  # left out where nothing tells it


@dataclass(slots=True)
class Report:
    """Everything that one look gave."""

    target: str
    findings: list[Finding] = field(default_factory=list)
    looked_at: list[str] = field(default_factory=list)  # "disk: 25 % used", only what is well

    def add(self, subject: str, seen: str, findings: Iterable[Finding]) -> None:
        """Take what was found of a subject; `seen` says what there was to see if that is nothing."""
        found = list(findings)
        self.findings += found
        if not found:
            self.looked_at.append(f"{subject}: {seen}")
        self.findings.sort(key=lambda finding: -finding.severity)

    @property
    def exit_code(self) -> int:
        """0 fine, 1 findings, 4 corrupt."""
        if any(finding.severity is Severity.CORRUPT for finding in self.findings):
            return 4
        return 1 if self.findings else 0


def command(*words: object) -> str:
    """Return the text of a command that can be pasted into a shell."""
    return shlex.join(["orbitmq", *map(str, words)])


def share(part: float, whole: float) -> float:
    """Return a share in per cent, with one digit behind the point."""
    return round(100 * part / whole, 1) if whole else 0.0
