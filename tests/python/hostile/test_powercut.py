"""Power cuts on ext4 and xfs, over a recorded disk; nothing promised is lost.

QS_CUT_SEED repeats a plan, QS_CUT_SECONDS changes how long it takes; longer: ``./dev soak``.
A store that confirms without syncing must be found.
"""

import os
import random

import pytest

from . import powercut
from .report import seed_of

SECONDS = float(os.environ.get("QS_CUT_SECONDS", "50"))

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(autouse=True)
def _have_disks() -> None:
    if what := powercut.missing():
        missing = pytest.fail if os.environ.get("QS_REQUIRE") == "all" else pytest.skip
        missing(f"power cuts need {what}")


def test_nothing_promised_is_lost_in_a_power_cut() -> None:
    report = powercut.run(seed_of("QS_CUT_SEED"), SECONDS)
    print(report)
    assert not report.violations, str(report)
    for kind in ("ext4", "xfs"):
        assert report.figures[f"cuts ({kind})"] > 0
        assert report.figures[f"confirmed at the cuts ({kind})"] > 0


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_power_cuts_find_confirms_that_came_without_a_sync(kind: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    report = powercut.run(seed, 120, kinds=(kind,), sync="none")
    assert any("LOST" in text for text in report.violations), str(report)
