"""Replicas: those that do not follow, those that lack too much, and primaries that have too few of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orbitmq.client.admin.results import BrokerInfo, LogCopy
from orbitmq.doctor.report import Finding, Numbers, Severity
from orbitmq.units import MINUTE_MS

SUBJECT = "replicas"
SILENT_MS: Final = 1 * MINUTE_MS
"""Either side speaks every 5 s (haSendHeartbeatInterval); clocks of two machines differ a little."""

Advise = Callable[[str], str]
"""Gives the command that lists the copies of a broker, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRules:
    """What a primary wants of its replicas."""

    wanted: int = 1  # so many must have a message, the primary included
    least: int = 1  # with fewer in sync messages are refused
    as_v4: bool = False

    @classmethod
    def read(cls, config: Mapping[str, str]) -> "SyncRules":
        if config.get("brokerRole") != "SYNC_MASTER":
            return cls()
        as_v4 = config.get("syncMasterAsInV4") == "true"
        wanted, least = (
            int(config.get(name, 1)) for name in ("inSyncReplicas", "minInSyncReplicas")
        )
        if config.get("enableAutoInSyncReplicas") == "true":
            wanted = least  # as many as are in sync have to do
        return cls(wanted=max(wanted, 2 if as_v4 else 1), least=least, as_v4=as_v4)


def examine(
    copies: Sequence[LogCopy], advise: Advise, now_ms: int, *, alone: bool = False
) -> Iterator[Finding]:
    """Yield replicas that do not follow, or are not in sync; `alone`: nobody knows their primary."""
    ends = {copy.broker_name: copy.log_end for copy in copies if copy.is_primary and not copy.error}
    for copy in copies:
        if copy.is_primary or copy.error:
            continue
        end = ends.get(copy.broker_name)
        if end is None and not alone:
            yield _finding(
                copy,
                Severity.CRITICAL,
                "the primary of a replica cannot be reached",
                {"replica_end": copy.log_end},
                "no primary of this broker name answers: if it is down nobody takes messages for it,"
                " until it is back or `orbitmq broker promote` makes a replica the primary",
                advise,
            )
        elif copy.connected is False or _is_silent(copy, now_ms):
            yield _finding(
                copy,
                Severity.WARNING,
                "a replica does not follow its primary",
                _numbers(copy, end),
                "what it has not copied is on one machine only, and not read from it; it asks at"
                f" {copy.follows or 'no address yet'} (haMasterAddress, or from name servers)",
                advise,
            )
        elif copy.in_sync is False:
            yield _finding(
                copy,
                Severity.WARNING,
                "a replica is not in sync",
                _numbers(copy, end) | {"bytes_per_second": copy.bytes_per_second},
                "it lacks haMaxGapNotInSync or more, and does not count for inSyncReplicas",
                advise,
            )


def examine_standing(
    before: Sequence[BrokerInfo], after: Sequence[BrokerInfo], advise: Advise
) -> Iterator[Finding]:
    """Yield replicas that are behind and came no nearer between two looks."""
    primaries = {broker.name: broker for broker in after if broker.is_primary and broker.runtime}
    earlier = {(b.name, b.broker_id): _end(b) for b in before if b.runtime}
    for replica in after:
        primary = primaries.get(replica.name)
        if replica.is_primary or primary is None or not replica.runtime:
            continue
        gap, end = _end(primary) - _end(replica), _end(replica)
        if gap > 0 and end == earlier.get((replica.name, replica.broker_id), -1):
            copy = LogCopy(replica.name, False, replica.address, end, gap)
            yield _finding(
                copy,
                Severity.WARNING,
                "a replica does not follow its primary",
                _numbers(copy, _end(primary)),
                "what it has not copied is on one machine only, and not read from it",
                advise,
            )


def examine_count(
    primary: LogCopy, in_sync: int, rules: SyncRules, advise: Advise
) -> Iterator[Finding]:
    """Yield that a primary has fewer in sync, itself included, than it waits for."""
    numbers: Numbers = {
        "in_sync": in_sync,
        "inSyncReplicas": rules.wanted,
        "minInSyncReplicas": rules.least,
    }
    if in_sync < rules.least:
        what = "fewer are in sync than minInSyncReplicas"
        meaning = "messages are refused; by RocketMQ only under a controller or with acting masters"
        yield _finding(primary, Severity.CRITICAL, what, numbers, meaning, advise)
    elif in_sync < rules.wanted:
        status = "SLAVE_NOT_AVAILABLE" if rules.as_v4 else "FLUSH_SLAVE_TIMEOUT after slaveTimeout"
        what = "fewer are in sync than inSyncReplicas"
        meaning = f"sends are answered {status}: what is stored now is on too few machines"
        yield _finding(primary, Severity.WARNING, what, numbers, meaning, advise)


def count_in_sync(copies: Sequence[LogCopy], broker_name: str) -> int:
    """Return how many have the log of a broker name, its primary included."""
    return sum(copy.in_sync is True for copy in copies if copy.broker_name == broker_name)


def _is_silent(copy: LogCopy, now_ms: int) -> bool:
    is_unsure = copy.connected is None and copy.last_heard_ms > 0
    return is_unsure and now_ms - copy.last_heard_ms > SILENT_MS


def _numbers(copy: LogCopy, end: int | None) -> Numbers:
    known: Numbers = {} if end is None else {"primary_end": end}
    if copy.gap_bytes is not None:
        known["gap_bytes"] = copy.gap_bytes
    return known | {"replica_end": copy.log_end}


def _finding(
    copy: LogCopy, severity: Severity, what: str, numbers: Numbers, meaning: str, advise: Advise
) -> Finding:
    return Finding(
        severity=severity,
        subject=SUBJECT,
        what=what,
        where=f"{copy.broker_name}, {copy.address}".removeprefix(", "),
        numbers=numbers,
        since_ms=None if copy.connected else copy.last_heard_ms or None,
        meaning=meaning,
        command=advise(copy.broker_name or copy.address),
    )


def _end(broker: BrokerInfo) -> int:
    return int(broker.runtime.get("commitLogMaxOffset", 0))
