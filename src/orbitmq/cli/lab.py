"""`orbitmq lab`: the claims of the design documents, tried on this machine."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.output import Output, note, print_json, print_table, progress
from orbitmq.errors import io_error

if TYPE_CHECKING:
    from orbitmq.lab.experiment import Experiment, Result, Size

SIZES = ("small", "full")

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME", help="Which experiments; none: all of them, in a minute or two."
    ),
]
SizeName = Annotated[
    str,
    typer.Option(
        "--size",
        metavar="small|full",
        help="full: figures that mean something, up to 20 s each. small: to see that it works.",
    ),
]
OutputForm = Annotated[
    Output, typer.Option(help="table, or json: one line for each experiment as it ends.")
]
PlotDirectory = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        metavar="DIR",
        file_okay=False,
        help="Write NAME.svg here, a picture of each. Needs the extra `lab`.",
    ),
]
Place = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        metavar="DIR",
        exists=True,
        file_okay=False,
        writable=True,
        help="A directory on the disk under test; by default where temporary files go.",
    ),
]
ListOnly = Annotated[
    bool,
    typer.Option("--list", help="Say what there is and which claim each looks at; run nothing."),
]


def lab(
    names: Names = None,
    size: SizeName = "full",
    output: OutputForm = Output.TABLE,
    plot: PlotDirectory = None,
    directory: Place = None,
    list_only: ListOnly = False,
) -> None:
    """Try the claims of the design documents on this machine's own files and sockets.

    Each experiment checks what it measures (equal bytes, equal counts) and ends in one sentence: what was
    seen, beside what the documents say. It may well say that a claim does not hold here. Files go into a
    directory of its own, up to half a gigabyte, and are removed.

    \b
    page-cache  a queue in order against random records, from a cold log
    transfer    a stream and pulls by copies, mapped slices and sendfile
    file-copy   a file copied by a loop over a buffer and by the kernel
    buffers     copies of bytes against views, heap against mapped memory
    storage     the same messages in this log, in LMDB and in SQLite
    sequential  blocks of a file in order against at random, beside memory
    one-log     one shared log against a log per partition, with and without sync
    flush       async, sync and the transient pool: rate, p50, p99
    mmap        warm-up, mlock and read-ahead, seen in page faults

    Exit code 1 if a check failed: then bytes were lost or changed, and its figures mean nothing.
    """
    from orbitmq.lab.catalogue import EXPERIMENTS
    from orbitmq.lab.experiment import Size

    if size not in SIZES:
        raise typer.BadParameter(f"{size!r} is neither small nor full", param_hint="--size")
    chosen = _chosen(names, EXPERIMENTS)
    if list_only:
        _print_list(chosen, output)
        return
    if plot is not None:
        _require_plot(plot)
    all_ok = True
    for experiment in chosen:
        all_ok &= _run(experiment, Size(size), directory, output, plot)
    if not all_ok:
        raise typer.Exit(code=1)


def _chosen(
    names: Sequence[str] | None, experiments: "dict[str, Experiment]"
) -> "list[Experiment]":
    unknown = [name for name in names or () if name not in experiments]
    if unknown:
        known = ", ".join(experiments)
        raise typer.BadParameter(f"{unknown[0]!r} is none of {known}", param_hint="NAME")
    return [experiments[name] for name in dict.fromkeys(names or experiments)]


def _require_plot(directory: Path) -> None:
    from orbitmq.lab.plot import MISSING, can_plot

    if not can_plot():
        raise typer.BadParameter(MISSING, param_hint="--plot")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise io_error(directory, "make the directory", cause) from cause


def _run(
    experiment: "Experiment",
    size: "Size",
    directory: Path | None,
    output: Output,
    plot: Path | None,
) -> bool:
    from orbitmq.lab.runner import run_experiment

    with progress(experiment.name, in_bytes=False) as show:
        result = run_experiment(experiment, size, directory, show)
    if output is Output.JSON:
        print_json(result.value())
    else:
        _print_result(result)
    if plot is not None:
        from orbitmq.lab.plot import plot as draw

        note(f"wrote {draw(result, plot)}")
    return result.all_ok


def _print_list(experiments: "Sequence[Experiment]", output: Output) -> None:
    if output is Output.JSON:
        for one in experiments:
            features = list(one.features)
            print_json(
                {"name": one.name, "features": features, "about": one.about, "claim": one.claim}
            )
        return
    rows = [(one.name, " ".join(one.features), one.about, one.claim) for one in experiments]
    print_table(("name", "features", "what is compared", "the documents say that"), rows)


def _print_result(result: "Result") -> None:
    from orbitmq.lab.experiment import figure_text

    findings = result.findings
    has_notes = any(row.note for row in findings.rows)
    columns = ["", *(f"{name}\n{unit}" for name, unit in findings.units.items())]
    rows = [
        [row.name, *(figure_text(row.figures.get(name)) for name in findings.units)]
        + ([row.note] if has_notes else [])
        for row in findings.rows
    ]
    experiment = result.experiment
    title = f"{experiment.name}: {experiment.about} ({result.seconds:.1f} s)"
    print_table([*columns, "note"] if has_notes else columns, rows, title)
    wrong = [check.what for check in result.checks if not check.ok]
    for what in wrong:
        typer.echo(f"WRONG: {what}")
    typer.echo(f"{len(result.checks) - len(wrong)} of {len(result.checks)} checks are ok.")
    typer.echo(f"{findings.verdict.sentence}\n")
