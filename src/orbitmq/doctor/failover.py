"""Failover: broker names that have no primary and nobody who may be it, brokers without their coordinator."""

from collections.abc import Iterator, Sequence

from orbitmq.client.admin.results import LogCopy
from orbitmq.doctor.replicas import SUBJECT, Advise
from orbitmq.doctor.report import Finding, Severity


def examine(copies: Sequence[LogCopy], listing: Advise, promotion: Advise) -> Iterator[Finding]:
    """Yield what is wrong with the failover of each broker name; by its brokers that answer."""
    asked = [copy for copy in copies if copy.failover is not None]
    for name in dict.fromkeys(copy.broker_name for copy in asked):
        members = [copy for copy in asked if copy.broker_name == name]
        yield from _unreached(members, listing)
        yield from _vacant(members, promotion) or _last(members, listing)


def _unreached(members: Sequence[LogCopy], listing: Advise) -> Iterator[Finding]:
    for copy in members:
        told = copy.failover
        if told is None or told.known:
            continue
        yield Finding(
            severity=Severity.CRITICAL if copy.is_primary else Severity.WARNING,
            subject=SUBJECT,
            what="a broker does not reach its coordinator",
            where=_where(copy),
            numbers={"lease_ms": told.lease_ms},
            meaning=f"a primary goes on until its lease ends and then refuses messages, a replica "
            f"cannot take over: {told.state}",
            command=listing(copy.broker_name or copy.address),
        )


def _vacant(members: Sequence[LogCopy], promotion: Advise) -> list[Finding]:
    """Return that nobody has the lease, and nobody who answers may take it."""
    known = [copy for copy in members if copy.failover is not None and copy.failover.known]
    if not known or any(c.failover.has_primary or c.failover.may for c in known if c.failover):
        return []
    longest = max(known, key=lambda copy: copy.log_end)
    told = longest.failover
    assert told is not None
    missing = ", ".join(told.in_sync) or "nobody, the coordinator knows none"
    finding = Finding(
        severity=Severity.CRITICAL,
        subject=SUBJECT,
        what="there is no primary, and nobody may take over",
        where=_where(longest),
        numbers={"epoch": told.epoch, "log_end": longest.log_end},
        meaning=f"everything acknowledged is at {missing}: start one of these, it takes over by itself. "
        "Only if they are lost, the command makes a primary of the longest log that is left; what it "
        "lacks is lost then",
        command=promotion(longest.address),
    )
    return [finding]


def _last(members: Sequence[LogCopy], listing: Advise) -> list[Finding]:
    """Return that the primary alone has everything that was acknowledged."""
    for copy in members:
        told = copy.failover
        if told is not None and told.lease_ms and len(told.in_sync) == 1:
            finding = Finding(
                severity=Severity.WARNING,
                subject=SUBJECT,
                what="nobody could take over from the primary",
                where=_where(copy),
                numbers={"epoch": told.epoch, "in_sync": 1},
                meaning="it alone has everything that was acknowledged: without it messages are refused "
                "until it is back; a replica that has caught up changes that",
                command=listing(copy.broker_name or copy.address),
            )
            return [finding]
    return []


def _where(copy: LogCopy) -> str:
    return f"{copy.broker_name}, {copy.address}".removeprefix(", ")
