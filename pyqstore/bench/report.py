"""What was measured, for people and for programs: a table, JSON, a PNG, an HTML page."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from .plots import Plot, label, shown, shown_ratio, shown_value
from .runs import Case, Result, Sample, Spread

FORMAT = 3
_DIGITS = 6  # of a number in JSON: far more than a measurement is worth
# Metrics that stand in JSON alone: the table has what they are made of.
_NOT_IN_TABLES = ("seconds",)
_RATIO = "ratio_to_floor"
_HEADING_WIDTH = 10
_RATIOS_OF = {"p50_us": "p50", "bytes_per_s": "bytes/s", "messages_per_s": "messages/s"}


@dataclass
class Report:
    """A workload's results with all that is needed to read them."""

    workload: str
    title: str
    machine: Mapping[str, str]
    started: str
    options: Mapping[str, Any]
    results: Sequence[Result]
    plots: Sequence[Plot]
    notes: Sequence[str]

    def json(self, path: Path) -> None:
        """Write the JSON."""
        path.write_text(self.json_text(), encoding="utf-8")

    def json_text(self) -> str:
        """All of it but pictures and single rounds: a line for each result, and for each note."""
        facts = {
            "format": FORMAT,
            "work": self.workload,
            "title": self.title,
            "started": self.started,
            "options": dict(self.options),
            "machine": dict(self.machine),
        }
        lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in facts.items()]
        for name, items in (("results", map(_result_json, self.results)), ("notes", self.notes)):
            rows = ",\n".join(f"  {json.dumps(item)}" for item in items)
            lines.append(f"{json.dumps(name)}: [\n{rows}\n ]")
        return "{\n " + ",\n ".join(lines) + "\n}\n"

    def groups(self) -> dict[str, list[Result]]:
        """The results by the table they stand in, in the order of their cases."""
        found: dict[str, list[Result]] = {}
        for result in self.results:
            found.setdefault(result.case.group, []).append(result)
        return found

    def tables(self) -> list[Table]:
        """A table for each group."""
        tables = []
        for group, results in self.groups().items():
            headings, rows = cells(results)
            table = Table(title=group or self.title, title_justify="left", box=None, pad_edge=False)
            for place, heading in enumerate(headings):
                folded = textwrap.fill(heading, _HEADING_WIDTH, break_long_words=False)
                table.add_column(folded, justify="left" if place == 0 else "right")
            for row in rows:
                table.add_row(*row)
            tables.append(table)
        return tables

    def png(self, path: Path) -> None:
        """Draw all plots on one page."""
        from .drawing import page

        page(self, path)

    def html(self, path: Path) -> None:
        """Write one file with everything in it: nothing is loaded from anywhere."""
        from jinja2 import Environment, PackageLoader

        from .drawing import drawn, inline_svg

        environment = Environment(loader=PackageLoader(__package__ or ""), autoescape=True)
        text = environment.get_template("report.html.jinja").render(
            report=self,
            tables=[(group, *cells(each)) for group, each in self.groups().items()],
            pictures=[(plot.title, inline_svg(self, plot)) for plot in drawn(self)],
        )
        path.write_text(text, encoding="utf-8")


def read(path: Path, workload: str, plots: Sequence[Plot]) -> Report:
    """What json() wrote of a workload, to be shown and drawn again."""
    told = json.loads(path.read_text(encoding="utf-8"))
    found = told.get("format"), told.get("work")
    if found != (FORMAT, workload):
        raise ValueError(f"{path} is of format {found[0]}, {found[1]}, not {FORMAT}, {workload}")
    return Report(
        workload,
        told["title"],
        told["machine"],
        told["started"],
        told["options"],
        [_result(row) for row in told["results"]],
        plots,
        told["notes"],
    )


def _result_json(result: Result) -> dict[str, Any]:
    """Medians, least and most over the rounds; what is one round's is the typical one's."""
    typical, case = result.typical, result.case
    spreads = dict(result.metrics)
    if result.ratio_to_floor is not None:
        spreads[_RATIO] = result.ratio_to_floor
    told = {
        "group": case.group,
        "case": case.name,
        "parameters": dict(case.parameters),
        "floor": case.floor,
        "ratio_of": result.ratio_of,
        "messages": typical.messages,
        "bytes": typical.bytes,
        "metrics": {name: _rounded(value) for name, value in spreads.items()},
        "curves": {
            name: [_rounded(point) for point in curve] for name, curve in typical.curves.items()
        },
    }
    return {name: value for name, value in told.items() if value}


def _result(row: dict[str, Any]) -> Result:
    metrics = {name: Spread(*value) for name, value in row["metrics"].items()}
    parameters, floor = row.get("parameters", {}), row.get("floor")
    case = Case(row["case"], _not_again, parameters, floor, row.get("group", ""))
    typical = Sample(0, row.get("messages", 0), row.get("bytes", 0), curves=row.get("curves", {}))
    return Result(case, [typical], metrics.pop(_RATIO, None), row.get("ratio_of"), metrics)


def _not_again(_directory: Path) -> Sample:
    raise NotImplementedError("a case that was read from a file is not measured")


def _rounded(numbers: Sequence[float]) -> list[float]:
    return [_short(float(f"{number:.{_DIGITS}g}")) for number in numbers]


def _short(number: float) -> float:
    return int(number) if number.is_integer() else number


def cells(results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: case, parameters, medians, and the ratio with its least and most."""
    parameters = list(dict.fromkeys(key for each in results for key in each.case.parameters))
    metrics = list(dict.fromkeys(name for each in results for name in each.metrics))
    metrics = [name for name in metrics if name not in _NOT_IN_TABLES]
    held = any(result.ratio_to_floor for result in results)
    headings = ["case", *(key.replace("_", " ") for key in parameters), *map(label, metrics)]
    if held:
        headings += ["ratio to floor", "least to most", "floor"]
    rows = []
    for result in results:
        row = [result.case.name]
        row += [shown_value(result.case.parameters.get(key)) for key in parameters]
        row += [shown(name, result.metrics.get(name)) for name in metrics]
        if held:
            row += _ratio_cells(result)
        rows.append(row)
    return headings, rows


def _ratio_cells(result: Result) -> list[str]:
    ratios = result.ratio_to_floor
    if ratios is None:
        return ["", "", ""]
    return [
        shown_ratio(ratios.median),
        f"{shown_ratio(ratios.low)} to {shown_ratio(ratios.high)}",
        f"{result.case.floor}, {_RATIOS_OF[str(result.ratio_of)]}",
    ]
