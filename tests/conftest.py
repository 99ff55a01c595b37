"""Which tests the gate leaves to the nightly tier, and what became of each, for tools/stages.py."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

# Folders and files whose tests need a server, a disk of their own, or minutes.
NIGHTLY = (
    "tests/python/differential/",
    "tests/python/foreign/",
    "tests/python/hostile/",
    "tests/python/limits/",
    "tests/python/page/",
    "tests/python/spark/",
    "tests/python/unit/test_bench",
)
RIVALS = "tests/python/unit/test_bench"
# Marks of tests that belong there as well.
NIGHTLY_MARKS = ("slow", "clock", "foreign")
# Tests that look for lost, doubled or changed messages: no second try for them.
EXACT = (
    "tests/format/",
    "tests/python/crash/",
    "tests/python/hostile/",
    "tests/python/model/",
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files whose tests all are nightly where none of those is wanted: much is imported
    for them."""
    if config.option.markexpr != "not nightly" or collection_path.suffix != ".py":
        return None
    path = collection_path.relative_to(config.rootpath).as_posix()
    if not path.startswith(NIGHTLY) or "mark.gate" in collection_path.read_text("utf-8"):
        return None
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is nightly, and note what may be tried again."""
    for item in items:
        path = item.nodeid
        marks = {mark.name for mark in item.iter_markers()}
        if path.startswith(RIVALS):
            item.add_marker("rivals")
        if (path.startswith(NIGHTLY) and "gate" not in marks) or marks & {*NIGHTLY_MARKS}:
            item.add_marker("nightly")
        if not path.startswith(EXACT) and "crash" not in marks:
            item.user_properties.append(("again", True))
    if order := os.environ.get("QS_ORDER"):  # the same in each process
        random.Random(order).shuffle(items)


class Outcomes:
    """Writes a line for each test, as tools/stages.py wants them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(report.nodeid, "failed", 0.0, report.longreprtext, again=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid
        self._seconds[name] = self._seconds.get(name, 0.0) + report.duration
        if report.failed:
            self._fail(name, report)
        elif report.skipped:
            self._write(name, "skipped", self._seconds[name])
            self._failed.add(name)
        elif report.when == "teardown" and name not in self._failed:
            self._write(name, "passed", self._seconds[name])

    def _fail(self, name: str, report: pytest.TestReport) -> None:
        if name not in self._failed:
            # The report of a worker that died has no properties.
            again = ("again", True) in map(tuple, getattr(report, "user_properties", ()))
            self._write(name, "failed", self._seconds[name], report.longreprtext, again=again)
        self._failed.add(name)

    def _write(
        self, name: str, outcome: str, seconds: float, text: str = "", *, again: bool = False
    ) -> None:
        line: dict[str, Any] = {"name": name, "outcome": outcome, "seconds": round(seconds, 3)}
        if outcome == "failed":
            line |= {"text": text[-20000:], "again": again}
        with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(json.dumps(line) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    path = os.environ.pop("QS_OUTCOMES", None)  # not for what tests start
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcomes(Path(path)), "outcomes")
