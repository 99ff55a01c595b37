"""Stages of a run: each a command of ./dev, played though one before it failed, then a report.

What a stage prints is shown when it ends, and is in build/stages until the next run.

A stage writes what became of its tests where QS_OUTCOMES says, a line of JSON for each (see
``Outcome``), or, where ctest runs them, build/PRESET/results.xml. A stage that tells of no test is
one test itself. A test that failed runs once more by itself where its stage allows that: if it
passes, the report names it as FLAKY and the run goes on. Never so: tests that look for lost,
doubled or changed messages (``Outcome.again`` is false), and whatever a sanitizer found.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build/stages"
SLOWEST = 10
FIRST_LINES = 6
# What pytest and ctest end with when they went through all tests and some failed.
TESTS_FAILED = (1, 8)
# Labels of C tests that look for lost, doubled or changed messages.
EXACT_LABELS = {"crash", "fuzz", "thread"}

printing = threading.Lock()
running: list[subprocess.Popen[bytes]] = []
stopping = threading.Event()


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a test: passed, failed, skipped or flaky.

    ``text`` says why it failed; ``again``: a second try may pass.
    """

    name: str
    outcome: str
    seconds: float = 0.0
    text: str = ""
    again: bool = False


@dataclasses.dataclass(frozen=True)
class Stage:
    """A command of ./dev.

    ``preset`` is where ctest writes its results, ``again`` the command that runs one test by
    itself, whose name is put behind it; without it no test gets a second try.
    """

    name: str
    command: tuple[str, ...]
    preset: str = ""
    again: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    limit_s: float = 1800.0


@dataclasses.dataclass
class Result:
    stage: Stage
    seconds: float
    outcomes: list[Outcome]

    def count(self, outcome: str) -> int:
        return sum(found.outcome == outcome for found in self.outcomes)


def say(line: str, log: Path | None = None) -> None:
    """Print a line and what a log holds, whole."""
    with printing:
        print(line, flush=True)
        if log is not None:
            sys.stdout.buffer.write(log.read_bytes())
            sys.stdout.flush()


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a command and what it left running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def run(stage: Stage, command: Sequence[str], outcomes: Path, log: Path) -> int:
    """Play a command, whose output goes to a log; its status, 124 when it took too long."""
    environment = {**os.environ, **dict(stage.environment), "QS_OUTCOMES": str(outcomes)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [ROOT / "dev", *command],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        running.append(process)
        try:
            return process.wait(stage.limit_s)
        except subprocess.TimeoutExpired:
            output.write(b"\ntook longer than %d s\n" % stage.limit_s)
            return 124
        finally:
            kill_group(process)
            process.wait()
            running.remove(process)


def written(outcomes: Path) -> Iterator[Outcome]:
    """What the stage wrote itself; an unfinished last line is left out."""
    if outcomes.exists():
        for line in outcomes.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                yield Outcome(**json.loads(line))


def of_ctest(preset: str) -> Iterator[Outcome]:
    results = ROOT / "build" / preset / "results.xml"
    if not results.exists():
        return
    for case in ET.parse(results).getroot().iter("testcase"):
        status = {"run": "passed", "fail": "failed"}.get(case.get("status", ""), "skipped")
        name = case.get("name", "")
        text = case.findtext("system-out", "") if status == "failed" else ""
        again = name.split("/")[0] not in EXACT_LABELS
        yield Outcome(name, status, float(case.get("time", 0)), text, again)


def gather(stage: Stage, outcomes: Path) -> list[Outcome]:
    found = list(written(outcomes))
    return found + list(of_ctest(stage.preset) if stage.preset else ())


def forget(stage: Stage, outcomes: Path) -> None:
    outcomes.unlink(missing_ok=True)
    if stage.preset:
        (ROOT / "build" / stage.preset / "results.xml").unlink(missing_ok=True)


def tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-FIRST_LINES:])


def second_try(stage: Stage, failed: Outcome) -> Outcome:
    """The same test by itself."""
    say(f"--- {stage.name}: once more, by itself: {failed.name}")
    outcomes, log = FOLDER / f"{stage.name}-again.jsonl", FOLDER / f"{stage.name}-again.log"
    forget(stage, outcomes)
    name = f"^{failed.name}$" if stage.preset else failed.name
    status = run(stage, (*stage.again, name), outcomes, log)
    now = [found for found in gather(stage, outcomes) if found.name == failed.name]
    passed = status == 0 and [found.outcome for found in now] == ["passed"]
    return dataclasses.replace(failed, outcome="flaky") if passed else failed


def play(stage: Stage) -> Result:
    FOLDER.mkdir(parents=True, exist_ok=True)
    outcomes, log = FOLDER / f"{stage.name}.jsonl", FOLDER / f"{stage.name}.log"
    forget(stage, outcomes)
    begun = time.monotonic()
    say(f"--- {stage.name} begins: ./dev {' '.join(stage.command)}")
    status = run(stage, stage.command, outcomes, log)
    found = gather(stage, outcomes)
    if not found and status == 0:
        found = [Outcome(stage.name, "passed", time.monotonic() - begun)]
    is_told = any(each.outcome == "failed" for each in found)
    if status != 0 and (not is_told or status not in TESTS_FAILED):  # else some were not run
        found.append(Outcome(stage.name, "failed", text=f"{tail(log)}\nstatus {status}"))
    say(f"\n=== {stage.name}: ./dev {' '.join(stage.command)}\n", log)
    if stage.again:
        found = [
            second_try(stage, each) if each.outcome == "failed" and each.again else each
            for each in found
        ]
    result = Result(stage, time.monotonic() - begun, found)
    failed = result.count("failed")
    say(f"--- {stage.name} ended after {result.seconds:.0f} s: {failed or 'none'} failed")
    return result


def play_in_turn(stages: Iterable[Stage]) -> list[Result]:
    return [play(stage) for stage in stages if not stopping.is_set()]


def play_all(*lanes: Iterable[Stage]) -> list[Result]:
    """Play the stages of each lane in turn, the lanes beside each other."""
    # A run in the background has these ignored, and so would all that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    with ThreadPoolExecutor(len(lanes)) as pool:
        try:
            return [result for done in pool.map(play_in_turn, lanes) for result in done]
        except BaseException:  # Ctrl-C
            stopping.set()
            for process in running:
                kill_group(process)
            raise


def first_lines(text: str) -> list[str]:
    """What to read first: pytest's lines of errors where there are some, else the end."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("E ")]
    return errors[:FIRST_LINES] if errors else lines[-FIRST_LINES:]


def report(results: list[Result], seconds: float) -> int:
    """Print the table, the slowest tests, the failures again and the sums; how many failed."""
    everything = [(result.stage.name, each) for result in results for each in result.outcomes]
    print(f"\n=== {'stage':12}{'seconds':>8}{'passed':>8}{'skipped':>8}{'flaky':>8}{'failed':>8}")
    for result in results:
        counts = [result.count(kind) for kind in ("passed", "skipped", "flaky", "failed")]
        shown = "".join(f"{count:8}" for count in counts)
        print(f"=== {result.stage.name:12}{result.seconds:8.0f}{shown}")
    print(f"=== {'together':12}{seconds:8.0f}")
    print(f"\nthe {SLOWEST} slowest tests:")
    for stage, each in sorted(everything, key=lambda pair: -pair[1].seconds)[:SLOWEST]:
        print(f"  {each.seconds:7.1f} s  {stage}: {each.name}")
    for stage, each in everything:
        if each.outcome == "failed":
            print(f"\nFAILED {stage}: {each.name}")
            print("\n".join(f"    {line}" for line in first_lines(each.text)))
    for stage, each in everything:
        if each.outcome == "flaky":
            print(f"FLAKY {stage}: {each.name}")
            print("\n".join(f"    {line}" for line in first_lines(each.text)))
    failed = sum(result.count("failed") for result in results)
    passed = sum(result.count("passed") + result.count("flaky") for result in results)
    print(f"\n{passed} passed, {failed} failed", flush=True)
    return failed
