"""Power cuts on ext4 and xfs, over a recorded disk; nothing promised is lost.

QS_CUT_SEED repeats a plan, QS_CUT_SECONDS changes how long it takes; longer: ``./dev soak``.
Threads and the disk are not repeated with it: of a violation QS_CUT_KEEP, a folder, gets the disk
as the cut left it (mount it with ``-o loop``, xfs with ``nouuid``) and what had been told.
A store that confirms without syncing must be found.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ..support import wait_until
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
def test_power_cuts_find_confirms_that_came_without_a_sync(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = seed_of("QS_CUT_SEED")
    monkeypatch.setenv("QS_CUT_KEEP", str(tmp_path / "kept"))
    report = powercut.run(seed, 120, kinds=(kind,), sync="none")
    assert any("LOST" in text for text in report.violations), str(report)
    for kept in (tmp_path / "kept").iterdir():
        assert kept.name.startswith(kind)
        assert (kept / "disk").stat().st_size == powercut.FILE_SYSTEMS[kind].disk_bytes
        assert json.loads((kept / "story.json").read_text())["blamed"]


def _recorders(folder: Path) -> list[str]:
    """The processes that serve disks in ``folder``."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_text()
            if f"{folder}" in command and "/blockrec\0" in command:
                found.append(process.name)
    return found


def test_power_cuts_that_are_killed_leave_no_disk_behind(tmp_path: Path) -> None:
    """The recorder would wait for itself if it were the last to see the mounts."""
    soak = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("soak.py")), "powercut"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: bool(_recorders(tmp_path)), 120)
        time.sleep(2)  # a file system is mounted by then, and a worker is at work
    finally:
        soak.kill()
        soak.wait()
    wait_until(lambda: not _recorders(tmp_path), 120)
