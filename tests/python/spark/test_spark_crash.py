"""A commit that is killed: repeated under its key, its rows are there exactly once."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_udfs import sink
from spark_udfs.options import WriteOptions
from spark_udfs.staging import StagedFile

from .planting import PLANTING

pytestmark = pytest.mark.crash
COLUMNS = [("body", "string"), ("routing_key", "string")]
ROWS = 20_000
ROUNDS = 16
Batches = Callable[[range], pa.RecordBatch]

# Says "go", commits, says "done"; first plants a kill before or after a function, if told to.
_CHILD = f"""{PLANTING}
import pyarrow.ipc
from spark_udfs import sink, staging

with open(sys.argv[1], "rb") as file:
    job, files = pickle.load(file)
exec(sys.argv[2])
print("go", flush=True)
sink.commit(job, files)
print("done", flush=True)
"""

_PLANTED = {
    "opened": "after(pyqstore, 'open')",
    "known": "after(pyqstore.Store, 'transaction_known')",
    "adopting": "before(pyqstore.Store, 'adopt')",
    "committed": "after(pyqstore.Store, 'adopt')",
    "half swept": "before(staging, '_remove_empty')",
    "swept": "after(staging.StagingFolder, 'sweep')",
    "closed": "after(pyqstore.Store, 'close')",
}
_COMMITTED = ("committed", "half swept", "swept", "closed")


class Commit:
    """A commit in a process of its own, which kills itself or is killed from here."""

    def __init__(
        self, job: sink.Job, files: list[StagedFile], folder: Path, plant: str = ""
    ) -> None:
        told = folder / "job.pickle"
        told.write_bytes(pickle.dumps((job, files)))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(told), plant], stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"go\n"

    def kill_after(self, seconds: float) -> bool:
        """Whether the commit had not returned by then."""
        time.sleep(seconds)
        self._process.kill()
        return not self.wait()

    def wait(self) -> bool:
        """Whether the commit returned."""
        said, _ = self._process.communicate(timeout=60)
        assert self._process.returncode in (0, -signal.SIGKILL)
        return said == b"done\n"


@pytest.fixture
def staged(disk: Any, batch_of: Batches) -> Callable[..., tuple[sink.Job, list[StagedFile]]]:
    """staged(name, key, first=0): a job and its files, ROWS rows from first on."""

    def make(name: str, key: str, first: int = 0) -> tuple[sink.Job, list[StagedFile]]:
        options = WriteOptions.parse({"path": str(disk.path), "exchange": "events"})
        job = sink.prepare(options, COLUMNS, job=name, key=key)
        half = first + ROWS // 2
        parts = [range(first, half), range(half, first + ROWS)]
        return job, [
            sink.stage(
                job,
                [batch_of(range(n, min(n + 1000, part.stop))) for n in part[::1000]],
                partition=number,
                attempt=number,
            )
            for number, part in enumerate(parts)
        ]

    return make


@pytest.mark.parametrize("moment", _PLANTED)
def test_commit_killed_at_each_step_is_repeated_once(
    disk: Any, staged: Callable[..., Any], tmp_path: Path, moment: str
) -> None:
    job, files = staged("job", "key")
    assert not Commit(job, files, tmp_path, _PLANTED[moment]).wait()
    assert disk.knows("key") is (moment in _COMMITTED)
    assert disk.ready() == (ROWS if moment in _COMMITTED else 0)
    assert sink.commit(job, files).committed is (moment not in _COMMITTED)
    assert disk.numbers() == list(range(ROWS))
    assert disk.numbers("odd") == list(range(1, ROWS, 2))
    assert disk.staged == []


@pytest.mark.slow
def test_commit_killed_at_random_moments_is_repeated_once(
    disk: Any, staged: Callable[..., Any], tmp_path: Path
) -> None:
    chosen = random.Random(20130101)
    job, files = staged("whole", "whole")
    undisturbed = Commit(job, files, tmp_path)
    began = time.monotonic()
    assert undisturbed.wait()
    whole_s = time.monotonic() - began
    done = {"killed": 0, "committed": 0}
    for round_ in range(1, ROUNDS):
        key, first = f"round {round_}", round_ * ROWS
        job, files = staged(f"first-{round_}", key, first)
        done["killed"] += Commit(job, files, tmp_path).kill_after(chosen.uniform(0, whole_s))
        known = disk.knows(key)
        done["committed"] += known
        if round_ % 2:
            # A user's new job, after Spark's abort.
            sink.abort(job)
            job, files = staged(f"again-{round_}", key, first)
            assert job.repeated is known
        assert sink.commit(job, files).committed is not known
    assert disk.numbers() == list(range(ROUNDS * ROWS)), done
    assert disk.numbers("odd") == list(range(1, ROUNDS * ROWS, 2)), done
    assert disk.staged == []
    assert done["killed"] > 0


@pytest.mark.spark
@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.2])
def test_job_whose_commit_worker_is_killed_is_repeated_once(
    disk: Any, numbered: Callable[..., Any], delay_s: float
) -> None:
    over = threading.Event()
    killed: list[int] = []

    def kill_committer() -> None:
        while not over.is_set() and not killed:
            owner = (disk.path / "LOCK").read_text().strip() or "0"
            with suppress(OSError):
                if "commit_data_source_write" in Path(f"/proc/{owner}/cmdline").read_text():
                    time.sleep(delay_s)
                    os.kill(int(owner), signal.SIGKILL)
                    killed.append(int(owner))
            time.sleep(0.001)

    watcher = threading.Thread(target=kill_committer)
    watcher.start()
    try:
        with suppress(Exception):  # a kill may come after the last step
            disk.write(numbered(100_000), txnid="once")
    finally:
        over.set()
        watcher.join()
    assert killed
    assert disk.ready() in (0, 100_000)
    disk.write(numbered(100_000), txnid="once")
    assert disk.numbers() == list(range(100_000))
    assert disk.staged == []
