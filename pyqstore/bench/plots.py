"""Plots, and numbers and names for people: what tables and pictures share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .runs import Spread, Value

MIB = 1 << 20
_WORDS = {
    "messages_per_s": "messages/s",
    "bytes_per_s": "MiB/s",
    "p50_us": "p50 µs",
    "p99_us": "p99 µs",
    "ratio_to_floor": "ratio to floor",
}
_SUFFIXES = {"_us": "µs", "_ns": "ns", "_ms": "ms", "_s": "s", "_bytes": "MiB", "_ratio": "ratio"}


@dataclass(frozen=True)
class Plot:
    """A picture: a metric over a parameter, a line for each series."""

    title: str
    x: str
    """A parameter's name; "case": bars, one for each case; "": curves, of Sample.curves."""
    y: str
    """A metric's name, or a curve's."""
    series: str = "case"
    """The parameter that tells the lines apart; "case": the case's name does."""
    log_x: bool = False
    log_y: bool = False
    unit: str = ""
    """What y is counted in, where its name does not tell."""
    group: str = ""
    """The cases to draw; "": all that have x and y."""
    x_label: str = ""
    """What x is, where its name does not tell."""
    lines: Mapping[str, float] = field(default_factory=dict)
    """Levels to hold against, by name, in y's unit."""
    even: bool = False
    """The values of x stand evenly apart, as words must, and numbers with a nought in a sweep."""


def label(metric: str) -> str:
    """A metric's name for people, with its unit."""
    if metric in _WORDS:
        return _WORDS[metric]
    for suffix, unit in _SUFFIXES.items():
        if metric.endswith(suffix):
            name = metric.removesuffix(suffix).replace("_", " ")
            return f"{name.removesuffix(' per')}/s" if name.endswith(" per") else f"{name}, {unit}"
    return metric.replace("_", " ")


def scaled(metric: str, value: float) -> float:
    """A value in the unit that its label names: bytes become MiB."""
    return value / MIB if metric == "bytes_per_s" or metric.endswith("_bytes") else value


def shown(metric: str, value: Spread | None) -> str:
    """A median for people."""
    return "" if value is None else shown_number(scaled(metric, value.median))


def shown_number(number: float) -> str:
    """Three figures that count, or all of those before the point."""
    if number == 0 or abs(number) >= 100:
        return f"{number:,.0f}"
    return f"{number:.3g}" if abs(number) >= 1e-3 else f"{number:.2e}"


def shown_ratio(number: float) -> str:
    """Two digits behind the point, or as many as it takes to tell it from nothing."""
    return f"{number:.2f}" if number >= 0.1 else f"{number:.2g}"


def shown_value(value: Value | None) -> str:
    """A parameter for people."""
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:,}"
