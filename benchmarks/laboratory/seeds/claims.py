"""Claims of the founding documents: what each says, what is measured of it, what came."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pyqstore.bench.plots import Plot, label, scaled, shown_number
from pyqstore.bench.runs import Case, Options, Result, Sample, Value
from pyqstore.bench.stores import opened_store, prepared

from .broker import Broker

RABBIT = "RabbitMQ"
NOT_MEASURED = "not measured in this run"

__all__ = ["NOT_MEASURED", "RABBIT", "Claim", "Found", "Group", "opened_store", "prepared", "times"]


class Found:
    """The results of one claim, to be asked for by name."""

    def __init__(self, results: Iterable[Result]) -> None:
        self._results = list(results)

    def of(self, name: str, **parameters: Value) -> Result | None:
        """The result of that name whose case has these parameters, among others."""
        for result in self._results:
            has = result.case.parameters
            if result.case.name == name and parameters.items() <= has.items():
                return result
        return None

    def has(self, name: str) -> bool:
        """Whether there is a result of that name."""
        return self.of(name) is not None

    def values(self, name: str, parameter: str, **parameters: Value) -> list[Value]:
        """What a parameter is in the results of that name."""
        return [
            each.case.parameters[parameter]
            for each in self._results
            if each.case.name == name and parameters.items() <= each.case.parameters.items()
        ]

    def number(self, name: str, metric: str, **parameters: Value) -> float | None:
        """The median."""
        result = self.of(name, **parameters)
        value = None if result is None else result.metric(metric)
        return None if value is None else value.median

    def told(self, name: str, metric: str, **parameters: Value) -> str:
        """The median, for people, with its unit."""
        number = self.number(name, metric, **parameters)
        if number is None:
            return NOT_MEASURED
        shown, unit = shown_number(scaled(metric, number)), label(metric)
        if metric == "messages_per_s":
            return f"{shown} messages/s"
        return f"{shown} {unit.rsplit(' ', 1)[-1]}" if " " in unit else f"{shown} ({unit})"

    def ratio(self, metric: str, over: Result | None, under: Result | None) -> str:
        """One over the other, round by round: the median, the least and the most."""
        if over is None or under is None:
            return NOT_MEASURED
        pairs = zip(over.samples, under.samples, strict=True)
        ratios = [one.metrics()[metric] / other.metrics()[metric] for one, other in pairs]
        if len(ratios) == 1:
            return times(ratios[0])
        return f"{times(median(ratios))} ({_shown(min(ratios))} to {_shown(max(ratios))})"


@dataclass(frozen=True)
class Claim:
    """One of them: a table, a picture, and what is said of both."""

    name: str
    """Of the table, and for ``--only``."""
    title: str
    says: str
    """The documents, by number."""
    cases: Callable[[Options, Group], list[Case]]
    plot: Plot
    here: Callable[[Found], str]
    beside: Callable[[Found], str] | str
    """What RabbitMQ shows; a text: why it cannot."""
    why: str
    more: Sequence[Plot] = ()
    """Pictures beside the first."""

    def told(self, results: Iterable[Result], has_broker: bool) -> str:
        """All four, in a paragraph."""
        found = Found(results)
        if isinstance(self.beside, str):
            beside = self.beside
        else:
            beside = self.beside(found) if has_broker else NOT_MEASURED
        return (
            f"{self.title}. The document says: {self.says} Here: {self.here(found)}"
            f" RabbitMQ: {beside.rstrip('.')}. Why: {self.why}"
        )


class Group:
    """Makes the cases of one claim: ours, and RabbitMQ's where it is here."""

    def __init__(self, title: str, broker: Broker | None) -> None:
        self.title = title
        self.broker = broker
        self.cases: list[Case] = []

    def ours(
        self,
        name: str,
        run: Callable[[Path], Sample],
        floor: str | None = None,
        **parameters: Value,
    ) -> None:
        """A case of pyqstore's."""
        self.cases.append(Case(name, run, parameters, floor, self.title))

    def theirs(
        self,
        name: str,
        asked: Callable[[Broker, Path], Sample],
        floor: str | None = None,
        **parameters: Value,
    ) -> None:
        """The same of RabbitMQ's, if there is one."""
        broker = self.broker
        if broker is not None:
            held = None if floor is None else theirs_named(floor)

            def run(directory: Path) -> Sample:
                return asked(broker, directory)

            self.cases.append(Case(theirs_named(name), run, parameters, held, self.title))


def theirs_named(name: str) -> str:
    """A case of pyqstore's, with RabbitMQ in its place."""
    return f"{RABBIT}: {name}"


def times(number: float) -> str:
    """A factor for people."""
    return f"{_shown(number)} times"


def _shown(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"
