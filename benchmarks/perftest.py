"""Hold RabbitMQ's client of `pyqstore bench rivals` against PerfTest, on one server, in turn.

    python benchmarks/perftest.py [--directory DIR] [--rounds N] [--seconds S]

One producer, 1000 unconfirmed, persistent messages of 100 B, no consumer: messages a second, the
median over the rounds with the least and the most, and the median ratio of a round, ours over
PerfTest's.  Needs what the rival needs; Maven gets PerfTest.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

from pyqstore.bench.rivals import jars
from pyqstore.bench.rivals.contract import OUTSTANDING
from pyqstore.bench.rivals.java_client import find_java
from pyqstore.bench.rivals.known import known
from pyqstore.bench.rivals.rabbitmq import RabbitMq

POM = Path(__file__).parent / "perftest.pom.xml"
BODY_BYTES = 100
WARM_SECONDS = 5
CHUNK_SECONDS = 0.4  # of a round in the benchmark
_RATE = re.compile(r"time ([\d.]+) s, .*confirmed: ([\d.]+) msg/s")


def perftest(rival: RabbitMq, seconds: int) -> float:
    """The median of its rates for each second."""
    declared = {**rival.queue_arguments, "x-expires": 1000 * (WARM_SECONDS + seconds + 10)}
    command = [str(find_java()), "-cp", str(jars.folder(POM) / "*"), "com.rabbitmq.perf.PerfTest"]
    command += ["--uri", f"amqp://127.0.0.1:{rival.port}", "--time", str(WARM_SECONDS + seconds)]
    command += ["--producers", "1", "--consumers", "0", "--confirm", str(OUTSTANDING)]
    command += ["--size", str(BODY_BYTES), "--flag", "persistent", "--auto-delete", "false"]
    command += ["--queue", f"perftest-{time.monotonic_ns()}"]
    command += ["--queue-args", ",".join(f"{name}={value}" for name, value in declared.items())]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rates = [(float(second), float(rate)) for second, rate in _RATE.findall(told)]
    if len(rates) < WARM_SECONDS + 2:
        raise RuntimeError(f"PerfTest said no rates:\n{told}")
    return median(rate for second, rate in rates[:-1] if second > WARM_SECONDS)


def ours(rival: RabbitMq, seconds: int) -> float:
    """The median of rounds as the benchmark's, and as many messages received again."""
    bodies = [random.randbytes(BODY_BYTES) for _ in range(1000)]
    rates: list[float] = []
    start, published = time.monotonic(), 0
    while not rates or time.monotonic() - start < WARM_SECONDS + seconds:
        count = round(rates[-1] * CHUNK_SECONDS) if rates else OUTSTANDING
        many = (bodies * (count // len(bodies) + 1))[:count]
        begin = rival.clock()
        rival.publish_pipelined(many)
        rates.append(count / (rival.clock() - begin))
        published += count
    rival.consume(published)
    return median(rates[len(rates) * WARM_SECONDS // (WARM_SECONDS + seconds) :])


def compare(rival: RabbitMq, directory: Path, rounds: int, seconds: int) -> None:
    """Print both over the rounds."""
    directory.mkdir()
    try:
        rival.start(directory)
        pairs = [(ours(rival, seconds), perftest(rival, seconds)) for _ in range(rounds)]
    finally:
        rival.stop()
    for name, rates in zip(("ours", "PerfTest"), zip(*pairs, strict=True), strict=True):
        spread = f"{median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"
        print(f"{rival.name}, {name}: {spread} messages/s")
    print(f"{rival.name}: ratio {median(mine / theirs for mine, theirs in pairs):.2f}", flush=True)


def main() -> None:
    """All kinds of queues, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=10)
    given = parser.parse_args()
    jars.fetch(POM)
    with tempfile.TemporaryDirectory(prefix="perftest-", dir=given.directory) as own:
        for place, rival in enumerate(known().values()):
            if isinstance(rival, RabbitMq):
                if (why := rival.missing()) is not None:
                    raise SystemExit(f"{rival.name}: {why}")
                compare(rival, Path(own).resolve() / str(place), given.rounds, given.seconds)


if __name__ == "__main__":
    main()
