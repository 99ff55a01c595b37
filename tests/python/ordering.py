"""In which order processes that share the tests take the files: what lasts long begins first.

A file that lasts minutes and begins last keeps one process busy while the others have ended.
"""

from __future__ import annotations

import pytest

# What a test may last by its marks, in seconds: only the order of files depends on it.
SLOW_S = 20.0
SPARK_S = 4.0
OTHER_S = 0.5


def likely_s(item: pytest.Item) -> float:
    """About how long a test lasts: a tenth of a time-out of its own, or by what it is."""
    limit = item.get_closest_marker("timeout")
    if limit is not None and limit.args:
        return float(limit.args[0]) / 10
    if item.get_closest_marker("slow") is not None:
        return SLOW_S
    return SPARK_S if item.get_closest_marker("spark") is not None else OTHER_S


def longest_first(items: list[pytest.Item]) -> None:
    """Sort the files by what their tests last together; within a file the order stays."""
    lasts: dict[str, float] = {}
    for item in items:
        file = item.nodeid.partition("::")[0]
        lasts[file] = lasts.get(file, 0.0) + likely_s(item)
    items.sort(key=lambda item: -lasts[item.nodeid.partition("::")[0]])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only where several processes share them: a run of one process keeps the usual order."""
    if hasattr(config, "workerinput"):
        longest_first(items)
