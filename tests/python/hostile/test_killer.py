"""A process is killed at random moments while it works on a store; nothing promised is lost.

QS_KILL_SEED repeats a plan, QS_KILL_SECONDS changes how long it takes; longer: ``./dev soak``.
Each kind of harm that is done by hand between two lives must be found.
"""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import pyqstore

from . import killer
from .report import seed_of

SECONDS = float(os.environ.get("QS_KILL_SECONDS", "40"))
QUEUES = ("plain.0", "plain.1", "lazy", "levels")
Harm = Callable[[pyqstore.Channel, str], None]

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(1200)]


def test_nothing_promised_is_lost_when_a_process_is_killed() -> None:
    report = killer.run(seed_of("QS_KILL_SEED"), SECONDS)
    print(report)
    assert not report.violations, str(report)
    assert report.figures["confirmed"] > 0
    assert report.figures["checks"] > 0


def _with_messages(harm: Harm) -> Callable[[Path], bool]:
    """A plant that waits until there are enough messages that some were surely confirmed."""

    def plant(path: Path) -> bool:
        with pyqstore.open(path, create=False) as store, store.channel() as channel:
            for queue in set(QUEUES).intersection(store.queues()):
                if channel.queue_declare(queue, passive=True).message_count >= 20:
                    harm(channel, queue)
                    return True
        return False

    return plant


def _first(channel: pyqstore.Channel, queue: str) -> pyqstore.Message:
    """The first message that has a body."""
    message = channel.basic_get(queue)
    while message is not None and not message.body:
        message = channel.basic_get(queue)
    assert message is not None
    return message


def _again(channel: pyqstore.Channel, queue: str, message: pyqstore.Message, body: bytes) -> None:
    channel.confirm_select()
    channel.basic_publish("", queue, body, message.properties)
    assert channel.wait_for_confirms()


def lose(channel: pyqstore.Channel, queue: str) -> None:
    channel.queue_purge(queue)


def double(channel: pyqstore.Channel, queue: str) -> None:
    message = _first(channel, queue)
    _again(channel, queue, message, message.body)


def reorder(channel: pyqstore.Channel, queue: str) -> None:
    message = _first(channel, queue)
    message.ack()
    _again(channel, queue, message, message.body)


def change(channel: pyqstore.Channel, queue: str) -> None:
    message = _first(channel, queue)
    message.ack()
    _again(channel, queue, message, message.body[:-1] + bytes([message.body[-1] ^ 1]))


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lose, "LOST"),
        (double, "is there 2 times"),
        (reorder, "comes behind"),
        (change, "body that is not its own"),
    ],
)
def test_killer_finds_harm_done_by_hand(harm: Harm, told: str) -> None:
    report = killer.run(seed_of("QS_KILL_SEED"), 0, _with_messages(harm))
    assert any(told in text for text in report.violations), str(report)


# An older store breaks every kind of promise: which is told first depends on what the lives did,
# and only the first ones are told.  A worker or a look that fails is no find.
GONE_BACK = re.compile(
    r"LOST|gone long since|back after its end was durable|was delivered from \S+ after its end"
    r"|key \S+ is (not )?known, against what was promised|transaction \S+ was committed twice"
    r"|in a transaction that was committed|the queue \S+ is (not )?there"
)


def test_killer_finds_an_older_copy_put_back(tmp_path: Path) -> None:
    older = tmp_path / "older"
    lives = 0

    def plant(path: Path) -> bool:
        nonlocal lives
        lives += 1
        if not older.exists():
            if path.is_dir():
                shutil.copytree(path, older)
            return False
        if lives < 5:
            return False
        shutil.rmtree(path)
        shutil.copytree(older, path)
        return True

    report = killer.run(seed_of("QS_KILL_SEED"), 0, plant)
    assert any(GONE_BACK.search(text) for text in report.violations), str(report)
