"""The process that records a disk and cuts it.  Its argument is a plan, its last line a report."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from hostile.mixed.inspection import inspect
from hostile.mixed.life import Workers
from hostile.mixed.messages import Copy
from hostile.mixed.model import Model
from hostile.mixed.story import Event, events
from hostile.powercut.disk import FILE_SYSTEMS, Image, Log, Recorder, build_recorder, mount, unmount
from hostile.report import Report

_LIVES = 3
_CUTS = 25
_PASSES = 10
_VIOLATIONS_MOST = 100


class Recording:
    """What happened on one disk, and what was promised meanwhile."""

    def __init__(
        self, program: Path, plan: dict[str, Any], workers: Workers, chance: random.Random
    ) -> None:
        self.kind = kind = FILE_SYSTEMS[plan["kind"]]
        self._folder = folder = Path(plan["folder"])
        self.lives: list[list[Event]] = []
        at = folder / "mounted"
        at.mkdir()
        recorder = Recorder(program, folder, kind.disk_bytes, plan["outside"])
        subprocess.run([*kind.make, str(recorder.disk)], check=True, stdout=subprocess.DEVNULL)
        mount(kind, recorder.disk, at)
        self.begin = recorder.position
        for _ in range(_LIVES):
            self._live(recorder, at / "store", plan["sync"], workers, chance)
        self.end = recorder.position
        unmount(at)
        recorder.end()
        self.log = Log(recorder.log)
        recorder.log.unlink()

    def _live(
        self, recorder: Recorder, path: Path, sync: str, workers: Workers, chance: random.Random
    ) -> None:
        plan = {
            "path": str(path),
            "life": len(self.lives) + 1,
            "seed": str(chance.random()),
            "options": {"segment_entries": 64, "sync": sync},
            "recorder": str(recorder.position_file),
            "repeats": self._repeats(),
        }
        worker = workers.take()
        try:
            worker.say(json.dumps(plan))
            worker.wait_for_confirm()
            time.sleep(chance.uniform(0, 2))
            if chance.random() < 0.3:
                worker.say("end")
                worker.wait_until_over()
        finally:
            worker.end()
        if worker.failure:
            raise RuntimeError(worker.failure)
        self.lives.append(list(events(worker.said)))

    def _repeats(self) -> list[tuple[str, list[Copy]]]:
        return self.model_at(None).repeats()

    def model_at(self, position: int | None) -> Model:
        """What was promised when the disk had written down so much; None: in the end."""
        model = Model()
        for life in self.lives:
            told = life if position is None else [each for each in life if each[0] <= position]
            if told:
                model.begin_life()
                model.read(told)
        return model

    def positions(self, count: int, chance: random.Random) -> list[int]:
        """Where to cut: anywhere, and where something had just been promised."""
        promised = [
            position
            for life in self.lives
            for position, what, _ in life
            if what in ("confirm", "durable", "commit", "purged", "deleted", "phase")
        ]
        first = min((life[0][0] for life in self.lives if life), default=self.begin)
        anywhere = [chance.randrange(self.begin, self.end + 1) for _ in range(count // 2)]
        near = [chance.choice(promised) for _ in range(count - len(anywhere))] if promised else []
        return sorted(position for position in anywhere + near if position >= first)

    def cut(self, position: int, base: Image, chance: random.Random, report: Report) -> None:
        """``base`` has everything up to the last flush at ``position``."""
        image = base.copy(self._folder / "cut")
        before = chance.getstate()
        how = self.log.apply_some(image, self.log.flush_before(position), position, chance)
        model = self.model_at(position)
        at = self._folder / "mounted"
        try:
            mount(self.kind, image.path, at)
        except subprocess.CalledProcessError as error:
            report.violations.append(f"cut at {position}, {how}: not mounted: {error.stderr}")
            image.close()
            return
        try:
            keys = model.open_keys
            model.check(inspect(at / "store", keys, was_open=model.was_open))
        finally:
            unmount(at)
            image.close()
        report.add("cuts")
        report.add("messages looked at", model.counts["messages looked at"])
        report.add("confirmed at the cuts", model.counts["confirmed"])
        report.violations += [f"cut at {position}, {how}: {text}" for text in model.violations]
        if model.violations and os.environ.get("QS_CUT_KEEP"):
            again = random.Random()
            again.setstate(before)
            self._keep(position, base, again, model)

    def _keep(self, position: int, base: Image, chance: random.Random, model: Model) -> None:
        """What the cut left, before anybody looked at it, and what was told until then."""
        folder = Path(os.environ["QS_CUT_KEEP"])
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.kind.name}-{os.getpid()}-{position}-"  # not unique: cuts repeat positions
        keep = Path(tempfile.mkdtemp(prefix=name, dir=folder))
        image = base.copy(self._folder / "cut")
        self.log.apply_some(image, self.log.flush_before(position), position, chance)
        image.save(keep / "disk")
        image.close()
        told = {"flushes": self.log.flushes, "lives": self.lives, "blamed": model.violations}
        (keep / "story.json").write_text(json.dumps(told))


def cut_some(
    recording: Recording, folder: Path, chance: random.Random, report: Report, end: float = math.inf
) -> None:
    """Cut at some positions, in their order: the disk before the cuts is built once.  Stop at
    ``end``, if there is one."""
    base = Image(folder / "base", recording.kind.disk_bytes)
    applied = 0
    for position in recording.positions(_CUTS, chance):
        flushed = recording.log.flush_before(position)
        recording.log.apply(base, applied, flushed)
        applied = max(applied, flushed)
        recording.cut(position, base, chance, report)
        if time.monotonic() > end or len(report.violations) > _VIOLATIONS_MOST:
            break
    base.close()


def attack(plan: dict[str, Any], report: Report) -> None:
    """Record for a moment and cut many times, again and again."""
    chance = random.Random(plan["seed"])
    folder = Path(plan["folder"])
    program = build_recorder(folder)
    end = time.monotonic() + plan["seconds"]
    with Workers() as workers:
        while not report.violations and (time.monotonic() < end or not report.figures):
            recording = Recording(program, plan, workers, chance)
            report.add("recordings")
            report.add("writes and flushes", len(recording.log))
            cut_some(recording, folder, chance, report)
            for _ in range(_PASSES):
                if not report.violations and time.monotonic() < end:
                    cut_some(recording, folder, chance, report, end)
            (folder / "mounted").rmdir()


def main() -> None:
    plan = json.loads(sys.argv[1])
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", plan["folder"]], check=True)
    report = Report()
    attack(plan, report)
    print(json.dumps({"figures": report.figures, "violations": report.violations}))


if __name__ == "__main__":
    main()
