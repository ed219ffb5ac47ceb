"""Flush: bytes that are not on disk, slow syncs, a pool without buffers, a page cache that is busy."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from orbitmq.doctor.report import Finding, Numbers, Severity
from orbitmq.units import MINUTE_MS, SECOND_MS, MiB

SUBJECT = "flush"
UNFLUSHED_MAX: Final = 64 * MiB
INTERVAL_MAX_MS: Final = MINUTE_MS
FSYNC_MAX_MS: Final = 200
_NO_POOL: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushFacts:
    """What a broker tells of its disk; None: it does not tell."""

    where: str
    unflushed_bytes: int | None = None
    interval_ms: int = 500
    fsync_average_ms: float | None = None
    fsync_max_ms: float | None = None
    free_buffers: int = _NO_POOL
    append_lock_ms: int = 0
    busy_ms: int = SECOND_MS
    refusal: str = ""

    @classmethod
    def read(
        cls, where: str, runtime: Mapping[str, str], config: Mapping[str, str]
    ) -> "FlushFacts":
        unflushed, average = runtime.get("unflushedBytes"), runtime.get("flushAverageMicros")
        longest = runtime.get("flushMaxMicros")
        return cls(
            where=where,
            unflushed_bytes=int(unflushed) if unflushed else None,
            interval_ms=int(config.get("flushIntervalCommitLog", 500)),
            fsync_average_ms=int(average) / 1000 if average else None,
            fsync_max_ms=int(longest) / 1000 if longest else None,
            free_buffers=int(runtime.get("remainTransientStoreBufferNumbs", _NO_POOL)),
            append_lock_ms=int(runtime.get("pageCacheLockTimeMills", 0)),
            busy_ms=int(config.get("osPageCacheBusyTimeOutMills", SECOND_MS)),
            refusal=runtime.get("storeRefusal", ""),
        )


def examine(facts: FlushFacts, advise: Callable[..., str]) -> Iterator[Finding]:
    """Yield what is wrong; `advise(key=value)` is the command that changes a setting."""

    def finding(
        severity: Severity, what: str, numbers: Numbers, meaning: str, command: str
    ) -> Finding:
        return Finding(
            severity=severity,
            subject=SUBJECT,
            what=what,
            where=facts.where,
            numbers=numbers,
            meaning=meaning,
            command=command,
        )

    if facts.refusal:
        what, meaning = "the store takes no messages", facts.refusal
        yield finding(Severity.CRITICAL, what, {}, meaning, advise())
    unflushed = facts.unflushed_bytes or 0
    if unflushed > UNFLUSHED_MAX or (unflushed and facts.interval_ms > INTERVAL_MAX_MS):
        yield finding(
            Severity.WARNING,
            "acknowledged messages are not on disk",
            {"unflushed_bytes": unflushed, "flush_interval_ms": facts.interval_ms},
            "a power cut would lose them; a killed process would not",
            advise(flushIntervalCommitLog=500, flushCommitLogThoroughInterval=10_000),
        )
    if (facts.fsync_average_ms or 0) > FSYNC_MAX_MS:
        yield finding(
            Severity.WARNING,
            "syncs of the disk are slow",
            {"average_ms": facts.fsync_average_ms or 0, "longest_ms": facts.fsync_max_ms or 0},
            "with SYNC_FLUSH each send waits for one; otherwise more is unflushed than planned",
            advise(),
        )
    if not facts.free_buffers:
        yield finding(
            Severity.WARNING,
            "the transient pool has no buffer left",
            {"free_buffers": 0},
            "appends that need a new segment go to the page cache instead: raise transientStorePoolSize",
            advise(),
        )
    if facts.append_lock_ms > facts.busy_ms:
        yield finding(
            Severity.CRITICAL,
            "the page cache is busy: an append waits for the disk",
            {"waiting_ms": facts.append_lock_ms, "limit_ms": facts.busy_ms},
            "sends are refused until it is done (osPageCacheBusyTimeOutMills)",
            advise(),
        )


def summary(facts: FlushFacts) -> str:
    if facts.unflushed_bytes is None:
        return f"{facts.where} takes appends without delay"
    average = facts.fsync_average_ms or 0
    return f"{facts.where} {facts.unflushed_bytes} bytes unflushed, fsync {average:.1f} ms"
