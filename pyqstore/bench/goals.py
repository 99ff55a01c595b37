"""Goals beside what came, a line of the notes for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .runs import Result, Spread, spread

_LARGE = 1000


@dataclass(frozen=True)
class Goal:
    """What a case of a table is to reach: by itself, or over another of the same round."""

    group: str
    case: str
    metric: str
    bound: float
    over: str | None = None
    less: bool = False
    """Less is better."""

    def told(self, results: Sequence[Result]) -> str | None:
        """The goal beside what came; None where that was not measured."""
        came = self._came(results)
        if came is None:
            return None
        over = "" if self.over is None else f" over {self.over}"
        what = f"{self.group}: {self.case}{over}, {self.metric.replace('_', ' ')}"
        return beside(what, came, self.bound, self.less)

    def _came(self, results: Sequence[Result]) -> Spread | None:
        of = {each.case.name: each for each in results if each.case.group == self.group}
        ours, theirs = of.get(self.case), of.get(self.over or self.case)
        if ours is None or theirs is None or self.metric not in ours.metrics:
            return None
        if self.over is None:
            return ours.metric(self.metric)
        rounds = zip(ours.samples, theirs.samples, strict=True)
        return spread([a.metrics()[self.metric] / b.metrics()[self.metric] for a, b in rounds])


def told(goals: Sequence[Goal], results: Sequence[Result]) -> list[str]:
    """A line for each goal that something was measured for."""
    return [line for goal in goals if (line := goal.told(results)) is not None]


def beside(what: str, found: Spread, goal: float, less: bool = False) -> str:
    """What was measured, its spread, the goal, and whether it is met."""
    met = found.median <= goal if less else found.median >= goal
    bound = "at most" if less else "at least"
    middle, low, high = map(_shown, found)
    return (
        f"{what} {middle} ({low} to {high}), goal {bound} {_shown(goal)}:"
        f" {'met' if met else 'not met'}."
    )


def _shown(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= _LARGE else f"{number:.3g}"
