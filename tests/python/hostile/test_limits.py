"""Limits of memory and descriptors: calls fail, stores do not, and nothing is lost.

QS_LIMITS_SEED repeats a run, QS_LIMITS_SECONDS changes how long it takes; longer: ``./dev soak``.
"""

import os
from pathlib import Path

import pytest

import pyqstore

from . import limits
from .limits import Known
from .report import seed_of

SECONDS = float(os.environ.get("QS_LIMITS_SECONDS", "20"))


@pytest.mark.slow
def test_what_was_confirmed_is_there_when_limits_came_and_went() -> None:
    report = limits.run(seed_of("QS_LIMITS_SEED"), SECONDS)
    print(report)
    assert report.violations == []
    for kind in limits.KINDS:
        assert report.figures[f"calls refused for want of {kind}"] > 0


def test_confirmed_message_that_is_gone_is_caught(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("a", durable=True)
        for number in (1, 3):
            channel.basic_publish("", "a", b"%d " % number, pyqstore.Properties(delivery_mode=2))
    assert limits.check(path, Known(confirmed={1, 3})) == []
    assert limits.check(path, Known(confirmed={1, 2, 3})) == ["confirmed and gone: [2]"]
    assert limits.check(path, Known(keys={"k"})) == ["'k' is forgotten"]
    assert limits.check(path, Known(settled={1})) == ["acknowledged for good, and back: [1]"]
