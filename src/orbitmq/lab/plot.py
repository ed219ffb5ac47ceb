"""Pictures of results: one SVG file for each experiment, drawn by matplotlib without a screen."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from orbitmq.lab.experiment import Result, Row, figure_text

MISSING: Final = "matplotlib is not installed: pip install 'orbitmq[lab]'"
_LINES_INCHES: Final = (6.4, 3.6)
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",  # text stays text: small files, and they can be searched
    "svg.hashsalt": "orbitmq",  # the same figures make the same file
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def can_plot() -> bool:
    return find_spec("matplotlib") is not None


def plot(result: Result, directory: Path) -> Path:
    """Draw one result as `<name>.svg` and return the file."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    chart, findings = result.findings.chart, result.findings
    with mpl.rc_context(_STYLE):
        rows = [row for row in findings.rows if row.figures.get(chart.figure) is not None]
        inches = _LINES_INCHES if chart.x else (6.4, 0.9 + 0.34 * len(rows))
        figure = Figure(figsize=inches, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        if chart.x:
            _draw_lines(axes, rows, chart.x, chart.figure)
        else:
            _draw_bars(axes, rows, chart.figure)
        if chart.logarithmic:
            (axes.set_yscale if chart.x else axes.set_xscale)("log")
        label = f"{chart.figure} ({findings.units[chart.figure]})"
        (axes.set_ylabel if chart.x else axes.set_xlabel)(label)
        axes.set_title(
            f"{result.experiment.name}: {result.experiment.about}", loc="left", fontsize=9
        )
        path = directory / f"{result.experiment.name}.svg"
        figure.savefig(path, format="svg", metadata={"Date": None})
    return path


def _draw_bars(axes: Any, rows: Sequence[Row], name: str) -> None:
    values = [row.figures[name] for row in rows]
    bars = axes.barh([row.name for row in rows], values, color="#3b6ea5")
    axes.bar_label(bars, [figure_text(value) for value in values], padding=3)
    axes.margins(x=0.15)
    axes.invert_yaxis()


def _draw_lines(axes: Any, rows: Sequence[Row], x: str, y: str) -> None:
    for name in dict.fromkeys(row.name for row in rows):
        line = [(row.figures[x], row.figures[y]) for row in rows if row.name == name]
        axes.plot(*zip(*line, strict=True), marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({row.figures[x] or 0.0 for row in rows}))
    axes.xaxis.set_major_formatter(lambda value, _: figure_text(value))
    axes.set_xlabel(x)
    axes.legend(frameon=False)
