"""The rounds: all claims, or those that were asked for, and RabbitMQ for as long as they take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from pyqstore.bench.runs import Case, Options, Progress, Result

from . import publishing, receiving, storing, windows
from .broker import Broker
from .claims import Claim, Group

CLAIMS: list[Claim] = [*publishing.CLAIMS, *storing.CLAIMS, *receiving.CLAIMS, *windows.CLAIMS]
PLOTS = [plot for claim in CLAIMS for plot in (claim.plot, *claim.more)]
TITLE = "What the founding documents say, measured"
ROUNDS = 3
QUICK_ROUNDS = 1
OPTIONS = [
    click.Option(
        ["--only"],
        type=click.Choice([claim.name for claim in CLAIMS]),
        multiple=True,
        help="This claim; again for another.  Default: all.",
    ),
    click.Option(["--alone"], is_flag=True, help="Without RabbitMQ, even where there is one."),
]


@dataclass(frozen=True)
class Work:
    """The claims to measure: stands in for a workload's module."""

    claims: Sequence[Claim]
    broker: Broker | None
    said: str
    """Which RabbitMQ it is, or why there is none."""

    def cases(self, options: Options) -> list[Case]:
        """A table for each claim."""
        return [
            case
            for claim in self.claims
            for case in claim.cases(options, Group(claim.title, self.broker))
        ]

    def notes(self, results: Sequence[Result]) -> list[str]:
        """What is said, what came, and why, of each claim."""
        has_broker = self.broker is not None
        told = [
            claim.told([each for each in results if each.case.group == claim.title], has_broker)
            for claim in self.claims
        ]
        return [
            f"Beside: {self.said}.",
            "Factors are taken in each round: the median, the least and the most."
            " RabbitMQ is a server behind a socket and its client is in Java; pyqstore is in the"
            " process, and these cases use it one message at a time, from Python. So compare each"
            " with itself: what a choice costs, not one system with the other.",
            *told,
        ]


@contextmanager
def begun(options: Options, directory: Path, progress: Progress) -> Iterator[Work]:
    """Start RabbitMQ if it is here; end it with the block."""
    directory = directory.resolve()  # servers do not take a path from where we are
    only = options.chosen.get("only") or [claim.name for claim in CLAIMS]
    assert isinstance(only, Sequence)
    claims = [claim for claim in CLAIMS if claim.name in only]
    broker = Broker()
    why = "RabbitMQ was not asked for" if options.chosen.get("alone") else broker.missing()
    if why is not None:
        yield Work(claims, None, f"nothing, for {why}")
        return
    with ExitStack() as running:
        progress("starting RabbitMQ", 0, 1)
        own = directory / "rabbitmq"
        own.mkdir()
        running.callback(broker.stop)
        broker.start(own)
        yield Work(claims, broker, broker.version())
