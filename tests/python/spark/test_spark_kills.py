"""Rounds of jobs and queries in which a process is killed at a random moment.

QS_SPARK_SEED repeats a plan, QS_SPARK_ROUNDS says how many rounds; longer: ``./dev soak spark``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import pyqstore

from ..hostile.report import Report, seed_of
from ..hostile.spark import ROUNDS as ROUNDS_OF_ONE
from ..hostile.spark import VICTIMS, Place, rounds_of, victims
from ..support import get

ROUNDS = int(os.environ.get("QS_SPARK_ROUNDS", str(ROUNDS_OF_ONE)))
ROWS = 100

pytestmark = pytest.mark.crash


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600 + 60 * ROUNDS)
def test_rows_are_there_once_whatever_process_is_killed(tmp_path: Path) -> None:
    report = Report()
    rounds_of(seed_of("QS_SPARK_SEED"), ROUNDS, report, tmp_path)
    print(report)
    assert not report.violations, str(report)
    assert report.figures["rounds"] == ROUNDS
    killed = sum(report.figures.get(f"{victim} killed", 0) for victim in VICTIMS)
    assert killed >= ROUNDS // 2, str(report)


def test_each_process_is_killed_as_often_as_the_others() -> None:
    for seed in range(10):
        plan = victims(random.Random(seed), 3 * len(VICTIMS))
        assert {victim: plan.count(victim) for victim in plan} == dict.fromkeys(VICTIMS, 3)
        assert plan[:6] == ["executor"] * 3 + ["driver"] * 3


def lose(channel: pyqstore.Channel) -> None:
    message = get(channel, "copies")
    message.ack()


def double(channel: pyqstore.Channel) -> None:
    channel.basic_publish("", "copies", b"5")


def reorder(channel: pyqstore.Channel) -> None:
    message = get(channel, "odd")
    message.ack()
    channel.basic_publish("", "odd", message.body)


def leave(channel: pyqstore.Channel) -> None:
    channel.basic_publish("", "all", b"5")


def declare(channel: pyqstore.Channel) -> None:
    channel.queue_declare("claimed", durable=True)


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (None, []),
        (lose, ["near: queue copies: 99 rows where 100 were written, 1 lost (from [0] on)"]),
        (double, ["near: queue copies: 101 rows where 100 were written, 0 lost"]),
        (reorder, ["near: queue odd: 50 rows where 50 were written, 0 lost"]),
        (leave, ["near: queue all: 1 rows where 0 were written"]),
        (declare, ["near: queues are ['all', 'claimed', 'copies', 'odd']"]),
    ],
)
def test_what_is_not_there_once_is_found(
    tmp_path: Path, harm: Callable[[pyqstore.Channel], None] | None, told: list[str]
) -> None:
    place = Place(tmp_path / "near", served=False)
    place.numbers += range(ROWS)
    with pyqstore.open(place.path) as store, store.channel() as channel:
        for number in range(ROWS):
            channel.basic_publish(
                "", "copies", str(number).encode(), pyqstore.Properties(delivery_mode=2)
            )
            if number % 2:
                channel.basic_publish(
                    "", "odd", str(number).encode(), pyqstore.Properties(delivery_mode=2)
                )
    with pyqstore.open(place.path) as store, store.channel() as channel:
        if harm is not None:
            harm(channel)
        found = place.broken_in(store)
    assert len(found) == len(told)
    assert all(text.startswith(words) for text, words in zip(found, told, strict=True)), found
