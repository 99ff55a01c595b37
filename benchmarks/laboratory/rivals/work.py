"""The rounds: every rival under the same load, and what came held against pyqstore's."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from pyqstore.bench import floor
from pyqstore.bench.plots import Plot
from pyqstore.bench.runs import Case, Options, Progress, Result, Sample

from . import jars, syncs
from .contract import BATCH, Rival
from .known import known
from .ours import Pyqstore

TITLE = "Durable queues on one disk"
OPTIONS = [
    click.Option(
        ["--only"],
        type=click.Choice(list(known()), case_sensitive=False),
        multiple=True,
        help="This rival beside pyqstore; again for another.  Default: all.",
    ),
    click.Option(
        ["--fetch"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=lambda context, _option, given: fetch(context) if given else None,
        help="Get Kafka, PerfTest and RabbitMQ's Java clients with Maven, for the user, and end.",
    ),
]
RAW = "raw pwrite and fdatasync"
SYNCS = "syncs_per_answer"
NOT_COUNTED = "not counted"
UNSYNCED = " (unsynced)"
_BODY_BYTES = (100, 1024)
_WAITS = 500
_SECONDS = 0.4  # that pipelining takes, and that batches take, unless that would be too many bytes
_MOST_BYTES = 32 << 20
_LEAST = 500
_TRIES = 6  # at most, to find how many messages fill the time
_GROWN = 1.25  # what is faster by less than that is as fast as it gets
_RATES = ("pipelined_per_s", "batches_per_s", "consumed_per_s")


def group_of(body_bytes: int) -> str:
    """The table of one size of bodies."""
    return f"bodies of {floor.size(body_bytes)}"


def _plots(group: str) -> list[Plot]:
    """The four workloads with bodies of one size."""
    titles = {
        "p50_us": "publish and wait, p50 (less is better)",
        "pipelined_per_s": "single messages, answers outstanding",
        "batches_per_s": f"batches of {BATCH:,} for one answer",
        "consumed_per_s": "receive and acknowledge",
    }
    units = {"p50_us": "µs"}
    return [
        Plot(f"{group}: {title}", "case", metric, log_y=metric not in units, group=group,
             unit=units.get(metric, "messages/s"))
        for metric, title in titles.items()
    ]  # fmt: skip


PLOTS = [plot for count in _BODY_BYTES for plot in _plots(group_of(count))]


@dataclass(frozen=True)
class Counts:
    """How many messages a round publishes each way."""

    waits: int
    pipelined: int
    batches: int


@dataclass
class Load:
    """One rival under bodies of one size."""

    rival: Rival
    bodies: Sequence[bytes]
    waits: int
    seconds: float
    counts: Counts | None = field(default=None, init=False)

    def run(self, _directory: Path) -> Sample:
        """A round; before the first, shorter ones tell how many messages fill the time."""
        if self.counts is None:
            self.counts = self._warmed_up()
        return self.round(self.counts)

    def round(self, counts: Counts) -> Sample:
        """Publish, receive all of it, and see that it is what was published."""
        rival = self.rival
        many = list(itertools.islice(itertools.cycle(self.bodies), counts.pipelined))
        start = time.perf_counter()
        latencies = rival.publish_and_wait(self.bodies[0], counts.waits)
        pipelining = elapsed(rival.clock, lambda: rival.publish_pipelined(many))
        batching = elapsed(rival.clock, lambda: rival.publish_batches(self.bodies, counts.batches))
        expected = [self.bodies[0]] * counts.waits + many + list(self.bodies) * counts.batches
        received: list[bytes] = []
        consuming = elapsed(rival.clock, lambda: received.extend(rival.consume(len(expected))))
        seconds = time.perf_counter() - start
        if received != expected:
            raise RuntimeError(f"{rival.name} gave other messages back than it was given")
        os.sync()  # what a rival leaves for later must not burden the next one
        done = (counts.pipelined / pipelining, len(self.bodies) * counts.batches / batching,
                len(expected) / consuming)  # fmt: skip
        return Sample(seconds, latencies_us=latencies, figures=dict(zip(_RATES, done, strict=True)))

    def _warmed_up(self) -> Counts:
        """Counts that fill the time once they do not grow any more.

        What compiles itself while it runs, as Java does, begins slowly.
        """
        counts = Counts(self.waits, _LEAST, 1)
        for _ in range(_TRIES):
            found = self._filling(self.round(counts))
            grown = found.pipelined / counts.pipelined, found.batches / counts.batches
            counts = found
            if max(grown) < _GROWN:
                break
        return counts

    def _filling(self, tried: Sample) -> Counts:
        most = _MOST_BYTES // len(self.bodies[0])

        def count(metric: str) -> int:
            return max(_LEAST, min(most, round(tried.figures[metric] * self.seconds)))

        batches = max(1, count("batches_per_s") // len(self.bodies))
        return Counts(self.waits, count("pipelined_per_s"), batches)


@dataclass(frozen=True)
class Work:
    """Rivals that run, and what is known of them: stands in for a workload's module."""

    rivals: Sequence[Rival]
    versions: Sequence[str]
    syncs: dict[str, float]
    left_out: dict[str, str]
    uncountable: str | None
    body_bytes: Sequence[int]

    def cases(self, options: Options) -> list[Case]:
        """A table for each size of bodies, the disk's floor in front."""
        found = []
        waits = options.count(_WAITS, 20)
        seconds = _SECONDS * options.scale * (0.1 if options.quick else 1)
        for count in self.body_bytes:
            generator = random.Random(count)
            bodies = [generator.randbytes(count) for _ in range(BATCH)]
            found.append(disk(count, waits, group_of(count)))
            for rival in self.rivals:
                load = Load(rival, bodies, waits, seconds)
                parameters = {SYNCS: self.syncs.get(rival.name, NOT_COUNTED)}
                found.append(Case(self.title(rival), load.run, parameters, RAW, group_of(count)))
        return found

    def title(self, rival: Rival) -> str:
        """A name that says when a rival does not sync for each answer."""
        unsynced = self.syncs.get(rival.name, 1) < 1
        return rival.name + (UNSYNCED if unsynced else "")

    def finished(self, results: Sequence[Result]) -> list[Result]:
        """The results, and each as a multiple of pyqstore's in the same rounds."""
        return [*results, *multiples(results)]

    def notes(self, _results: Sequence[Result]) -> list[str]:
        """What the numbers are, and of what."""
        said = [
            "Publishing one message and waiting for its answer gives p50 and p99, and the ratio to"
            " the floor is of p50. Pipelined is single messages whose answers are waited for"
            f" behind them; batches are {BATCH:,} messages for one answer; consumed is received"
            " and acknowledged, from a backlog that was just published. The floor of the second"
            f" and the third is a pwrite of {BATCH:,} bodies for each fdatasync.",
            "All rivals run at once and are measured in turn; each must give back what it was"
            " given. Clients are in Python, one thread of it, but for RabbitMQ's and Kafka's, which"
            " are in Java and timed there.",
        ]
        if streams := [rival.name for rival in self.rivals if rival.is_stream]:
            said.append(
                f"Streams ({'; '.join(streams)}): a reader keeps its place itself, so consumed is"
                " read, and nothing is acknowledged."
            )
        if self.uncountable is not None:
            said.append(f"Syncs were not counted: {self.uncountable}.")
        for rival, version in zip(self.rivals, self.versions, strict=True):
            said.append(f"{rival.name}: {version}; {self._synced(rival)}.")
        said += [f"{name} is left out: {why}." for name, why in self.left_out.items()]
        return said

    def _synced(self, rival: Rival) -> str:
        if rival.name not in self.syncs:
            return "whether it syncs before it answers was not counted"
        count = self.syncs[rival.name]
        told = f"{count:g} syncs for each answer"
        return told if count >= 1 else f"{told}: it answers before the message is on the disk"


@contextmanager
def begun(options: Options, directory: Path, progress: Progress) -> Iterator[Work]:
    """Count the syncs of all rivals that are here, then start them; end them with the block."""
    directory = directory.resolve()  # servers do not take a path from where we are
    rivals, left_out = asked(options)
    names = [rival.name for rival in rivals]
    uncountable = syncs.uncountable()
    progress("counting syncs", 0, len(rivals))
    counted = {} if uncountable else syncs.syncs_per_answer(names, directory)
    with ExitStack() as running:
        versions = []
        for place, rival in enumerate(rivals):
            progress(f"starting {rival.name}", place, len(rivals))
            own = directory / f"rival-{place}"
            own.mkdir()
            running.callback(rival.stop)
            rival.start(own)
            versions.append(rival.version())
        body_bytes = _BODY_BYTES[:1] if options.quick else _BODY_BYTES
        yield Work(rivals, versions, counted, left_out, uncountable, body_bytes)


def fetch(context: click.Context) -> None:
    """Get what is neither Python's nor the system's, or say why that failed."""
    try:
        for pom in jars.POMS:
            click.echo(jars.fetch(pom))
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        click.echo(f"pyqstore: {error}", err=True)
        context.exit(3)
    context.exit()


def asked(options: Options) -> tuple[list[Rival], dict[str, str]]:
    """The rivals to measure, pyqstore always; and why others cannot be."""
    only = options.chosen.get("only") or list(known())
    assert isinstance(only, Sequence)
    wanted = {name: each for name, each in known().items() if name in (*only, Pyqstore.name)}
    why = {name: rival.missing() for name, rival in wanted.items()}
    return (
        [rival for name, rival in wanted.items() if why[name] is None],
        {name: reason for name, reason in why.items() if reason is not None},
    )


def disk(body_bytes: int, count: int, group: str) -> Case:
    """What the disk does with such bodies: one for each fdatasync, and a batch for each.

    Answers that are outstanding may share a fdatasync, so the latter is the floor of both.
    """

    def run(directory: Path) -> Sample:
        for name in ("single", "batches"):
            (directory / name).mkdir()
        single = floor.sync(body_bytes, count).run(directory / "single")
        batches = floor.sync(body_bytes * BATCH, max(5, count // 5)).run(directory / "batches")
        rate = BATCH * batches.messages / batches.seconds
        return Sample(
            single.seconds + batches.seconds,
            latencies_us=single.latencies_us,
            figures={"pipelined_per_s": rate, "batches_per_s": rate},
        )

    return Case(RAW, run, {SYNCS: 1.0}, group=group)


def multiples(results: Sequence[Result]) -> list[Result]:
    """Each result over pyqstore's, and its batches over the floor's, round by round."""
    of = {(each.case.group, each.case.name.removesuffix(UNSYNCED)): each for each in results}
    found = []
    for (group, name), result in of.items():
        if name in (RAW, Pyqstore.name):
            continue
        bases = of[group, Pyqstore.name].samples, of[group, RAW].samples
        samples = [
            Sample(sample.seconds, figures=_multiples(sample, ours, raw))
            for sample, ours, raw in zip(result.samples, *bases, strict=True)
        ]
        case = replace(result.case, floor=None, parameters={}, group=f"{group}, over pyqstore's")
        found.append(Result(case, samples))
    return found


def _multiples(sample: Sample, ours: Sample, raw: Sample) -> dict[str, float]:
    mine, base, disk_does = sample.metrics(), ours.metrics(), raw.metrics()
    names = ("p50_us", "p99_us", *_RATES)
    found = {f"{_short(name)}_to_pyqstore": mine[name] / base[name] for name in names}
    return found | {"batches_to_floor": mine["batches_per_s"] / disk_does["batches_per_s"]}


def _short(metric: str) -> str:
    return metric.removesuffix("_us").removesuffix("_per_s")


def elapsed(clock: Callable[[], float], work: Callable[[], object]) -> float:
    """The seconds that it takes."""
    begin = clock()
    work()
    return clock() - begin
