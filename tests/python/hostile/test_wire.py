"""A server is killed under its clients; what they heard holds, and harm done by hand is found.

QS_WIRE_SEED repeats a plan, QS_WIRE_SECONDS changes how long it takes; longer: ``./dev soak``.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import pyqstore

from . import wire
from .report import seed_of

SECONDS = float(os.environ.get("QS_WIRE_SECONDS", "30"))
Harm = Callable[[pyqstore.Channel, wire.Known], bool]

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(1200)]


def test_nothing_that_clients_heard_is_lost_when_their_server_is_killed() -> None:
    report = wire.run(seed_of("QS_WIRE_SEED"), SECONDS)
    print(report)
    assert not report.violations, str(report)
    assert report.figures["confirms and commits"] > 0


def lose(channel: pyqstore.Channel, known: wire.Known) -> bool:
    return bool(known.sure - known.acked - known.gone) and channel.queue_purge(wire.QUEUE) > 0


def double(channel: pyqstore.Channel, known: wire.Known) -> bool:
    message = channel.basic_get(wire.QUEUE)
    if message is None:
        return False
    channel.basic_publish("", wire.QUEUE, message.body, message.properties)
    return True


def bring_back(channel: pyqstore.Channel, known: wire.Known) -> bool:
    if not known.gone:
        return False
    channel.basic_publish("", wire.QUEUE, min(known.gone), pyqstore.Properties(delivery_mode=2))
    return True


@pytest.mark.parametrize(
    ("harm", "told"), [(lose, "LOST"), (double, "is there 2 times"), (bring_back, "is back")]
)
def test_harm_done_by_hand_to_the_store_of_a_server_is_found(harm: Harm, told: str) -> None:
    def plant(path: Path, known: wire.Known) -> bool:
        with pyqstore.open(path) as store, store.channel() as channel:
            return wire.QUEUE in store.queues() and harm(channel, known)

    report = wire.run(seed_of("QS_WIRE_SEED"), 0, plant)
    assert any(told in text for text in report.violations), str(report)
