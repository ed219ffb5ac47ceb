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
        drawn = chart.figures[0]
        rows = [row for row in findings.rows if row.figures.get(drawn) is not None]
        inches = _LINES_INCHES if chart.x else (6.4, 1.0 + 0.3 * len(rows) * len(chart.figures))
        figure = Figure(figsize=inches, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        if chart.x:
            _draw_lines(axes, rows, chart.x, drawn)
        else:
            _draw_bars(axes, rows, chart.figures)
        if chart.logarithmic:
            (axes.set_yscale if chart.x else axes.set_xscale)("log")
        unit = findings.units[drawn]
        label = f"{drawn} ({unit})" if len(chart.figures) == 1 else unit
        (axes.set_ylabel if chart.x else axes.set_xlabel)(label)
        axes.set_title(
            f"{result.experiment.name}: {result.experiment.about}", loc="left", fontsize=9
        )
        path = directory / f"{result.experiment.name}.svg"
        figure.savefig(path, format="svg", metadata={"Date": None})
    return path


def _draw_bars(axes: Any, rows: Sequence[Row], names: Sequence[str]) -> None:
    """Draw a group of bars for each row, a bar for each figure."""
    height = 0.8 / len(names)
    for number, name in enumerate(names):
        values = [row.figures[name] or 0.0 for row in rows]
        places = [at + (number - (len(names) - 1) / 2) * height for at in range(len(rows))]
        bars = axes.barh(places, values, height, label=name)
        axes.bar_label(bars, [figure_text(value) for value in values], padding=3)
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.margins(x=0.15)
    axes.invert_yaxis()
    if len(names) > 1:
        axes.legend(frameon=False, loc="best")


def _draw_lines(axes: Any, rows: Sequence[Row], x: str, y: str) -> None:
    for name in dict.fromkeys(row.name for row in rows):
        line = [(row.figures[x], row.figures[y]) for row in rows if row.name == name]
        axes.plot(*zip(*line, strict=True), marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({row.figures[x] or 0.0 for row in rows}))
    axes.xaxis.set_major_formatter(lambda value, _: figure_text(value))
    axes.set_xlabel(x)
    axes.legend(frameon=False)
