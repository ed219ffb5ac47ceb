"""Brokers that cannot be reached where they say they are."""

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
