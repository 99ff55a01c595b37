"""A process is killed while it publishes large batches to a stream; what it was told is there.

QS_KILL_SEED repeats the plan; the moments depend on the scheduler, too.
"""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pyqstore

from .report import seed_of

LIVES = 12
ROWS = 700  # of 150 bytes: a batch that is written directly

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(600)]

WORKER = f"""
import sys
import pyarrow as pa
import pyqstore
number = int(sys.argv[2])
pa.table({{"body": pa.array([b""], pa.binary())}})  # the first one imports for long
with pyqstore.open(sys.argv[1], checkpoint_bytes=sys.argv[3], journal_file_bytes="1MiB") as store:
    stream = store.stream("events", segment_bytes=1_000_000)
    print("open", flush=True)
    while True:
        rows = [b"%d %d" % (number, row) + b"." * 150 for row in range({ROWS})]
        stream.publish_batch(pa.table({{"body": pa.array(rows, pa.binary())}}))
        if number % 3 == 0:
            stream.publish(b"small %d" % number)
        if number % 2 == 0:
            store.sync()
            print(number, flush=True)
        number += 1
"""


def whole_batches(bodies: list[bytes]) -> int:
    """How many there are, each whole and in order; a single message behind every third."""
    number, at = 0, 0
    while at < len(bodies):
        wanted = [b"%d %d" % (number, row) + b"." * 150 for row in range(ROWS)]
        assert bodies[at : at + ROWS] == wanted
        at += ROWS
        if number % 3 == 0 and at < len(bodies):
            assert bodies[at] == b"small %d" % number
            at += 1
        number += 1
    return number


def live(path: Path, number: int, chance: random.Random) -> int:
    """Publish from this batch on, until the end; the last one that was told of."""
    checkpoint_bytes = chance.choice(("64KiB", "1MiB", "256MiB"))
    command = [sys.executable, "-c", WORKER, str(path), str(number), checkpoint_bytes]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"open\n"
        time.sleep(chance.uniform(0.02, 0.6))
        worker.kill()
        told = worker.stdout.read().split(b"\n")[:-1]
    return int(told[-1]) if told else number - 1


def test_large_batches_of_a_killed_process_are_whole_and_there(tmp_path: Path) -> None:
    path = tmp_path / "store"
    chance = random.Random(seed_of("QS_KILL_SEED"))
    number = 0
    for _ in range(LIVES):
        told = live(path, number, chance)
        assert pyqstore.verify(path).damages == 0
        with pyqstore.open(path) as store:
            stream = store.stream("events")
            bodies = stream.read().read_all()["body"].to_pylist()
            found = whole_batches(bodies)
            assert found > told
            if (found - 1) % 3 == 0 and not bodies[-1].startswith(b"small"):
                stream.publish(b"small %d" % (found - 1))
        number = found
    assert number > 12
