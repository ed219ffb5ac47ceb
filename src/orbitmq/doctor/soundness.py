"""Files that are damaged: what `store check` would say, from a quick look or from the whole of it."""

from collections import Counter
from collections.abc import Iterable, Iterator

from orbitmq.doctor.report import Finding, Severity
from orbitmq.store.verify import findings as verify

SUBJECT = "files"


def examine(found: Iterable[verify.Finding], check: str, repair: str) -> Iterator[Finding]:
    """Yield one finding for each kind of damage in each file."""
    first: dict[tuple[str, verify.Kind], verify.Finding] = {}
    counts: Counter[tuple[str, verify.Kind]] = Counter()
    for one in found:
        if one.severity is verify.Severity.ERROR:
            key = str(one.path), one.kind
            first.setdefault(key, one)
            counts[key] += 1
    for key, one in first.items():
        yield _finding(one, counts[key], check, repair)


def _finding(one: verify.Finding, count: int, check: str, repair: str) -> Finding:
    torn = one.kind is verify.Kind.TAIL
    return Finding(
        severity=Severity.WARNING if torn else Severity.CORRUPT,
        subject=SUBJECT,
        what=f"{one.kind.value}: {one.cause}",
        where=f"{one.path}, position {one.position}",
        numbers={"places": count},
        meaning=one.advice,
        command=repair if one.advice in (verify.OPEN_STEP, verify.REBUILD_STEP) else check,
    )


def not_closed(root: str, since_ms: int | None, command: str) -> Finding:
    """Return that nobody has the store open and nobody closed it."""
    return Finding(
        severity=Severity.NOTE,
        subject=SUBJECT,
        what="the store was not closed: its last broker was killed, or the machine stopped",
        where=f"{root}/abort",
        since_ms=since_ms,
        meaning="the next start recovers it; until then queues and index may end before the log",
        command=command,
    )
