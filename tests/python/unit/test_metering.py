"""Metrics for OpenTelemetry: read by the SDK's own reader in memory, and by its exporter of texts
in a process of ``pyqstore serve``."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import pyqstore

from ..support import PERSISTENT

try:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from pyqstore import metering
except ImportError:
    if os.environ.get("QS_REQUIRE") == "all":
        raise
    pytest.skip("opentelemetry-sdk is missing", allow_module_level=True)

SERVES = """
import sys
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
reader = PeriodicExportingMetricReader(ConsoleMetricExporter(), 50)
metrics.set_meter_provider(MeterProvider([reader]))
from pyqstore.cli import main
sys.argv = ["pyqstore", "serve", *sys.argv[1:]]
main()
"""


class Reading:
    """A provider, and what its reader reads."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    def points(self) -> dict[str, list[Any]]:
        """What each metric has, by name."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        metrics = [
            metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]
        assert len({metric.name for metric in metrics}) == len(metrics)
        return {metric.name: list(metric.data.data_points) for metric in metrics}


def numbers(points: list[Any], by: str) -> dict[str, float]:
    return {point.attributes[by]: point.value for point in points}


def test_counters_and_gauges_are_those_of_the_store(tmp_path: Path) -> None:
    reading = Reading()
    with pyqstore.open(tmp_path / "store") as store, store.channel() as channel:
        assert metering.observe(store, meter_provider=reading.provider) is store
        channel.confirm_select()
        channel.queue_declare("q", durable=True)
        for _ in range(3):
            channel.basic_publish("", "q", b"body", PERSISTENT)
        channel.wait_for_confirms()
        assert channel.basic_get("q") is not None
        found, stats = reading.points(), store.stats()
        by_store = {name: numbers(points, "pyqstore.store") for name, points in found.items()}
        published = by_store["pyqstore.messages.published"]
        assert published == {store.path: 3}
        assert by_store["pyqstore.messages.paged_out"] == {store.path: 0}
        assert by_store["pyqstore.fdatasyncs"][store.path] == stats.fdatasyncs > 0
        assert by_store["pyqstore.bytes.journalled"][store.path] == stats.bytes_journalled > 0
        assert by_store["pyqstore.memory"][store.path] > 0
        assert by_store["pyqstore.failed"] == {store.path: 0}
        queue = "messaging.destination.name"
        assert numbers(found["pyqstore.queue.ready"], queue) == {"q": 2}
        assert numbers(found["pyqstore.queue.unacked"], queue) == {"q": 1}
        latencies = {
            point.attributes["quantile"]: point.value for point in found["pyqstore.commit.latency"]
        }
        assert 0 < latencies[0.5] <= latencies[0.99] <= latencies[1.0] < 600


def test_several_stores_are_told_apart_and_leave_when_they_are_closed(tmp_path: Path) -> None:
    reading = Reading()
    with pyqstore.open(tmp_path / "a") as first:
        metering.observe(first, meter_provider=reading.provider)
        with pyqstore.open(tmp_path / "b") as second:
            second.queue("q").put(b"one")
            metering.observe(second, queues=False, meter_provider=reading.provider)
            found = reading.points()
            published = numbers(found["pyqstore.messages.published"], "pyqstore.store")
            assert published == {first.path: 0, second.path: 1}
            assert "pyqstore.queue.ready" not in found  # the first has no queue
        assert list(numbers(reading.points()["pyqstore.commits"], "pyqstore.store")) == [first.path]
        metering.unobserve(first)
        assert reading.points() == {}


def test_a_reader_collects_while_instruments_of_another_provider_are_made(tmp_path: Path) -> None:
    """They wait for each other's locks if a callback takes the one under which they are made."""
    reading = Reading()
    found: list[bool] = []
    with pyqstore.open(tmp_path / "a") as store:
        metering.observe(store, meter_provider=reading.provider)
        collecting = threading.Thread(
            target=lambda: found.append("pyqstore.commits" in reading.points()), daemon=True
        )
        with metering._mutex:
            collecting.start()
            collecting.join(20)
        assert found == [True]


def test_serve_is_observed_where_its_process_has_opentelemetry(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("store", "other")]
    command = [sys.executable, "-c", SERVES, names[0], "--vhost", f"other={names[1]}"]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        missing = {f'"pyqstore.store": "{name}"' for name in names}
        for line in process.stdout:
            missing = {each for each in missing if each not in line}
            if not missing:
                break
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
    assert process.returncode == 0
    assert re.search(r'"name": "pyqstore\.', rest)
