"""The API fuzzer finds what is planted, and nothing in a new seed.

QS_API_SEED repeats a run, QS_API_SECONDS changes how long it takes; longer: ``./dev soak``.
"""

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pyqstore

from . import api, watched
from .apart import run_apart
from .api import run_case
from .api.life import Life
from .api.values import KEPT
from .report import seed_of
from .watched import run_watched

SECONDS = float(os.environ.get("QS_API_SECONDS", "20"))
Verb = Callable[..., Any]


@pytest.mark.slow
def test_calls_by_chance_do_what_is_documented() -> None:
    run_apart("api", seed_of("QS_API_SEED"), SECONDS)


def lives(root: Path, count: int = 3) -> str:
    """What the first lives of a seed find, in this process."""
    outcomes = (run_case(root, 1, number) for number in range(count))
    return "\n".join(text for outcome in outcomes for text in outcome.violations)


def test_exception_that_nothing_documents_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def queues(store: pyqstore.Store) -> list[str]:
        return [{}["queues"]]

    monkeypatch.setattr(pyqstore.Store, "queues", queues)
    life = Life(tmp_path, random.Random(1))
    life.open()
    monkeypatch.setattr(Life, "choose", lambda life: life.method(life.store, "queues"))
    life.step()
    assert life.outcome.violations == ["Store.queues(, {}): KeyError: 'queues'"]
    monkeypatch.undo()
    life.end()


def test_confirmed_message_that_is_gone_is_caught(tmp_path: Path) -> None:
    life = Life(tmp_path, random.Random(1))
    life.open()
    for _ in range(5):
        life.keep()
    with life.store.channel() as channel:
        channel.basic_get(KEPT, auto_ack=True)
    life.end()
    assert "of 5 confirmed messages there are [1, 2, 3, 4]" in "\n".join(life.outcome.violations)


def test_number_below_zero_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pyqstore.Store.stats
    monkeypatch.setattr(pyqstore.Store, "stats", lambda store: replace(whole(store), commits=-1))
    assert "numbers below zero: {'commits': -1}" in lives(tmp_path)


def test_crash_in_a_call_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyqstore.Store, "exchanges", lambda store: os.abort())
    outcomes = dict(run_watched(lambda case: run_case(tmp_path, 1, case), 3600, most=12))
    said = [text for outcome in outcomes.values() for text in outcome.violations]
    assert any("the process ended with SIGABRT" in text for text in said)


def test_descriptor_that_is_left_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "CALLS", 20)
    monkeypatch.setattr(watched, "SETTLED", 10)
    kept = []

    def checkpoint(store: pyqstore.Store) -> None:
        kept.append(os.open("/dev/null", os.O_RDONLY))

    def work(case: int) -> Any:
        if case > 15:
            monkeypatch.setattr(pyqstore.Store, "checkpoint", checkpoint)
        return run_case(tmp_path, 1, case)

    outcomes = dict(run_watched(work, 3600, most=40))
    said = [text for outcome in outcomes.values() for text in outcome.violations]
    assert any("left behind: descriptors ['" in text for text in said)


def test_forked_child_that_fails_is_told(tmp_path: Path) -> None:
    life = Life(tmp_path, random.Random(1))
    life.open()

    def step() -> None:
        raise SystemExit(3)

    life.step = step  # type: ignore[method-assign]
    life.calls_in_a_fork()
    assert life.outcome.violations == ["a forked child ended with 1"]
    life.end()
