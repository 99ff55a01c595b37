"""Spark's jobs and queries lose a process at a random moment; each row is there once, each way.

Two stores, one that Spark's processes open by its path and one behind a server, get numbers from
jobs, and queries move them on into another queue.  What is killed by SIGKILL: a Python process of
Spark's, the one that commits, the one that owns the store, an executor, the driver, the server.  A
job that failed is repeated under its key, a query from its checkpoint.  A server is started again
while the job goes on, or once it has failed.
"""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

import pyqstore

from ..serving import Served
from ..spark_home import light_home
from .report import Report

ROWS = 2000
PEACEFUL = 3  # tries of a job, when it was disturbed often enough
TWICE, TWICE_JAVA = 0.25, 0.1  # of the jobs are disturbed in their repeat, too
DOWN = 0.125  # of the servers that were killed stay down until the job has ended
ROUNDS = 20  # of one pair of stores
PATIENCE_S = 900.0
JAVA = ("executor", "driver")
VICTIMS = ("executor", "worker", "committer", "owner", "server", "driver")
MASTERS = {"executor": "local-cluster[2,1,512]", "driver": ""}  # "": as it is
CLUSTER = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData",
    "spark.task.maxFailures": "4",
    "spark.deploy.maxExecutorRetries": "-1",
}


class Driver:
    """A driver in a process group of its own, and the processes below it; ``error`` is that of its
    last job, empty when that came to its end."""

    def __init__(self, folder: Path, master: str) -> None:
        conf = CLUSTER if master.startswith("local-cluster") else {}
        told = {"master": master, "folder": str(folder), "conf": conf}
        self.master = master
        self._folder = folder
        folder.mkdir()
        script = Path(__file__).with_name("spark_driver.py")
        with open(folder / "errors", "wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-W", "ignore", str(script), json.dumps(told)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "SPARK_HOME": light_home(folder)},
                bufsize=0,
                start_new_session=True,
            )
        self.error = ""
        assert self._ended_well(), f"{self.error}: {(folder / 'errors').read_text()[-2000:]}"

    def do(self, told: dict[str, Any]) -> bool:
        """Whether the job came to its end."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(told).encode() + b"\n")
        return self._ended_well()

    def _ended_well(self) -> bool:
        """What it says next; the error is kept."""
        assert self.process.stdout is not None
        told = b""
        while not told.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
            if not ready:
                raise TimeoutError(f"Spark said nothing for {PATIENCE_S:.0f} s")
            read = os.read(self.process.stdout.fileno(), 65536)
            if not read:
                self.error = "the driver has ended"
                return False
            told += read
        self.error = json.loads(told).get("error", "")
        return not self.error

    def below(self) -> list[tuple[psutil.Process, str]]:
        """All processes that come of it, with their command lines."""
        found = []
        with suppress(psutil.Error):
            for process in psutil.Process(self.process.pid).children(recursive=True):
                with suppress(psutil.Error):
                    found.append((process, " ".join(process.cmdline())))
        return found

    def end(self) -> None:
        """It and its Java are killed; Python processes of Java's go by themselves, or commit."""
        java = [process for process, line in self.below() if "bin/java" in line]
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for process in java:  # executors have groups of their own
            with suppress(psutil.Error):
                process.kill()
        self.process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


class Place:
    """A store with its queues, by its path or behind a server at an address that stays."""

    def __init__(self, path: Path, *, served: bool) -> None:
        self.path, self.checkpoint = path, path.with_suffix(".checkpoint")
        self.numbers: list[int] = []
        self.server: Served | None = None
        with pyqstore.open(path) as store, store.channel() as channel:
            channel.exchange_declare("events", "topic", durable=True)
            for queue, pattern in {"all": "#", "odd": "n.1"}.items():
                channel.queue_declare(queue, durable=True)
                channel.queue_bind(queue, "events", pattern)
            channel.queue_declare("copies", durable=True)
        self._address = f"127.0.0.1:{free_port()}" if served else ""
        self.at = {"url": f"grpc://{self._address}"} if served else {"path": str(path)}

    def settle(self) -> None:
        """A server answers; or who opened the store has closed it, also a commit that goes on when
        its driver is gone."""
        if not self._address:
            from spark_udfs.opening import open_store

            open_store(str(self.path), wait_s=PATIENCE_S).close()
        elif self.server is None or self.server.process.poll() is not None:
            self.restart()

    def restart(self) -> None:
        """A new server at the same address, once it answers."""
        self.end()
        self.server = Served(self.path, "--flight", self._address)
        self.server.addresses()

    def owner(self) -> int:
        """The process that has the store open, 0 when there is none."""
        return int((self.path / "LOCK").read_text().strip() or "0")

    def end(self) -> None:
        """Without the server, if there is one."""
        if self.server is not None:
            self.server.process.kill()
            self.server.process.communicate()
            self.server = None

    def broken(self) -> list[str]:
        """What is not as it was promised, once all was copied."""
        self.end()
        with pyqstore.open(self.path, create=False) as store:
            return self.broken_in(store)

    def broken_in(self, store: pyqstore.Store) -> list[str]:
        """The same of the store while it is open here."""
        found = {}
        for queue in ("all", "odd", "copies"):
            bodies = (batch["body"].to_pylist() for batch in store.browse(queue))
            found[queue] = [int(body) for batch in bodies for body in batch]
        found["copies"].sort()
        promised = {
            "all": [],
            "odd": [number for number in self.numbers if number % 2],
            "copies": self.numbers,
        }
        wrong = [differ(queue, found[queue], promised[queue]) for queue in promised]
        if (names := sorted(store.queues())) != sorted(promised):
            wrong.append(f"queues are {names}")
        return [f"{self.path.name}: {text}" for text in wrong if text]


def differ(queue: str, found: list[int], promised: list[int]) -> str:
    """Empty when they are the same."""
    if found == promised:
        return ""
    lost = sorted(set(promised) - set(found))
    return (
        f"queue {queue}: {len(found)} rows where {len(promised)} were written, {len(lost)} lost"
        f" (from {lost[:3]} on), {len(found) - len(set(found))} more than once"
    )


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def candidates(victim: str, driver: Driver, place: Place) -> list[psutil.Process]:
    """The processes there are now of one kind."""
    if victim == "server":
        return [psutil.Process(place.server.process.pid)] if place.server is not None else []
    if victim == "owner":
        # One that was killed has left its number, which may be another's by now.
        return [process for process, _ in driver.below() if process.pid == place.owner()]
    if victim == "driver":
        java = [process for process, line in driver.below() if "SparkSubmit" in line]
        return [psutil.Process(driver.process.pid), *java]
    fits: Callable[[str], bool] = {
        "executor": lambda line: "CoarseGrainedExecutorBackend" in line,
        "committer": lambda line: "commit_data_source_write" in line or "sink_runner" in line,
        "worker": lambda line: "pyspark." in line and "bin/java" not in line,
    }[victim]
    return [process for process, line in driver.below() if fits(line)]


@contextmanager
def killing(
    victim: str, chosen: random.Random, within_s: float, driver: Driver, place: Place
) -> Iterator[list[str]]:
    """Kill one of the victims as soon as there is one after a delay; the list says which."""
    over, killed = threading.Event(), list[str]()
    delay_s, share = chosen.random() * within_s, chosen.random()
    restarts = victim == "server" and chosen.random() >= DOWN

    def kill() -> None:
        over.wait(delay_s)
        while not over.is_set() and not killed:
            with suppress(psutil.Error, OSError, ValueError):
                there = candidates(victim, driver, place)
                process = there[int(share * len(there))] if there else None
                if process is not None and not over.is_set():
                    process.kill()
                    killed.append(victim)
            over.wait(0.005)
        if killed and restarts:
            place.restart()

    with ThreadPoolExecutor(1) as threads:
        killer = threads.submit(kill)
        try:
            yield killed
        finally:
            over.set()
        killer.result()


class Rounds:
    """Jobs and queries on two stores, with one driver after the other."""

    def __init__(self, folder: Path, report: Report) -> None:
        self._folder, self._report = folder, report
        self.places = (Place(folder / "near", served=False), Place(folder / "far", served=True))
        self._drivers = 0
        self._driver: Driver | None = None
        # How long each job takes when nothing is killed: moments are chosen within that.
        self._lasts = {"write": 1.0, "copy": 1.0}

    def driver(self, master: str) -> Driver:
        """On this master, or on any."""
        if self._driver is None or master not in ("", self._driver.master):
            self.end_driver()
            master = master or "local[2,3]"
            self._drivers += 1
            self._driver = Driver(self._folder / f"driver-{self._drivers}", master)
            self._report.add("drivers")
        return self._driver

    def end_driver(self) -> None:
        if self._driver is not None:
            self._driver.end()
            self._driver = None

    def round(self, number: int, victim: str, chosen: random.Random) -> None:
        """A job and a query on one of the stores, each until it came to its end."""
        served = victim == "server" or (victim != "owner" and chosen.random() < 0.5)
        place = self.places[served]
        first = number * ROWS
        write = {**self._told(place, "write"), "first": first, "key": str(number)}
        # What takes long to start is killed in one of them only.
        spared = chosen.choice(("write", "copy")) if victim in JAVA else ""
        twice = TWICE_JAVA if victim in JAVA else TWICE
        batch = chosen.choice((ROWS * 3 // 4, 2 * ROWS))  # the rows are one batch, or two
        for told in (write, self._told(place, "copy", batch)):
            kills = 0 if told["job"] == spared else 1 + (chosen.random() < twice)
            self._until_done(told, place, victim, kills, chosen)
        place.numbers += range(first, first + ROWS)
        self._report.add("rounds")

    @staticmethod
    def _told(place: Place, job: str, batch: int = 2 * ROWS) -> dict[str, Any]:
        told = {"at": place.at, "rows": ROWS, "checkpoint": str(place.checkpoint)}
        return {"job": job, "batch": batch, **told}

    def _until_done(
        self, told: dict[str, Any], place: Place, victim: str, kills: int, chosen: random.Random
    ) -> None:
        """The job again and again, disturbed so many times, then left in peace."""
        for now in [victim] * kills + [""] * PEACEFUL:
            place.settle()
            driver = self.driver(MASTERS.get(victim, "local[2,3]"))
            if self._done(told, place, now, chosen, driver):
                return
        raise RuntimeError(f"{told} failed although nothing was killed: {driver.error[-2000:]}")

    def _done(
        self, told: dict[str, Any], place: Place, victim: str, chosen: random.Random, driver: Driver
    ) -> bool:
        """Whether the job came to its end."""
        began = time.monotonic()
        if victim:
            with killing(victim, chosen, self._lasts[told["job"]], driver, place) as killed:
                done = driver.do(told)
        else:
            killed, done = [], driver.do(told)
        for name in killed:
            self._report.add(f"{name} killed")
        if victim == "driver" and killed:
            self.end_driver()
        if done and not killed:
            self._lasts[told["job"]] = time.monotonic() - began
        if not done and not killed:
            self._report.add("failed in peace")
        return done

    def finish(self) -> list[str]:
        """What is wrong, once nothing is killed any more."""
        for place in self.places:
            place.settle()
            self._until_done(self._told(place, "copy"), place, "", 0, random.Random())
        self.end_driver()
        for place in self.places:
            place.settle()
        return [text for place in self.places for text in place.broken()]

    def end(self) -> None:
        self.end_driver()
        for place in self.places:
            place.end()


def victims(chosen: random.Random, rounds: int) -> list[str]:
    """Each as often as the others.  Executors are first, whose masters are their own, then drivers,
    and the first of those has executors."""
    cycle = [VICTIMS[number % len(VICTIMS)] for number in range(rounds)]
    chosen.shuffle(cycle)
    return sorted(cycle, key=lambda victim: (*JAVA, victim).index(victim))


def rounds_of(seed: int, rounds: int, report: Report, folder: Path) -> None:
    """So many rounds on a pair of stores."""
    run = Rounds(folder, report)
    try:
        for number, victim in enumerate(victims(random.Random(seed), rounds)):
            # What one round chooses does not follow from how often the others had to try.
            run.round(number, victim, random.Random(f"{seed} {number}"))
        wrong = run.finish()
    except (RuntimeError, TimeoutError, AssertionError) as error:
        wrong = [str(error)]
    finally:
        run.end()
    report.violations += [f"seed {seed}, {rounds} rounds: {text}" for text in wrong]


def run(seed: int, seconds: float) -> Report:
    """Pairs of stores, each for ``ROUNDS`` rounds, until time is over or a promise is broken."""
    report = Report()
    end = time.monotonic() + seconds
    while True:
        folder = Path(tempfile.mkdtemp(prefix="qs-spark-"))
        rounds_of(seed, ROUNDS, report, folder)
        if report.violations:
            report.violations.append(f"the stores are kept in {folder}")
            return report
        shutil.rmtree(folder, ignore_errors=True)
        seed += 1
        if time.monotonic() >= end:
            return report
