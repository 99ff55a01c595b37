"""Shovels and servers that are killed, again and again."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyqstore import Properties
from pyqstore.control.messages import Seen, packed, packs_of
from pyqstore.control.reaching import reach, reach_owner

from ..support import wait_until

KILLS = int(os.environ.get("QS_SHOVEL_KILLS", "20"))
ROUND = 5000
"""Messages that are there before a kill: some are moved, and most are under way then."""
MESSAGES = ROUND * KILLS
PATIENT = pytest.mark.timeout(60 * KILLS + 600)
"""For a test that kills."""

_SHOVEL = """
import json, sys, time
import pyqstore

if (pause := float(sys.argv[4])) > 0:
    from pyqstore.shovelling.kafka_stream_target import KafkaStreamTarget

    commit = KafkaStreamTarget._commit

    def late(target):
        time.sleep(pause)
        commit(target)

    KafkaStreamTarget._commit = late
idle = float(sys.argv[3]) or None
report = pyqstore.shovel(sys.argv[1], sys.argv[2], idle=idle, name="kills")
print(json.dumps(report.to_dict()))
"""


def put(directory: Path, first: int, each: int = ROUND) -> None:
    """Numbers into the store's queue or stream ``a``, when the shovel has it open: else this
    process would, and move them itself."""
    wait_until(lambda: reach_owner(directory, "queues", {}) is not None, 60)
    numbers = range(first, first + each)
    packs = packs_of(Seen(b"%d" % number, Properties(delivery_mode=2)) for number in numbers)
    arguments = {"exchange": "", "key": "a"}
    reach(directory, "publish", arguments, asked=lambda _: packed(next(packs, [])))


def held(directory: Path, queue: str) -> int:
    """Messages that are ready; 0: the shovel does not have the store open yet."""
    report = reach_owner(directory, "queues", {})
    return 0 if report is None else int(report["queues"][queue]["messages_ready"])


def started(source: str, target: str, idle: float = 0, pause: float = 0) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _SHOVEL, source, target, str(idle), str(pause)],
        stdout=subprocess.PIPE,
    )


def kill_again_and_again(
    restart: Callable[[], object] | None,
    source: str,
    target: str,
    feed: Callable[[int], object],
    moved: Callable[[], int],
    each: int = ROUND,
    pause: float = 0,
) -> int:
    """KILLS times, when the first of the messages were moved; then all are.  What is killed is the
    server, by ``restart``, or, None, the shovel.  How many kills hit work under way: ``moved`` says
    how many messages are at the target just before.  ``feed`` adds ``each``.
    ``pause``: seconds before each of Kafka's transactions is committed."""
    seed = int(os.environ.get("QS_KILL_SEED", time.time_ns() % 10**9))
    print(f"QS_KILL_SEED={seed}")
    chosen = random.Random(seed)
    process = started(source, target, pause=pause)
    hits = before = 0
    try:
        for number in range(KILLS):
            feed(number * each)
            wait_until(lambda: moved() > before, 120)  # noqa: B023
            time.sleep(chosen.uniform(0, 0.1))
            now = moved()
            hits += before < now < (number + 1) * each
            before = max(before, now)
            if restart is not None:
                restart()
            assert process.poll() is None
            if restart is None:
                process.kill()
                process.wait()
                process = started(source, target, pause=pause)
        process.kill()
        process.wait()
        process = started(source, target, idle=10)
        out, _ = process.communicate(timeout=600)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
    print(f"{hits} of {KILLS} kills hit work under way; the last shovel: {out.decode().strip()}")
    return hits
