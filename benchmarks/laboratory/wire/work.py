"""The rounds: every server under the same loads, and goals beside what came."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click

from pyqstore.bench.floor import size
from pyqstore.bench.goals import Goal, told
from pyqstore.bench.plots import Plot
from pyqstore.bench.runs import Case, Options, Progress, Result, Sample

from . import native, perftest, sides
from .loads import (
    ALONE,
    CONSUME,
    DECLARED,
    DESCRIPTORS_EACH,
    KIB_EACH,
    MISSED,
    OPENED,
    PROCESSOR,
    PUBLISH,
    WITH_CONSUMER,
    Beats,
    Embedded,
    Held,
    Idle,
    Many,
    Messages,
    PerfTest,
)
from .sides import CLASSIC_V1, CLASSIC_V2, QUORUM, SERVE, SERVE_TLS, Sides

TITLE = "AMQP 0-9-1: pyqstore serve beside RabbitMQ"
OPTIONS = [
    click.Option(
        ["--programs"],
        type=click.Path(file_okay=False),
        default=native.FOLDER,
        show_default=True,
        help="Where the benchmarks in C are.",
    )
]
EMBEDDED = "no wire, in C"
PERFTEST = "PerfTest, bodies of 100 B"
MANY = "connections opened, and queues declared by 100 connections"
IDLE = "connections that do nothing"
BEATS = "heartbeats of 2 s"
HELD = "a listener while Python's lock is held"
LONE = "p50_us"
_BODY_BYTES = (100, 1024, 8192)
_SECONDS = 0.6  # of publishing, and of each load of many connections
_WAITS = 200
_WARM_SECONDS = 9  # Java compiles PerfTest meanwhile
_PERFTEST_SECONDS = 4  # of those that count
_CONNECTIONS = 10_000
_IDLE_SECONDS = 32.0  # a heartbeat from each side at least
_BEAT_SECONDS = 30.0
_SPARE_DESCRIPTORS = 500


def bodies(body_bytes: int) -> str:
    """The table of one size of bodies."""
    return f"one connection, bodies of {size(body_bytes)}"


SMALL, LARGE = bodies(100), bodies(8192)
GOALS = (
    Goal(SMALL, SERVE, PUBLISH, 300_000),
    Goal(SMALL, SERVE, PUBLISH, 15, CLASSIC_V1),
    Goal(SMALL, SERVE, PUBLISH, 8, QUORUM),
    Goal(SMALL, SERVE, PUBLISH, 0.6, EMBEDDED),
    Goal(SMALL, SERVE, CONSUME, 10, CLASSIC_V1),
    Goal(SMALL, SERVE, CONSUME, 6, QUORUM),
    Goal(SMALL, SERVE, LONE, 1.3, EMBEDDED, less=True),
    Goal(LARGE, SERVE, PUBLISH, 1.5, CLASSIC_V1),
    Goal(LARGE, SERVE, CONSUME, 1.5, CLASSIC_V1),
    Goal(PERFTEST, SERVE, ALONE, 5, CLASSIC_V1),
    Goal(PERFTEST, SERVE, ALONE, 3, QUORUM),
    Goal(PERFTEST, SERVE, WITH_CONSUMER, 4, CLASSIC_V1),
    Goal(PERFTEST, SERVE, WITH_CONSUMER, 2.5, QUORUM),
    Goal(PERFTEST, SERVE_TLS, ALONE, 0.6, SERVE),
    Goal(MANY, SERVE, OPENED, 2000),
    Goal(MANY, SERVE, DECLARED, 5000),
    Goal(IDLE, SERVE, KIB_EACH, 12, less=True),
    Goal(IDLE, SERVE, PROCESSOR, 1, less=True),
    Goal(IDLE, SERVE, DESCRIPTORS_EACH, 1, less=True),
    Goal(BEATS, SERVE, MISSED, 0, less=True),
    Goal(BEATS, HELD, MISSED, 0, less=True),
)


def _plots() -> list[Plot]:
    found = []
    for count in _BODY_BYTES:
        for metric, title in ((PUBLISH, "published and confirmed"), (CONSUME, "received")):
            found.append(Plot(f"Bodies of {size(count)}: {title}", "case", metric,
                              group=bodies(count), unit="messages/s", log_y=True))  # fmt: skip
    found.append(
        Plot("A message and its confirm, bodies of 100 B: p50 (less is better)", "case", LONE,
             group=SMALL, unit="µs")
    )  # fmt: skip
    for metric, title in ((ALONE, "one producer"), (WITH_CONSUMER, "with a consumer")):
        found.append(Plot(f"PerfTest, bodies of 100 B: {title}", "case", metric, group=PERFTEST,
                          unit="messages/s"))  # fmt: skip
    found += [
        Plot("Connections opened a second", "case", OPENED, group=MANY, unit="connections/s"),
        Plot("Durable queues declared by 100 connections", "case", DECLARED, group=MANY,
             unit="queues/s"),
        Plot("Memory of a connection that does nothing (less is better)", "case", KIB_EACH,
             group=IDLE, unit="KiB"),
    ]  # fmt: skip
    return found


PLOTS = _plots()


@dataclass(frozen=True)
class Work:
    """Servers that run: stands in for a workload's module."""

    programs: native.Programs
    sides: Sides
    without_perftest: str | None

    def cases(self, options: Options) -> list[Case]:
        """A table for each size of bodies, and one for each other load."""
        found = [case for count in _BODY_BYTES for case in self._messages(options, count)]
        if self.without_perftest is None:
            seconds = max(2, round(_PERFTEST_SECONDS * options.scale))
            warm = 1 if options.quick else _WARM_SECONDS
            found += [
                Case(side.name, PerfTest(side, warm, seconds).run, group=PERFTEST)
                for side in self.sides.queues
                if side.name != CLASSIC_V2
            ]
            if (secret := self.sides.over_tls) is not None:
                found.append(Case(secret.name, PerfTest(secret, warm, seconds).run, group=PERFTEST))
        found += [
            Case(side.name, Many(self.programs, side, _seconds(options)).run, group=MANY)
            for side in self.sides.servers
        ]
        count = min(options.count(_CONNECTIONS, 10), _descriptors() - _SPARE_DESCRIPTORS)
        watched = max(1.0, _IDLE_SECONDS * _share(options))
        found += [
            Case(
                side.name,
                Idle(self.programs, side, count, watched).run,
                {"connections": count},
                group=IDLE,
            )
            for side in self.sides.servers
        ]
        waited = max(2.5, _BEAT_SECONDS * _share(options))
        found.append(Case(HELD, Held(self.programs, waited).run, group=BEATS))
        return found + [
            Case(side.name, Beats(self.programs, side, waited).run, group=BEATS)
            for side in self.sides.servers
        ]

    def _messages(self, options: Options, body_bytes: int) -> list[Case]:
        group, seconds = bodies(body_bytes), _seconds(options)
        waits = options.count(_WAITS, 10)
        alone = Embedded(self.programs, body_bytes, seconds, waits)
        return [
            Case(EMBEDDED, alone.run, group=group),
            *(
                Case(
                    side.name,
                    Messages(self.programs, side, body_bytes, seconds, waits).run,
                    floor=EMBEDDED,
                    group=group,
                )
                for side in self.sides.queues
            ),
        ]

    def finished(self, results: Sequence[Result]) -> list[Result]:
        """The results, and pyqstore's over each other's of the same round."""
        return [*results, *_multiples(results)]

    def notes(self, results: Sequence[Result]) -> list[str]:
        """What the numbers are, and each goal beside what came."""
        said = [
            "The client is the same program for both servers, on this machine: it has a processor"
            " less for them. p50 and p99 are of one message and its confirm, with nothing else"
            " under way; publish is one connection with 1,000 unconfirmed at most; consume is all"
            " of these with a prefetch of 200 and an ack for each 50, until the server has taken"
            " the last ack. Bodies are persistent, queues durable. The ratio to the floor is of"
            " p50.",
            f"{EMBEDDED}: the same loads on the engine in the client's own process; it publishes"
            " without a window and waits for all confirms at the end.",
            "PerfTest is RabbitMQ's own load generator, in Java, and takes more of the machine than"
            " a server does that is fast: one producer with 1,000 unconfirmed, and the same with a"
            f" consumer (prefetch 200, an ack for each message). Its first {_WARM_SECONDS} s do not"
            " count: Java compiles meanwhile. TLS ends in a Python thread of the server, on the"
            " same two processors.",
            "Connections that do nothing have a channel each and heartbeats of 60 s; they were"
            " measured once, not in each round. Memory is what all processes of a server have more"
            " than before.",
            "Heartbeats are those that a client waits for 30 s: of a server that another"
            " connection keeps busy, and of a listener in a process that holds Python's lock all"
            " the time. One is missed for each 2 s of a wait. Measured once, too.",
        ]
        if self.sides.left_out is None:
            said.append(
                f"RabbitMQ {sides.version()}. `pyqstore bench rivals` counts whether its queues"
                " sync before they confirm."
            )
        else:
            said.append(f"RabbitMQ is left out: {self.sides.left_out}.")
        if self.without_perftest is not None:
            said.append(f"PerfTest is left out: {self.without_perftest}.")
        return [*said, *told(GOALS, results)]


@contextmanager
def begun(options: Options, directory: Path, progress: Progress) -> Iterator[Work]:
    """Start both servers; end them with the block."""
    programs = native.Programs(Path(str(options.chosen.get("programs", native.FOLDER))).resolve())
    if (why := programs.missing()) is not None:
        raise RuntimeError(why)
    with _all_descriptors(), sides.started(directory.resolve(), progress) as running:
        yield Work(programs, running, perftest.missing())


@contextmanager
def _all_descriptors() -> Iterator[None]:
    """A server takes as many connections as it has descriptors, and it is started with ours."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


def _descriptors() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _share(options: Options) -> float:
    return options.scale * (0.1 if options.quick else 1)


def _seconds(options: Options) -> float:
    return _SECONDS * _share(options)


def _by_name(results: Sequence[Result]) -> dict[tuple[str, str], Result]:
    return {(each.case.group, each.case.name): each for each in results}


def _multiples(results: Sequence[Result]) -> list[Result]:
    found, known = [], _by_name(results)
    for (group, name), result in known.items():
        if name == SERVE:
            continue
        samples = [
            Sample(ours.seconds, figures=_over(ours.metrics(), theirs.metrics()))
            for ours, theirs in zip(known[group, SERVE].samples, result.samples, strict=True)
        ]
        case = replace(
            result.case,
            name=f"over {name}",
            floor=None,
            parameters={},
            group=f"{group}: {SERVE} over the others",
        )
        found.append(Result(case, samples))
    return found


def _over(ours: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, float]:
    names = [name for name in ours if name != "seconds" and theirs[name]]
    return {f"{_short(name)}_ratio": ours[name] / theirs[name] for name in names}


def _short(metric: str) -> str:
    return metric.removesuffix("_us").removesuffix("_per_s")
