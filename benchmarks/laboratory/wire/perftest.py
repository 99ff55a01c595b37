"""PerfTest, RabbitMQ's own load generator: a process of its own for each run."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from statistics import median

from ..rivals import jars, java_client

OUTSTANDING = 1000
PREFETCH = 200
BODY_BYTES = 100
_CLASS = "com.rabbitmq.perf.PerfTest"
_LEAST_RATES = 2
_START_SECONDS = 3  # in which nothing is told, where the leader of a queue is chosen first
_SPARE_SECONDS = 60
_RATE = r"time ([\d.]+) s, .*{}: ([\d.]+) msg/s"
_numbers = itertools.count(1)


def missing() -> str | None:
    """How to get what is not there."""
    return java_client.missing(jars.PERFTEST_POM)


def run(uri: str, arguments: str, consumers: int, warm_seconds: int, seconds: int) -> float:
    """Messages a second, the median over seconds: confirmed, or with a consumer received.

    One producer of persistent messages, so many unconfirmed; a durable queue of its own, with
    arguments (NAME=VALUE, with commas between) or without, that goes when nobody has used it for a
    minute.
    """
    total = _START_SECONDS + warm_seconds + seconds
    declared = [f"x-expires={(total + _SPARE_SECONDS) * 1000}", *filter(None, [arguments])]
    command = [*java_client.java(jars.PERFTEST_POM), _CLASS, "--uri", uri, "--time", str(total)]
    command += ["--producers", "1", "--consumers", str(consumers), "--confirm", str(OUTSTANDING)]
    command += ["--size", str(BODY_BYTES), "--flag", "persistent", "--auto-delete", "false"]
    command += ["--qos", str(PREFETCH), "--queue", f"perftest-{os.getpid()}-{next(_numbers)}"]
    command += ["--queue-args", ",".join(declared)]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=total + _SPARE_SECONDS,
    )
    return rate_of(done.stdout + done.stderr, consumers, warm_seconds)


def rate_of(told: str, consumers: int, warm_seconds: float) -> float:
    """The median of the rates for each second, but for the first ones and the last."""
    metric = "received" if consumers else "confirmed"
    found = [(float(at), float(rate)) for at, rate in re.findall(_RATE.format(metric), told)]
    rates = [rate for at, rate in found[:-1] if at > warm_seconds]
    if len(rates) < _LEAST_RATES:
        raise RuntimeError(f"PerfTest said no rates:\n{told}")
    return median(rates)
