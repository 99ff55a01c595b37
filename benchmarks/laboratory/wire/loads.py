"""What a side goes through, a sample at a time."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from pyqstore.bench import child
from pyqstore.bench.runs import Sample

from . import beats, perftest
from .native import Programs, Told
from .sides import Side

PUBLISH = "publish_per_s"
CONSUME = "consume_per_s"
ALONE = "one_producer_per_s"
WITH_CONSUMER = "with_a_consumer_per_s"
OPENED = "connections_per_s"
DECLARED = "declares_per_s"
KIB_EACH = "kib_of_memory_each"
PROCESSOR = "percent_of_a_processor"
DESCRIPTORS_EACH = "descriptors_each"
LONGEST = "longest_wait_s"
MISSED = "missed"
HEARTBEAT_S = 60
BEAT_S = 2
_LEFT_SHARE = 0.05
_END_SECONDS = 120.0
_LOOK_SECONDS = 0.2


def messages(told: Told) -> Sample:
    """Of a client in C: a message and its confirm, many, and all of them received."""
    waits = told["waits_us"]
    seconds = sum(waits) / 1e6 + told["publish_seconds"] + told["consume_seconds"]
    figures = {
        PUBLISH: told["published"] / told["publish_seconds"],
        CONSUME: (told["published"] + len(waits)) / told["consume_seconds"],
    }
    os.sync()  # what is left for later must not burden the next one
    return Sample(seconds, latencies_us=waits, figures=figures)


@dataclass(frozen=True)
class Messages:
    """One connection, one queue."""

    programs: Programs
    side: Side
    body_bytes: int
    seconds: float
    waits: int

    def run(self, _directory: Path) -> Sample:
        """A round."""
        given = (self.side.argument, self.body_bytes, self.seconds, self.waits)
        return messages(self.programs.wire("messages", self.side.port, *given))


@dataclass(frozen=True)
class Embedded:
    """The same without a wire, in a new store."""

    programs: Programs
    body_bytes: int
    seconds: float
    waits: int

    def run(self, directory: Path) -> Sample:
        """A round."""
        given = (directory / "store", self.body_bytes, self.seconds, self.waits)
        return messages(self.programs.embedded(*given))


@dataclass
class PerfTest:
    """One producer without a consumer, then with one; the round for nothing is short, because
    PerfTest itself leaves out its first seconds."""

    side: Side
    warm_seconds: int
    seconds: int
    _is_warm: bool = field(default=False, init=False)

    def run(self, _directory: Path) -> Sample:
        """A round."""
        seconds = self.seconds if self._is_warm else 2
        self._is_warm = True
        start = time.perf_counter()
        rates = [
            perftest.run(self.side.uri, self.side.argument, consumers, self.warm_seconds, seconds)
            for consumers in (0, 1)
        ]
        taken = time.perf_counter() - start
        os.sync()
        return Sample(taken, figures=dict(zip((ALONE, WITH_CONSUMER), rates, strict=True)))


@dataclass(frozen=True)
class Many:
    """Connections opened one after the other, then queues declared by many of them."""

    programs: Programs
    side: Side
    seconds: float

    def run(self, _directory: Path) -> Sample:
        """A round."""
        opened = self.programs.wire("connections", self.side.port, self.seconds)
        declared = self.programs.wire("declares", self.side.port, self.seconds)
        os.sync()
        figures = {
            OPENED: opened["count"] / opened["seconds"],
            DECLARED: declared["count"] / declared["seconds"],
        }
        return Sample(opened["seconds"] + declared["seconds"], figures=figures)


@dataclass
class Idle:
    """Connections that do nothing but heartbeats: measured once, for all rounds."""

    programs: Programs
    side: Side
    connections: int
    seconds: float
    _found: Sample | None = field(default=None, init=False)

    def run(self, _directory: Path) -> Sample:
        """A round: the first one is all of them."""
        if self._found is None:
            self._found = self._measured()
        return self._found

    def _measured(self) -> Sample:
        side, count = self.side, self.connections
        memory, descriptors = side.resident_bytes(), side.descriptors()
        with self.programs.idle(side.port, count, HEARTBEAT_S) as told:
            worked = side.processor_seconds()
            time.sleep(self.seconds)
            worked = side.processor_seconds() - worked
            grown = side.resident_bytes() - memory
            opened = side.descriptors() - descriptors
        self._wait_until_they_are_gone(descriptors + count * _LEFT_SHARE)
        figures = {
            KIB_EACH: grown / count / 1024,
            PROCESSOR: 100 * worked / self.seconds,
            DESCRIPTORS_EACH: opened / count,
        }
        return Sample(told["seconds"], figures=figures)

    def _wait_until_they_are_gone(self, most: float) -> None:
        until = time.monotonic() + _END_SECONDS
        while self.side.descriptors() > most:
            if time.monotonic() > until:
                raise RuntimeError(f"{self.side.name} keeps connections whose client has gone")
            time.sleep(_LOOK_SECONDS)


@dataclass
class Beats:
    """Heartbeats of a server that another connection keeps busy: measured once for all rounds."""

    programs: Programs
    side: Side
    seconds: float
    _found: Sample | None = field(default=None, init=False)

    def run(self, _directory: Path) -> Sample:
        """A round: the first one is all of them."""
        if self._found is None:
            with ThreadPoolExecutor(1) as pool:
                told = pool.submit(self.programs.heartbeats, self.side.port, BEAT_S, self.seconds)
                while not told.done():
                    self.programs.wire("messages", self.side.port, self.side.argument, 100, 1, 1)
            self._found = heartbeats(told.result())
            os.sync()
        return self._found


@dataclass
class Held:
    """Heartbeats of a listener whose process computes in Python, and gives the lock to nobody."""

    programs: Programs
    seconds: float
    _found: Sample | None = field(default=None, init=False)

    def run(self, directory: Path) -> Sample:
        """A round: the first one is all of them."""
        if self._found is None:
            given = {"folder": self.programs.folder, "store": directory / "store"}
            told = child.call(beats.while_held, each_s=BEAT_S, seconds=self.seconds, **given)
            self._found = heartbeats(told)
        return self._found


def heartbeats(told: Told) -> Sample:
    """How long a client waited for each: twice as often as agreed is the rule."""
    waits = [*told["gaps_s"], told["since_the_last_s"]]
    missed = sum(int(each // BEAT_S) for each in waits)
    return Sample(sum(waits), figures={LONGEST: max(waits), MISSED: missed})
