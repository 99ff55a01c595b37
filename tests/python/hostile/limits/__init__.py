"""Memory and descriptors that run out again and again while a store is at work.

A worker (``worker.py``) is squeezed by limits of its process; calls fail meanwhile, the store does
not.  When it has ended without a close, everything that it heard to be durable is there.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import pyqstore

from ..report import Report

WORKER = Path(__file__).with_name("worker.py")
KINDS = ("memory", "descriptors")
LIVES = 2


@dataclass
class Known:
    """What the lives of one store were told."""

    confirmed: set[int] = field(default_factory=set)
    touched: set[int] = field(default_factory=set)
    """Acknowledged, or about to be: there or not."""
    settled: set[int] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    refused: int = 0

    def hear(self, said: str) -> None:
        """Take in what a worker said."""
        for line in said.splitlines():
            what, _, rest = line.partition(" ")
            if what == "c":
                self.confirmed.add(int(rest))
            elif what == "a":
                self.touched.add(int(rest))
            elif what == "s":
                self.settled.add(int(rest))
            elif what == "k":
                self.keys.add(rest)
            else:
                self.refused += int(rest)


def live(path: Path, seed: str, kind: str, number: int) -> tuple[str, str]:
    """One life: what the worker said, and how it ended if that is wrong."""
    ended = subprocess.run(
        [sys.executable, str(WORKER), str(path), seed, kind, str(number)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    wrong = "" if ended.returncode == 0 else f"status {ended.returncode}: {ended.stderr[-2000:]}"
    return ended.stdout, wrong


def check(path: Path, known: Known) -> list[str]:
    """What is not as it was told, in the store without an owner."""
    wrong = [place.text for place in pyqstore.verify(path).damage]
    with pyqstore.open(path, read_only=True) as store:
        wrong += [f"{key!r} is forgotten" for key in known.keys if not store.transaction_known(key)]
        found = [
            int(body.split()[0])
            for batch in store.browse("a")
            for body in batch["body"].to_pylist()
        ]
    if len(found) != len(set(found)):
        wrong.append("a message is there twice")
    if back := known.settled.intersection(found):
        wrong.append(f"acknowledged for good, and back: {sorted(back)[:5]}")
    if lost := known.confirmed - known.touched - set(found):
        wrong.append(f"confirmed and gone: {sorted(lost)[:5]}")
    return wrong


def run(seed: int, seconds: float) -> Report:
    """Stores that live under one limit after the other, for about ``seconds``."""
    report = Report()
    end = time.monotonic() + seconds
    round_number = 0
    while round_number < len(KINDS) or time.monotonic() < end:
        kind = KINDS[round_number % len(KINDS)]
        known = Known()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "store"
            for number in range(1, LIVES + 1):
                said, wrong = live(path, f"{seed} {round_number}", kind, number)
                known.hear(said)
                texts = [wrong] if wrong else check(path, known)
                report.violations += [f"{kind}, round {round_number}: {text}" for text in texts]
                report.add("lives")
        report.add(f"calls refused for want of {kind}", known.refused)
        report.add("confirmed", len(known.confirmed))
        report.add("transactions", len(known.keys))
        round_number += 1
    return report
