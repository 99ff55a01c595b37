"""Kills a process again and again while it works on one store, opens it or closes it.

A life: a worker (``mixed/worker.py``) opens the store as the last one left it, works, and is killed
at a random moment; it may have been stopped for a while before.  After most lives the store is
looked at, in place or in a copy, and compared with the model; after the others the next worker
recovers what was left.  The plan follows from the seed; the moments depend on the scheduler, too.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..mixed.inspection import inspect
from ..mixed.life import Worker, Workers
from ..mixed.model import Model
from ..mixed.story import events
from ..report import Report

__all__ = ["run"]

Plant = Callable[[Path], bool]


def run(seed: int, seconds: float, plant: Plant | None = None) -> Report:
    """Kill for ``seconds``, or until a promise is broken.  ``plant`` does harm to the store between
    two lives, and says whether it did: with one it goes on until that is found."""
    chance = random.Random(seed)
    report = Report()
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="qs-killer-") as folder, Workers() as workers:
        round_number = 0
        while not report.violations and (
            plant is not None or time.monotonic() < end or not round_number
        ):
            round_number += 1
            path = Path(folder, str(round_number))
            path.mkdir()
            lives = chance.randrange(20, 60)
            _kill_repeatedly(path, chance, workers, report, lives, end, plant)
            if report.violations and plant is None:
                report.violations.append(f"the store is kept in {_keep(path)}")
            else:
                shutil.rmtree(path)
    return report


def _keep(path: Path) -> str:
    """The store and what its workers told, as evidence."""
    kept = tempfile.mkdtemp(prefix="qs-killed-")
    shutil.move(path, kept)
    return kept


def _kill_repeatedly(
    path: Path,
    chance: random.Random,
    workers: Workers,
    report: Report,
    lives: int,
    end: float,
    plant: Plant | None,
) -> None:
    """The lives of one store."""
    model = Model()
    options = {"segment_entries": chance.choice((16, 64, 1024))}
    for _ in range(lives):
        model.begin_life()
        plan = {
            "path": str(path / "store"),
            "life": model.life,
            "seed": str(chance.random()),
            "options": options,
            "recorder": None,
            "repeats": model.repeats(),
        }
        _live(workers.take(), plan, chance, model, report)
        planted = plant is not None and model.life > 2 and plant(path / "store")
        last = plant is None and time.monotonic() > end and model.counts["confirmed"] > 0
        if last or planted or chance.random() < 0.7:
            _look(path, chance, model)
        report.add("lives")
        if model.violations or last:
            break
    for name, count in model.counts.items():
        report.add(name, count)
    report.violations += model.violations


def _look(path: Path, chance: random.Random, model: Model) -> None:
    store = path / "store"
    if chance.random() < 0.5 and store.is_dir():
        copy = path / "copy"
        shutil.copytree(store, copy)
        model.check(inspect(copy, model.open_keys, was_open=model.was_open))
        shutil.rmtree(copy)
    else:
        model.check(inspect(store, model.open_keys, was_open=model.was_open))


def _live(
    worker: Worker, plan: dict[str, Any], chance: random.Random, model: Model, report: Report
) -> None:
    """Let a worker live by its plan, end it, and tell the model all that it said."""
    try:
        worker.say(json.dumps(plan))
        _follow_to_death(worker, chance, report)
    finally:
        worker.end()
    Path(plan["path"]).with_name(f"life-{model.life}.json").write_bytes(worker.said)
    model.read(events(worker.said))
    report.add(f"ends while {model.phase}")
    if worker.failure:
        model.blame(worker.failure)


def _follow_to_death(worker: Worker, chance: random.Random, report: Report) -> None:
    how = chance.random()
    if how < 0.15:
        worker.wait_for_phase("opening")
        time.sleep(chance.uniform(0, 0.03))
        return
    worker.wait_for_phase("open")
    time.sleep(chance.choice((chance.uniform(0, 0.2), chance.uniform(0, 1.0))))
    if chance.random() < 0.3:
        worker.signal(signal.SIGSTOP)
        report.add("stops")
        time.sleep(chance.uniform(0, 0.1))
        if chance.random() < 0.3:
            return
        worker.signal(signal.SIGCONT)
        time.sleep(chance.uniform(0, 0.3))
    if how < 0.45:
        worker.say("end")
        worker.wait_for_phase("closing")
        if how < 0.4:
            time.sleep(chance.uniform(0, 0.03))
        else:
            worker.wait_until_over()
