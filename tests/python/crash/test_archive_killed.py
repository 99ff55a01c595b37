"""A process whose store is archived is killed at work: what is restored is what it had published up
to some moment, and has all that its archive had said was archived.  A restore that is killed leaves
no store."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pyqstore
from pyqstore.archives import bases, restore
from pyqstore.backups import Target

from ..archiving import held

pytestmark = pytest.mark.crash

KILLS = [4, pytest.param(50, marks=pytest.mark.slow)]
SEED = int(os.environ.get("QS_ARCHIVE_SEED", "1"))
SECONDS = float(os.environ.get("QS_ARCHIVE_SECONDS", "0.2"))

# A line for each message that is durable, and for the last one that is archived.
AT_WORK = """
import sys, threading, time
import pyqstore
from pyqstore.archives import Choices, archive
from pyqstore.backups import Target

directory, place, first, seconds = sys.argv[1:]
store = pyqstore.open(directory, journal_file_bytes="64KiB", message_file_bytes="64KiB")
channel = store.channel()
channel.queue_declare("q", durable=True)
lsns = []
before = 0

def say(what, number):  # in one piece: there are two threads
    sys.stdout.write(f"{what} {number} {time.time()}\\n")
    sys.stdout.flush()

def look(report):  # it was made since the last one
    global before
    sent = before - report.lag_bytes
    before = store._durable_lsn()
    if report.restorable:
        for number, lsn in reversed(lsns):
            if lsn <= sent:
                say("archived", number)
                break

def run():
    archive(store, Target(place, create=True), threading.Event(),
            Choices(part_seconds=float(seconds)), look)

threading.Thread(target=run, daemon=True).start()
number = int(first)
while True:
    body = b"%d " % number + bytes(20_000 if number % 7 == 0 else 100)
    channel.basic_publish("", "q", body, pyqstore.Properties(delivery_mode=2))
    store.sync()
    lsns.append((number, store._durable_lsn()))
    say("durable", number)
    if number % 50 == 0:
        store.checkpoint()
    number += 1
    time.sleep(0.002)
"""

RESTORING = """
import sys
from pyqstore.archives import restore
from pyqstore.backups import Target

restore(Target(sys.argv[1]), sys.argv[2], None, lambda done, total: print(done, flush=True))
"""


def killed(directory: Path, place: str, first: int, seconds: float) -> tuple[int, dict[int, float]]:
    """The last message that was archived, and when each was durable."""
    arguments = map(str, (directory, place, first, SECONDS))
    process = subprocess.Popen(
        [sys.executable, "-c", AT_WORK, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    archived, durable, end = -1, {}, None
    for line in process.stdout:
        if not line.endswith("\n"):
            break  # cut off
        word, number, when = line.split()
        if word == "archived":
            archived = int(number)
            end = end or time.monotonic() + seconds
        else:
            durable[int(number)] = float(when)
        if end is not None and time.monotonic() > end:
            process.kill()
    process.wait()
    return archived, durable


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", KILLS)
def test_restored_store_has_what_was_archived_when_the_process_was_killed(
    tmp_path: Path, kills: int
) -> None:
    chosen = random.Random(SEED)
    target = Target(str(tmp_path / "target"), create=True)
    first, lost = 0, []
    for kill in range(kills):
        path = tmp_path / f"again-{kill}"
        archived, durable = killed(
            tmp_path / "store", target.place, first, chosen.uniform(0.1, 4 * SECONDS)
        )
        restored = restore(target, path)
        numbers = [int(body.split(b" ")[0]) for body in held(path)["q"]]
        assert numbers == list(range(len(numbers)))
        assert archived < len(numbers) <= max(durable) + 2
        assert restored.verification.damages == 0
        if len(numbers) in durable:
            lost.append(max(durable.values()) - durable[len(numbers)])
        with pyqstore.open(tmp_path / "store") as store:
            first = store.queue_status("q").messages_ready
    assert len(bases(target)) >= kills
    print(f"lost at most {max(lost, default=0):.2f} s of {kills} kills")


def test_restore_that_is_killed_leaves_no_store(tmp_path: Path) -> None:
    target = Target(str(tmp_path / "target"), create=True)
    killed(tmp_path / "store", target.place, 0, 1.0)
    arguments = [sys.executable, "-c", RESTORING, target.place, str(tmp_path / "again")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "again").exists()
    restore(target, tmp_path / "again")
    assert held(tmp_path / "again")["q"]
