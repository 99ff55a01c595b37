"""Hold RabbitMQ's client of `pyqstore bench rivals` against PerfTest, on one server, in turn.

    python -m benchmarks.laboratory.perftest [--directory DIR] [--rounds N] [--seconds S]

One producer, 1000 unconfirmed, persistent messages of 100 B, no consumer: messages a second, the
median over the rounds with the least and the most, and the median ratio of a round, ours over
PerfTest's.  Needs what the rival needs; Maven gets PerfTest.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from statistics import median

from .rivals import jars
from .rivals.contract import OUTSTANDING
from .rivals.known import known
from .rivals.rabbitmq import RabbitMq
from .rivals.server import LOOPBACK
from .wire import perftest

WARM_SECONDS = 5
CHUNK_SECONDS = 0.4  # of a round in the benchmark


def ours(rival: RabbitMq, seconds: int) -> float:
    """The median of rounds as the benchmark's, and as many messages received again."""
    bodies = [random.randbytes(perftest.BODY_BYTES) for _ in range(1000)]
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


def theirs(rival: RabbitMq, seconds: int) -> float:
    """PerfTest's, on a queue with the same arguments."""
    arguments = ",".join(f"{name}={value}" for name, value in rival.queue_arguments.items())
    uri = f"amqp://{LOOPBACK}:{rival.port}"
    return perftest.run(uri, arguments, 0, WARM_SECONDS, seconds)


def compare(rival: RabbitMq, directory: Path, rounds: int, seconds: int) -> None:
    """Print both over the rounds."""
    directory.mkdir()
    try:
        rival.start(directory)
        pairs = [(ours(rival, seconds), theirs(rival, seconds)) for _ in range(rounds)]
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
    jars.fetch(jars.PERFTEST_POM)
    with tempfile.TemporaryDirectory(prefix="perftest-", dir=given.directory) as own:
        for place, rival in enumerate(known().values()):
            if isinstance(rival, RabbitMq) and not rival.is_stream:
                if (why := rival.missing()) is not None:
                    raise SystemExit(f"{rival.name}: {why}")
                compare(rival, Path(own).resolve() / str(place), given.rounds, given.seconds)


if __name__ == "__main__":
    main()
