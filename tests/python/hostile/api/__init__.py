"""The API fuzzer: every public verb, with arguments that fit and arguments that do not.

A case is the life of a store: some hundred calls on it and on all that they give back, from
callbacks and conversions as well, from several threads, in a forked child or in an event loop.
Only documented exceptions come out, nothing crashes or hangs, a model's confirmed messages are all
there in the end, and no descriptor or thread is left.
"""

import contextlib
import random
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path

from ..report import Report
from ..watched import Outcome, run_watched
from .command import call_commands
from .life import Life
from .loop import LoopLife

CALLS = 300


def run_case(home: Path, seed: int, number: int) -> Outcome:
    """Case ``number`` of ``seed``."""
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda _: None
    chance = random.Random(f"{seed} {number}")
    with tempfile.TemporaryDirectory(dir=home) as root, contextlib.chdir(root):  # made-up paths
        roll = chance.random()
        if roll < 0.15:
            looped = LoopLife(Path(root), chance)
            looped.run(CALLS)
            looped.end_apart()
            looped.outcome.counts.append("lives in a loop")
            return looped.outcome
        life = Life(Path(root), chance)
        life.open()
        if roll < 0.3:
            life.calls_of_threads(CALLS)
            life.outcome.counts.append("lives of threads")
        else:
            life.calls_of_one_thread(CALLS)
            life.outcome.counts.append("lives of one thread")
        if roll > 0.95:
            life.calls_in_a_fork()
            life.outcome.counts.append("forks")
        life.end()
        if roll > 0.98:
            life.outcome.violations += call_commands(Path(root) / "store", chance)
            life.outcome.counts.append("command lines")
        return life.outcome


def run(seed: int, seconds: float, case: int | None = None) -> Report:
    """Lives of ``seed`` for so many seconds, or one of them."""
    report = Report()
    most = None if case is None else 1
    memory = Path("/dev/shm")
    folder = memory if memory.is_dir() else None
    with tempfile.TemporaryDirectory(dir=folder, prefix="qs-api-") as home:
        work = partial(run_case, Path(home), seed)
        for number, outcome in run_watched(work, seconds, first=case or 0, most=most):
            report.add("lives")
            for name in outcome.counts:
                report.add(name)
            for name, figure in outcome.figures.items():
                report.add(name, figure)
            report.violations += [f"--case {number}: {text}" for text in outcome.violations]
    return report
