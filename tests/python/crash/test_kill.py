"""Kill -9 while a process publishes, confirms and acknowledges; reopen; check the four sentences.

Confirmed messages are all there; none is there twice unless unacknowledged before; order per queue
holds; nothing unpublished appears.  A worker (worker.py) says on a pipe what it is about to do and
what was done.  The pipe is read to its end after the kill, so the parent knows at least as much as
was said before the worker died:
- "p n": n will be published;  "c n": everything up to n is confirmed;
- "a n": n will be acknowledged;  "s": every acknowledgement so far is durable. Several cycles go
  over the same store.  The moments come from a seed, which is printed and may be given in
  QS_KILL_SEED; QS_KILL_CYCLES asks for more cycles.
"""

import os
import random
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import pyqstore

WORKER = Path(__file__).with_name("worker.py")
QUEUES = ("q0", "q1", "q2")
CYCLES = int(os.environ.get("QS_KILL_CYCLES", "6"))

pytestmark = pytest.mark.crash


@dataclass
class Knowledge:
    """What is known about the messages 1, 2, 3... over all cycles; n goes to queue n % 3."""

    announced: int = 0
    confirmed: set[int] = field(default_factory=set)
    ack_announced: set[int] = field(default_factory=set)
    ack_durable: set[int] = field(default_factory=set)

    def read(self, said: str) -> None:
        """Take in what one worker said.  A last line without its end was cut off by the kill."""
        first = self.announced + 1
        lines = said.split("\n")
        assert lines[-1] == "" or len(lines[-1]) < 40
        for line in lines[:-1]:
            what, _, number = line.partition(" ")
            if what == "p":
                self.announced = max(self.announced, int(number))
            elif what == "c":
                self.confirmed.update(range(first, int(number) + 1))
            elif what == "a":
                self.ack_announced.add(int(number))
            elif what == "s":
                self.ack_durable.update(self.ack_announced)
            else:
                assert line == "ready", f"the worker said {line!r}"


def run_and_kill(path: Path, first: int, mode: str, lifetime: float) -> str:
    """Start a worker, kill it some time after it is ready, return what it said."""
    worker = subprocess.Popen(
        [sys.executable, str(WORKER), str(path), str(first), mode],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    assert worker.stderr is not None
    said = [worker.stdout.readline()]
    killer = threading.Timer(lifetime, worker.kill)
    killer.start()
    said.append(worker.stdout.read())
    errors = worker.stderr.read()
    killer.join()
    assert worker.wait(60) == -signal.SIGKILL, errors
    assert said[0] == "ready\n", errors
    return "".join(said)


def check_and_read(path: Path, known: Knowledge) -> dict[str, list[int]]:
    """Reopen and check; returns the numbers that are left, by queue, without taking them."""
    left: dict[str, list[int]] = {}
    with pyqstore.open(path, create=False) as store, store.channel() as channel:
        assert store.recovery_report.lost_bytes == 0
        for queue in QUEUES:
            left[queue] = []
            while (message := channel.basic_get(queue)) is not None:
                number, _, padding = message.body.partition(b" ")
                assert padding.strip(b".") == b""
                assert len(message.body) == size_of(int(number))
                left[queue].append(int(number))
    for place, queue in enumerate(QUEUES):
        numbers = left[queue]
        assert numbers == sorted(set(numbers)), f"{queue}: twice, or out of order"
        assert all(number % 3 == place for number in numbers), f"{queue}: in the wrong queue"
        assert all(number <= known.announced for number in numbers), f"{queue}: unpublished"
        missing = {number for number in known.confirmed if number % 3 == place} - set(numbers)
        lost = missing - known.ack_announced
        assert not lost, f"{queue}: {len(lost)} confirmed messages are lost, {min(lost)} first"
        back = known.ack_durable.intersection(numbers)
        assert not back, f"{queue}: {len(back)} messages are back after a durable ack, {min(back)}"
    return left


def size_of(number: int) -> int:
    """The body size of message n, as the worker has it: now and then one for the message store."""
    return 5000 if number % 50 == 0 else 20 + number % 100


@pytest.mark.parametrize("mode", ["single", "batch", "mixed"])
def test_confirmed_messages_survive_a_kill(tmp_path: Path, mode: str) -> None:
    seed = int(os.environ.get("QS_KILL_SEED", random.SystemRandom().randrange(2**32)))
    print(f"QS_KILL_SEED={seed}")
    chance = random.Random(f"{seed} {mode}")
    path = tmp_path / "store"
    known = Knowledge()
    checked = 0
    for cycle in range(CYCLES):
        known.read(run_and_kill(path, known.announced + 1, mode, chance.uniform(0.0, 0.6)))
        if cycle < CYCLES - 1 and chance.random() < 0.3:
            continue  # the next worker recovers what this one left, and nobody closes in between
        left = check_and_read(path, known)
        # What is gone now was acknowledged, or never became durable: it must not come back.
        gone = set(range(checked + 1, known.announced + 1)).difference(*left.values())
        known.ack_durable.update(gone)
        known.ack_announced.update(gone)
        checked = known.announced
    assert known.confirmed, "no worker lived long enough to confirm anything"
