"""Cases that may crash or hang: each runs in a child process that is watched and replaced.

A child works through case after case and tells by a pipe which one it begins and what came of it.
When it dies, or says nothing for too long, that is the outcome of the case that it was in, and
another child goes on with the next one.  A child also ends after some hundred cases, and tells
which descriptors and threads it has more than after its first ones.

The parent must have no threads: start it as a process of its own.
"""

import contextlib
import faulthandler
import gc
import os
import pickle
import select
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

SILENCE_SECONDS = 120.0
CASES_PER_CHILD = 400
SETTLED = 100
"""Cases after which a child has loaded what it will ever load."""
_LENGTH = struct.Struct("<I")


@dataclass
class Outcome:
    """What came of a case: words to count, what was wrong, numbers to add up."""

    counts: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)


Work = Callable[[int], Outcome]


def run_watched(
    work: Work,
    seconds: float,
    *,
    first: int = 0,
    most: int | None = None,
    silence: float = SILENCE_SECONDS,
    per_child: int = CASES_PER_CHILD,
) -> Iterator[tuple[int, Outcome]]:
    """The outcome of each case from ``first`` on; a crash or a hang is a violation."""
    end = time.monotonic() + seconds
    case = first
    stop = sys.maxsize if most is None else first + most
    while case < stop and time.monotonic() < end:
        batch = range(case, min(stop, case + per_child))
        with tempfile.TemporaryFile() as errors:
            for told, outcome in _child(work, batch, end, silence, errors.fileno()):
                case = case if told is None else told
                if told is None:
                    errors.seek(0)
                    said = errors.read().decode(errors="replace").strip()
                    outcome.violations[0] += f": {said[:2000]}" if said else ""
                yield case, outcome
                case += 1


def _child(
    work: Work, batch: range, end: float, silence: float, errors: int
) -> Iterator[tuple[int | None, Outcome]]:
    """Outcomes as a child tells them; None: it ended in the case behind the last one told."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            os.close(reading)
            os.dup2(errors, 2)
            faulthandler.enable()
            _work(work, batch, end, silence / 4, writing)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(BaseException):
                faulthandler.disable()
            os._exit(status)
    os.close(writing)
    try:
        waits = True
        buffer = b""
        while waits:
            ready, _, _ = select.select([reading], [], [], silence)
            if not ready:
                os.kill(pid, signal.SIGABRT)  # faulthandler tells where it hangs
                time.sleep(0.5)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                pid = 0
                yield None, Outcome(["hung"], [f"hung for {silence:.0f} s"])
                return
            piece = os.read(reading, 1 << 16)
            buffer += piece
            waits = bool(piece)
            while len(buffer) >= 4:
                (size,) = _LENGTH.unpack_from(buffer)
                if len(buffer) < 4 + size:
                    break
                yield pickle.loads(buffer[4 : 4 + size])
                buffer = buffer[4 + size :]
        _, status = os.waitpid(pid, 0)
        pid = 0
        if status != 0:
            code = os.waitstatus_to_exitcode(status)
            what = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            yield None, Outcome(["crashed"], [f"the process ended with {what}"])
    finally:
        os.close(reading)
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _work(work: Work, batch: range, end: float, patience: float, writing: int) -> None:
    before: tuple[set[str], int] | None = None
    for index, case in enumerate(batch):
        if index == SETTLED:
            before = _held()
        outcome = work(case)
        over = time.monotonic() > end or index == len(batch) - 1
        if over and before is not None:
            outcome.violations += _leaks(before, patience)
        told = pickle.dumps((case, outcome))
        told = _LENGTH.pack(len(told)) + told
        while told:
            told = told[os.write(writing, told) :]
        if over:
            break


def _held() -> tuple[set[str], int]:
    gc.collect()
    descriptors = {
        f"{name} {os.readlink(f'/proc/self/fd/{name}')}"
        for name in os.listdir("/proc/self/fd")
        if Path(f"/proc/self/fd/{name}").is_symlink()
    }
    return descriptors, len(os.listdir("/proc/self/task"))


def _leaks(before: tuple[set[str], int], patience: float) -> list[str]:
    end = time.monotonic() + patience
    while True:
        descriptors, threads = _held()
        more = {text for text in descriptors - before[0] if "/proc/" not in text}
        if (len(descriptors) <= len(before[0]) or not more) and threads <= before[1]:
            return []
        if time.monotonic() > end:
            break
        time.sleep(0.05)  # a thread that ended may still be listed
    return [f"left behind: descriptors {sorted(more)}, threads {before[1]} before, {threads} now"]
