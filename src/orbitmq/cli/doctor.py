"""`orbitmq doctor`: one command for "something is wrong"."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbitmq.cli.cluster_options import plural
from orbitmq.cli.output import Output, print_json, print_table, progress, time_text

if TYPE_CHECKING:
    from orbitmq.doctor.asked import Asked
    from orbitmq.doctor.report import Finding, Report

_ADDRESS = re.compile(r"[^/\s]+:\d{1,5}(?:;[^/\s]+:\d{1,5})*")

Target = Annotated[
    str,
    typer.Argument(
        metavar="STORE_DIR|HOST:PORT",
        help="A store directory, or the address of a name server or a broker.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(exists=True, dir_okay=False, help="broker.conf of the store directory."),
]
Key = Annotated[
    str | None, typer.Option(help="Why is a message not found by this key? With --topic.")
]
Scan = Annotated[
    bool, typer.Option("--scan", help="With --key: read all messages, not the index alone.")
]
Thorough = Annotated[
    bool, typer.Option("--thorough", help="Read all of a store, as `orbitmq store check` does.")
]
StuckAfter = Annotated[
    int, typer.Option(min=0, help="Seconds after which a member that does nothing is stuck.")
]


def doctor(
    target: Target,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    group: Annotated[str | None, typer.Option(help="Only this group.")] = None,
    key: Key = None,
    scan: Scan = False,
    thorough: Thorough = False,
    stuck_after: StuckAfter = 60,
    config: Config = None,
    output: Annotated[Output, typer.Option(help="table for people, json for programs.")] = (
        Output.TABLE
    ),
) -> None:
    """Say what is wrong, where, how bad, what it means and what to run. Changes nothing.

    A directory is read beside a running broker too. Through a name server all its brokers, topics
    and groups are looked at, OrbitMQ's or RocketMQ's. The worst comes first, and at the end what was
    found well.

    Exit code 0: all is well, 1: there are findings, 3: nobody answers, 4: files are damaged.
    """
    from orbitmq.doctor.asked import Asked

    if key is not None and topic is None:
        raise typer.BadParameter("a key belongs to a topic: give --topic too", param_hint="--key")
    asked = Asked(
        target=target,
        config=str(config or ""),
        topic=topic,
        group=group,
        key=key,
        scan=scan,
        thorough=thorough,
        stuck_ms=stuck_after * 1000,
    )
    report = examined(asked, config)
    if output is Output.JSON:
        print_json(report_value(report))
    else:
        _print_report(report)
    raise typer.Exit(code=report.exit_code)


def examined(asked: "Asked", config: Path | None = None) -> "Report":
    """Return what a look at a directory or at servers gives."""
    if not Path(asked.target).exists() and _ADDRESS.fullmatch(asked.target):
        from orbitmq.doctor.servers import examine_servers

        return examine_servers(asked)
    from orbitmq.doctor.directory import DirectoryDoctor
    from orbitmq.settings import load_settings

    settings = load_settings(config)
    settings.add_file(Path(asked.target) / "config" / "orbitmq.properties")
    with progress("looking") as show:
        return DirectoryDoctor(asked, settings, progress=show).run()


def report_value(report: "Report") -> dict[str, Any]:
    """Return a report as JSON prints it. The names are an interface: scripts read them."""
    return {
        "target": report.target,
        "findings": [
            {
                "severity": finding.severity.name.lower(),
                "subject": finding.subject,
                "what": finding.what,
                "where": finding.where,
                "since_ms": finding.since_ms,
                "numbers": finding.numbers,
                "meaning": finding.meaning,
                "command": finding.command,
            }
            for finding in report.findings
        ],
        "looked_at": report.looked_at,
    }


def _print_report(report: "Report") -> None:
    if report.findings:
        print_table(
            ("", "severity", "what", "where", "since and how bad", "what it means"),
            [_row(number, finding) for number, finding in enumerate(report.findings, 1)],
        )
        typer.echo("what to run:")
        for number, finding in enumerate(report.findings, 1):
            typer.echo(f"{number:3}  {finding.command}")  # whole lines, to be copied
    typer.echo(plural(len(report.findings), "finding"))
    if report.looked_at:
        typer.echo(f"looked at and fine: {'; '.join(report.looked_at)}")


def _row(number: int, finding: "Finding") -> tuple[object, ...]:
    numbers = [f"{name} {value}" for name, value in finding.numbers.items()]
    since = [f"since {time_text(finding.since_ms)}"] if finding.since_ms else []
    bad = "\n".join((*since, *numbers))
    severity = finding.severity.name.lower()
    return (number, severity, finding.what, finding.where, bad, finding.meaning)
