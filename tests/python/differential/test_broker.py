"""The broker that tests start must end with them, however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .broker import is_installed

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_SECONDS = 30
PROGRAM = """
import importlib.util, pathlib, sys, time

sys.path.append(sys.argv[3])  # has benchmarks; behind the installed package
spec = importlib.util.spec_from_file_location("broker", sys.argv[1])
broker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(broker)
broker.Broker(pathlib.Path(sys.argv[2])).start()
print("started", flush=True)
time.sleep(600)
"""


def living(mark: bytes) -> set[str]:
    """Processes whose environment has the mark; one that is dead and not yet reaped has none."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes():
                found.add((entry / "comm").read_text().strip())
        except OSError:
            continue
    return found


@pytest.mark.skipif(
    not is_installed() and os.environ.get("QS_REQUIRE") != "all",
    reason="the package rabbitmq-server is not installed",
)
def test_broker_is_gone_when_its_test_was_killed(tmp_path: Path) -> None:
    module = Path(__file__).with_name("broker.py")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(module), str(tmp_path), str(ROOT)],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"started\n"
        mark = b"RABBITMQ_MNESIA_BASE=" + os.fsencode(tmp_path)
        assert {"beam.smp", "epmd"} <= living(mark)
        process.send_signal(signal.SIGKILL)
        process.wait()
        until = time.monotonic() + PATIENCE_SECONDS
        while living(mark) and time.monotonic() < until:
            time.sleep(0.05)
    assert living(mark) == set()
