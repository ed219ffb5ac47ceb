"""Brokers that cannot be reached where they say they are, and replicas that are behind."""

from collections.abc import Iterator, Sequence

from orbitmq.client.admin.results import BrokerInfo
from orbitmq.doctor.report import Finding, Severity, command

SUBJECT = "brokers"


def examine(brokers: Sequence[BrokerInfo], target_host: str) -> Iterator[Finding]:
    """Yield brokers whose advertised address does not answer from here."""
    for broker in brokers:
        if broker.error:
            yield Finding(
                severity=Severity.CRITICAL,
                subject=SUBJECT,
                what="the advertised address of a broker cannot be reached from here",
                where=f"{broker.name} (id {broker.broker_id}), {broker.address}",
                meaning=f"clients are sent there and fail: {broker.error}. It is down, or brokerIP1 is an"
                " address of another network",
                command=command("broker", "run", "--config", "broker.conf", "--host", target_host),
            )


def no_namesrv(broker: str, namesrv: str, error: str) -> Finding:
    """Return that the name servers of a broker do not answer."""
    return Finding(
        severity=Severity.CRITICAL,
        subject=SUBJECT,
        what="the name server of a broker cannot be reached from here",
        where=f"{broker}, namesrvAddr {namesrv}",
        meaning=f"clients find no topic of this broker there: {error}",
        command=command("broker", "config", broker),
    )


def examine_replicas(
    before: Sequence[BrokerInfo], after: Sequence[BrokerInfo]
) -> Iterator[Finding]:
    """Yield replicas that are behind and did not come nearer between two looks."""
    primaries = {broker.name: broker for broker in after if broker.is_primary and broker.runtime}
    earlier = {(b.name, b.broker_id): _end(b) for b in before if b.runtime}
    for replica in after:
        primary = primaries.get(replica.name)
        if replica.is_primary or primary is None or not replica.runtime:
            continue
        gap, end = _end(primary) - _end(replica), _end(replica)
        if gap > 0 and end == earlier.get((replica.name, replica.broker_id), -1):
            yield Finding(
                severity=Severity.WARNING,
                subject=SUBJECT,
                what="a replica does not follow its primary",
                where=f"{replica.name} (id {replica.broker_id}), {replica.address}",
                numbers={"gap_bytes": gap, "replica_end": end, "primary_end": _end(primary)},
                meaning="what it has not copied is on one machine only, and not read from it",
                command=command("broker", "config", replica.address),
            )


def _end(broker: BrokerInfo) -> int:
    return int(broker.runtime.get("commitLogMaxOffset", 0))
