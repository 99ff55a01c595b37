"""Cases in rounds: what is measured, how often, and the mathematics of it.

Machines are noisy, and disks more so: cases are run interleaved, round after round, and what counts
is the ratio of two cases in the same round, then the median over the rounds.
"""

from __future__ import annotations

import gc
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeVar

Value = int | float | str
Curve = Sequence[tuple[float, float]]
Progress = Callable[[str, int, int], object]
_T = TypeVar("_T")
_QUICK = 0.1


@dataclass(frozen=True)
class Options:
    """How much a workload is to measure."""

    quick: bool = False
    scale: float = 1.0
    """Of all counts of messages."""
    chosen: Mapping[str, object] = field(default_factory=dict)
    """The workload's own options of the command line, by name."""

    def count(self, number: int, least: int = 1) -> int:
        """So many of something, scaled; with quick a tenth."""
        return max(least, round(number * self.scale * (_QUICK if self.quick else 1)))

    def sweep(self, *values: _T) -> tuple[_T, ...]:
        """The values to go through; with quick the first, the middle and the last."""
        if not self.quick or len(values) <= 3:
            return values
        return values[0], values[len(values) // 2], values[-1]


@dataclass(frozen=True)
class Sample:
    """What one round of one case measured."""

    seconds: float
    messages: int = 0
    bytes: int = 0
    """Of bodies; for a floor, bytes written."""
    latencies_us: Sequence[float] = ()
    """One for each operation, where latency is what is measured."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Anything else, each with its unit at its name's end."""
    curves: Mapping[str, Curve] = field(default_factory=dict)
    """What changed on the way, as points."""

    def metrics(self) -> dict[str, float]:
        """All of it as numbers by name."""
        found: dict[str, float] = {"seconds": self.seconds}
        if self.messages:
            found["messages_per_s"] = self.messages / self.seconds
        if self.bytes:
            found["bytes_per_s"] = self.bytes / self.seconds
        if self.latencies_us:
            found["p50_us"] = percentile(self.latencies_us, 0.5)
            found["p99_us"] = percentile(self.latencies_us, 0.99)
        return {**found, **self.figures}


@dataclass(frozen=True)
class Case:
    """Something to measure: run does one round of it in a fresh directory and says what came."""

    name: str
    run: Callable[[Path], Sample]
    parameters: Mapping[str, Value] = field(default_factory=dict)
    floor: str | None = None
    """The name of the case that this one is held against, in the same round: of that name in its
    group, or else in any."""
    group: str = ""
    """The table that it stands in."""

    @property
    def title(self) -> str:
        """Name and parameters."""
        return ", ".join([self.name, *(f"{key} {value}" for key, value in self.parameters.items())])


def repeated(times: int, once: Callable[[], object], messages: int, body_bytes: int) -> Sample:
    """Do something so often, and time each and all; the messages and their size are of each."""
    start = time.perf_counter()
    latencies = timed(once, times)
    seconds = time.perf_counter() - start
    return Sample(seconds, times * messages, times * messages * body_bytes, latencies)


def timed(once: Callable[[], object], times: int) -> list[float]:
    """The microseconds that each of so many calls takes."""
    latencies = []
    for _ in range(times):
        begin = time.perf_counter_ns()
        once()
        latencies.append((time.perf_counter_ns() - begin) / 1000)
    return latencies


class Spread(NamedTuple):
    """A number over the rounds."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Result:
    """A case over all rounds."""

    case: Case
    samples: Sequence[Sample]
    ratio_to_floor: Spread | None = None
    ratio_of: str | None = None
    """The metric that the ratio is of."""
    metrics: Mapping[str, Spread] = field(default_factory=dict)
    """Those of the samples, unless they are given, as where they are read from a file."""

    def __post_init__(self) -> None:
        if self.metrics:
            return
        rounds = [sample.metrics() for sample in self.samples]
        names = [name for name in rounds[0] if all(name in each for each in rounds)]
        spreads = {name: spread([each[name] for each in rounds]) for name in names}
        object.__setattr__(self, "metrics", spreads)

    def metric(self, name: str) -> Spread | None:
        """A metric by its name, "ratio_to_floor" among them."""
        return self.ratio_to_floor if name == "ratio_to_floor" else self.metrics.get(name)

    @property
    def typical(self) -> Sample:
        """The round whose time is the median, or next above it."""
        ordered = sorted(self.samples, key=lambda sample: sample.seconds)
        return ordered[len(ordered) // 2]


def spread(values: Sequence[float]) -> Spread:
    """Median, least and most."""
    return Spread(median(values), min(values), max(values))


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that so large a share of all is not above."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def ratio_metric(sample: Sample, floor: Sample) -> str:
    """What a case is held against its floor by.

    By p50 where both have latencies (a ratio below 1 is faster), else by bytes or messages a second
    (above 1 is faster).
    """
    ours, theirs = sample.metrics(), floor.metrics()
    for name in ("p50_us", "bytes_per_s", "messages_per_s"):
        if name in ours and name in theirs:
            return name
    raise ValueError("a case and its floor have nothing in common to hold against each other")


def ratio(sample: Sample, floor: Sample) -> float:
    """A round of a case over the same round of its floor, of what `ratio_metric` says."""
    name = ratio_metric(sample, floor)
    return sample.metrics()[name] / floor.metrics()[name]


def floor_place(case: Case, cases: Sequence[Case]) -> int | None:
    """Where a case's floor stands among the cases; None: it is held against nothing."""
    if case.floor is None:
        return None
    places = [place for place, each in enumerate(cases) if each.name == case.floor]
    if not places:
        raise ValueError(f"no case is named {case.floor!r}, to hold {case.title!r} against")
    return next((place for place in places if cases[place].group == case.group), places[0])


def results_of(rounds: Sequence[Mapping[int, Sample]], cases: Sequence[Case]) -> list[Result]:
    """Turn rounds (samples by the case's place) into results."""
    results = []
    for place, case in enumerate(cases):
        floor = floor_place(case, cases)
        samples = [each[place] for each in rounds]
        if floor is None:
            results.append(Result(case, samples))
        else:
            ratios = spread([ratio(each[place], each[floor]) for each in rounds])
            metric = ratio_metric(rounds[0][place], rounds[0][floor])
            results.append(Result(case, samples, ratios, metric))
    return results


def run_rounds(
    cases: Sequence[Case],
    directory: Path,
    rounds: int,
    progress: Progress | None = None,
    ready: Callable[[str], object] | None = None,
) -> list[Result]:
    """Run every case once a round, the order turning round each time, after a round for nothing.

    `ready` is called with its name before each round that counts, and may wait or refuse.
    """
    for case in cases:
        floor_place(case, cases)  # a floor that is not there is told before anything is measured
    measured: list[dict[int, Sample]] = []
    places = range(len(cases))
    total = (rounds + 1) * len(cases)
    for number in range(rounds + 1):
        samples: dict[int, Sample] = {}
        if number and ready is not None:
            ready(f"round {number} of {rounds}")
        for place in places if number % 2 else reversed(places):
            if progress is not None:
                done = number * len(cases) + len(samples)
                what = f"round {number} of {rounds}" if number else "warming up"
                progress(f"{what}: {cases[place].title}", done, total)
            samples[place] = run_once(cases[place], directory)
        if number:
            measured.append(samples)
    return results_of(measured, cases)


def run_once(case: Case, directory: Path) -> Sample:
    """One round of one case, in a directory that is gone afterwards, from the disk, too."""
    own = directory / "case"
    own.mkdir()
    gc.collect()
    try:
        return case.run(own)
    except Exception as error:
        error.add_note(f"in the benchmark case: {case.title}")
        raise
    finally:
        shutil.rmtree(own)
        sync_directory(directory)


def sync_directory(directory: Path) -> None:
    """Have a directory's own changes on the disk, so that they do not burden what comes next."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
