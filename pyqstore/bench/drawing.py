"""Pictures of results: matplotlib without a screen."""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullFormatter, NullLocator

from .floor import size
from .plots import Plot, label, scaled, shown_number
from .runs import Result, Spread, Value, floor_place

_SIZE = (7.0, 4.4)  # inches, of one plot
_FLOOR = {"color": "0.35", "linestyle": "--", "linewidth": 1.4}
_FEW_DECADES = 1000  # a logarithmic axis shorter than that names 2 and 5, too
_LEGEND_INSIDE = 6  # more would hide lines
_HEADROOM = 1.06
_MANY_TICKS = 12
_SECONDS = {"_us": 1e-6, "_ns": 1e-9}
_UNITS = {"G": 1e9, "M": 1e6, "k": 1e3}
_LEAST_SHORTENED = 10_000
_OVER_LINES = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.3}
# Verdana is as wide as DejaVu Sans, which the picture is laid out with: it stands in where that is
# not installed.
_TEXT_AS_TEXT: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.sans-serif": ["DejaVu Sans", "Verdana"],
}
_MARKERS = "osD^vP*X<>"


class Report(Protocol):
    """What is drawn of a report, which draws itself with this."""

    @property
    def title(self) -> str: ...
    @property
    def machine(self) -> Mapping[str, str]: ...
    @property
    def started(self) -> str: ...
    @property
    def results(self) -> Sequence[Result]: ...
    @property
    def plots(self) -> Sequence[Plot]: ...


def page(report: Report, path: Path) -> None:
    """All plots of a report on one PNG, with what it ran on below."""
    plots = drawn(report)
    columns = 1 if len(plots) == 1 else 2
    rows = max(1, math.ceil(len(plots) / columns))
    figure = Figure(figsize=(_SIZE[0] * columns, _SIZE[1] * rows + 0.9), layout="constrained")
    figure.suptitle(f"{report.title}\n", fontsize=14)
    grid = figure.subplots(rows, columns, squeeze=False)
    for place, axes in enumerate(grid.flat):
        if place < len(plots):
            draw(axes, plots[place], report)
        else:
            axes.set_axis_off()
    facts = report.machine
    names = ("processor", "memory", "kernel", "file system", "device", "pyqstore")
    told = "; ".join([report.started, *(facts[name] for name in names if name in facts)])
    figure.supxlabel(textwrap.fill(told, 95 * columns), fontsize=7, color="0.35")
    figure.savefig(path, dpi=110, format="png")


def inline_svg(report: Report, plot: Plot) -> str:
    """One plot as an <svg> element."""
    figure = Figure(figsize=_SIZE, layout="constrained")
    draw(figure.subplots(), plot, report)
    text = io.StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    with mpl.rc_context({"svg.hashsalt": plot.title, **_TEXT_AS_TEXT}):
        figure.savefig(text, format="svg", metadata=nothing)
    return light(text.getvalue()[text.getvalue().index("<svg") :])


def light(svg: str) -> str:
    """The same picture without what changes nothing: names that nobody refers to, turns by nothing,
    less than a hundredth of a point, styles that a marker has already, indentation."""
    svg = re.sub(r">\s+<", "><", re.sub(r"\s+", " ", svg))
    referred = set(re.findall(r"#([\w-]+)", svg))
    svg = re.sub(r' id="([^"]*)"', lambda name: name[0] if name[1] in referred else "", svg)
    svg = re.sub(r' transform="rotate\(-?0 [^"]*\)"', "", svg)
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\.\d\d)\d+|([:;]) ", r"\1\2", tag[0]), svg)
    styles = dict(re.findall(r'<path id="([^"]*)" d="[^"]*"( style="[^"]*")', svg))
    return re.sub(
        r'(<use xlink:href="#([^"]*)"[^>]*?)( style="[^"]*")',
        lambda use: use[1] if styles.get(use[2]) == use[3] else use[0],
        svg,
    )


def draw(axes: Any, plot: Plot, report: Report) -> None:
    """A plot with all that it needs to be read: labels, units, legend, floor, spread."""
    results = chosen(plot, report)
    if plot.x == "case":
        _bars(axes, plot, results, report)
    elif plot.x == "":
        _curves(axes, plot, results)
        _curve_floors(axes, plot, results, report)
    else:
        _lines(axes, plot, results)
        _floors(axes, plot, results, report)
    for name, level in plot.lines.items():
        _level(axes, name, level, upright=plot.x == "case")
    axes.set_title(plot.title, fontsize=11)
    if plot.x != "case":
        _scales(axes, plot)
    if plot.x not in ("case", ""):
        _ticks_at_values(axes, plot, results)
    axes.grid(True, which="major", alpha=0.25)
    handles, _ = axes.get_legend_handles_labels()
    if len(handles) > _LEGEND_INSIDE:
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    elif handles:
        axes.legend(fontsize=8)


def drawn(report: Report) -> list[Plot]:
    """The plots that have something to show."""
    return [plot for plot in report.plots if chosen(plot, report)]


def chosen(plot: Plot, report: Report) -> list[Result]:
    """The results that a plot shows: those of its group that have what it draws."""
    return [
        result
        for result in report.results
        if (not plot.group or result.case.group == plot.group)
        and (plot.x in ("", "case") or plot.x in result.case.parameters)
        and (plot.y in result.typical.curves if plot.x == "" else result.metric(plot.y) is not None)
        and (plot.series == "case" or plot.series in result.case.parameters)
    ]


def _series(plot: Plot, results: list[Result]) -> dict[str, list[Result]]:
    lines: dict[str, list[Result]] = {}
    for result in results:
        key = plot.series
        name = result.case.name if key == "case" else f"{result.case.parameters[key]}"
        lines.setdefault(name, []).append(result)
    return lines


def _metric(result: Result, name: str) -> Spread:
    value = result.metric(name)
    assert value is not None
    return Spread(*(scaled(name, each) for each in value))


def _places(plot: Plot, results: list[Result]) -> dict[Value, float]:
    """Where each value of x stands."""
    values = dict.fromkeys(result.case.parameters[plot.x] for result in results)
    if plot.even:
        return {value: place for place, value in enumerate(values)}
    return {value: float(value) for value in values}


def _lines(axes: Any, plot: Plot, results: list[Result]) -> None:
    places = _places(plot, results)
    for place, (name, line) in enumerate(_series(plot, results).items()):
        values = [_metric(result, plot.y) for result in line]
        axes.errorbar(
            [places[result.case.parameters[plot.x]] for result in line],
            [value.median for value in values],
            yerr=[
                [value.median - value.low for value in values],
                [value.high - value.median for value in values],
            ],
            marker=_MARKERS[place % len(_MARKERS)],
            markersize=4.5,
            capsize=2.5,
            linewidth=1.5,
            elinewidth=0.8,
            label=name if plot.series == "case" else f"{plot.series.replace('_', ' ')} {name}",
        )


def _floors(axes: Any, plot: Plot, results: list[Result], report: Report) -> None:
    """The floor of each result as a dashed line, in what the plot shows."""
    if plot.y == "ratio_to_floor":
        axes.axhline(1, label="the floor", **_FLOOR)
        return
    places = _places(plot, results)
    cases = [result.case for result in report.results]
    drawn: dict[str, set[tuple[float, float]]] = {}
    for result in results:
        place = floor_place(result.case, cases)
        if place is None:
            continue
        floor = report.results[place]
        level = floor_level(plot.y, result, floor)
        if level is not None:
            kind = re.sub(r" \d+ \w+$", "", floor.case.name)
            drawn.setdefault(kind, set()).add((places[result.case.parameters[plot.x]], level))
    for kind, points in drawn.items():
        ordered = sorted(points)
        if len({x for x, _ in ordered}) < 2 or len({x for x, _ in ordered}) < len(ordered):
            for place, level in enumerate(sorted({level for _, level in ordered})):
                axes.axhline(level, label=None if place else kind, **_FLOOR)
        else:
            axes.plot([x for x, _ in ordered], [y for _, y in ordered], label=kind, **_FLOOR)


def floor_level(metric: str, result: Result, floor: Result) -> float | None:
    """Where a result's floor lies in a metric; for messages/s, as many as its bytes would make."""
    value = floor.metrics.get(metric)
    if metric == "messages_per_s" and "bytes_per_s" in floor.metrics:
        body = result.typical.bytes / max(1, result.typical.messages)
        return floor.metrics["bytes_per_s"].median / body if body else None
    return None if value is None else scaled(metric, value.median)


def _bars(axes: Any, plot: Plot, results: list[Result], report: Report) -> None:
    names = [result.case.name for result in results]
    if len(set(names)) < len(names):
        names = [result.case.title for result in results]
    values = [_metric(result, plot.y) for result in results]
    places = range(len(results))
    medians = [value.median for value in values]
    spans = [
        [value.median - value.low for value in values],
        [value.high - value.median for value in values],
    ]
    cases = [result.case for result in report.results]
    floors = {floor_place(result.case, cases) for result in results} - {None}
    colors = ["0.6" if cases.index(result.case) in floors else "tab:blue" for result in results]
    axes.barh(places, medians, xerr=spans, capsize=2.5, color=colors, alpha=0.8)
    for name, level in _bar_floors(plot, results, report):
        axes.axvline(level, label=name, **_FLOOR)
    for place, value in enumerate(values):
        text = f" {shown_number(value.median)}"
        axes.annotate(text, (value.high, place), fontsize=8, va="center", bbox=_OVER_LINES)
    axes.set_yticks(list(places), names, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.2)
    if plot.log_y:
        axes.set_xscale("log")
    axes.set_xlabel(plot.unit or label(plot.y))
    axes.xaxis.set_major_formatter(FuncFormatter(_tick))


def _bar_floors(plot: Plot, results: list[Result], report: Report) -> list[tuple[str, float]]:
    """Where the floors lie that all bars are held against."""
    cases = [result.case for result in report.results]
    levels = []
    for result in results:
        place = floor_place(result.case, cases)
        level = None if place is None else floor_level(plot.y, result, report.results[place])
        if place is not None and level is not None:
            levels.append((cases[place].name, level))
    return list(dict.fromkeys(levels))


def _curves(axes: Any, plot: Plot, results: list[Result]) -> None:
    for name, line in _series(plot, results).items():
        for result in line:
            curve = result.typical.curves[plot.y]
            heights = [scaled(plot.y, y) for _, y in curve]
            axes.plot([x for x, _ in curve], heights, linewidth=1.3, label=name)


def _curve_floors(axes: Any, plot: Plot, results: list[Result], report: Report) -> None:
    """The floors of curves stand level: they are rates of all of a round."""
    cases = [result.case for result in report.results]
    for result in results:
        place = floor_place(result.case, cases)
        level = None if place is None else floor_level(plot.y, result, report.results[place])
        if place is not None and level is not None:
            axes.axhline(level, label=cases[place].name, **_FLOOR)


def _level(axes: Any, name: str, level: float, *, upright: bool) -> None:
    line = axes.axvline if upright else axes.axhline
    line(level, color="tab:red", linestyle=":", linewidth=1.4, label=name)


def _scales(axes: Any, plot: Plot) -> None:
    if plot.log_x:
        axes.set_xscale("log")
    if plot.log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, axes.get_ylim()[1] * _HEADROOM)
    axes.set_xlabel(plot.x_label or plot.x.replace("_", " "))
    axes.set_ylabel(plot.unit or re.sub(r",? (µs|ns)$", "", label(plot.y)))
    for axis, low, high in ((axes.xaxis, *axes.get_xlim()), (axes.yaxis, *axes.get_ylim())):
        if axis.get_scale() == "log" and high / low < _FEW_DECADES:
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(_tick))
        axis.set_minor_formatter(NullFormatter())
    for suffix, seconds in _SECONDS.items():
        if plot.y.endswith(suffix) and not plot.unit:
            axes.yaxis.set_major_formatter(FuncFormatter(_time_tick(seconds)))


def _ticks_at_values(axes: Any, plot: Plot, results: list[Result]) -> None:
    """A sweep is read at what was measured: no tick between."""
    places = _places(plot, results)
    if not (plot.log_x or plot.even) or len(places) > _MANY_TICKS:
        return
    axes.set_xticks(list(places.values()), [_value_tick(plot.x, value) for value in places])
    axes.xaxis.set_minor_locator(NullLocator())


def _value_tick(name: str, value: Value) -> str:
    if isinstance(value, str):
        return value
    if name.endswith("_bytes"):
        return size(int(value))
    return _tick(value) if value % 1000 == 0 else f"{value:,}"


def _time_tick(seconds: float) -> Callable[[float, object], str]:
    show = EngFormatter(unit="s")
    return lambda value, _place: show(value * seconds)


def _tick(value: float, _place: object = None) -> str:
    for unit, thing in _UNITS.items():
        if abs(value) >= max(thing, _LEAST_SHORTENED):
            return f"{value / thing:g} {unit}"
    return f"{value:,g}"
