"""Masters other than local threads: rows are there exactly once, whatever process they lose."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from spark_udfs.opening import open_store
from spark_udfs.session import find_java

# Servers and drivers begin with a hundred files each: a disk that others use takes its time.
pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(1000)]
ROWS = 8000
SCRIPT = Path(__file__).with_name("elsewhere.py")
SMALL = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData",
    "spark.task.maxFailures": "4",
}
START_S = 120.0

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def start(disk: Any, tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """start(master, loses=..., jobs=[...], **conf): a driver in a process group of its own."""

    def make(
        master: str, *, remote: str = "", loses: str = "", jobs: list[str], **conf: str
    ) -> subprocess.Popen[str]:
        told = {
            "master": master,
            "remote": remote,
            "conf": {} if remote else {**SMALL, **conf},
            "store": str(disk.path),
            "folder": str(tmp_path),
            "rows": ROWS,
            "loses": loses,
            "jobs": jobs,
        }
        return subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", str(SCRIPT), json.dumps(told)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return make


@pytest.fixture
def run(start: Callable[..., subprocess.Popen[str]]) -> Run:
    """run(...): the same to its end; what it saw."""

    def make(*arguments: Any, **keywords: Any) -> dict[str, Any]:
        driver = start(*arguments, **keywords)
        try:
            out, errors = driver.communicate(timeout=500)
        finally:
            end(driver)
        assert driver.returncode == 0, errors[-4000:]
        seen: dict[str, Any] = json.loads(out.splitlines()[-1])
        return seen

    return make


def end(process: subprocess.Popen[Any]) -> None:
    """Nothing of its process group is left."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def declare(disk: Any) -> None:
    """The stream "log" with all numbers, and the empty queue "copies"."""
    disk.publish(range(ROWS), to="log")
    with pyqstore.open(disk.path) as store, store.channel() as channel:
        channel.queue_declare("copies", durable=True)


def check(disk: Any, seen: dict[str, Any]) -> None:
    """What ``write``, ``read`` and ``stream`` leave."""
    assert seen["read"] == {"log": sum(range(ROWS)), "all": ROWS}
    assert sorted(disk.numbers("copies")) == list(range(ROWS))
    assert disk.numbers("all") == []
    assert disk.numbers("odd") == list(range(1, ROWS, 2))
    assert disk.staged == []
    with pyqstore.open(disk.path) as store:
        assert sorted(store.queues()) == ["all", "copies", "log", "odd"]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def java(
    log: Path, script: str, *arguments: str, says: str, address: str = "127.0.0.1", memory: str
) -> Iterator[None]:
    """A Java process of Spark's own, by one of its scripts, from when it has said something on."""
    # A session of this process may have left its settings, which keep what is waited for unsaid.
    inherited = {name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}
    environment = {
        **inherited,
        "SPARK_LOCAL_IP": address,
        "JAVA_HOME": find_java(),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONSAFEPATH": "1",
        "SPARK_DAEMON_MEMORY": memory,
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:-UsePerfData",
    }
    with open(log, "wb") as out:
        process = subprocess.Popen(
            [os.path.join(os.environ["SPARK_HOME"], "bin", script), *arguments],
            cwd=log.parent,
            env=environment,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_S
        while says not in log.read_text():
            assert process.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(0.05)
        yield
    finally:
        end(process)


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[str]:
    """The address of a Connect server, to which the driver is a client over TCP."""
    log, port = tmp_path / "connect.log", free_port()
    arguments = ["--master", "local[2,4]", "--class"]
    arguments += ["org.apache.spark.sql.connect.service.SparkConnectServer"]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "768m",
        "spark.driver.extraJavaOptions": SMALL["spark.executor.extraJavaOptions"],
        "spark.local.dir": str(tmp_path / "scratch"),
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
        "spark.sql.shuffle.partitions": "2",
    }
    for name, value in settings.items():
        arguments += ["--conf", f"{name}={value}"]
    started = "Spark Connect server started"
    with java(log, "spark-submit", *arguments, "spark-internal", says=started, memory="768m"):
        yield f"sc://127.0.0.1:{port}"


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """The address of a master with two workers of one core each, at addresses of their own."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack:
        arguments = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        log = tmp_path / "master.log"
        server = java(
            log,
            "spark-class",
            f"{deploy}.master.Master",
            *arguments,
            says="elected leader",
            memory="256m",
        )
        stack.enter_context(server)
        for address in ("127.0.0.2", "127.0.0.3"):
            arguments = ["--host", address, "--webui-port", "0", "--cores", "1"]
            arguments += ["--memory", "640m", "--work-dir", str(tmp_path / address), master]
            server = java(
                tmp_path / f"{address}.log",
                "spark-class",
                f"{deploy}.worker.Worker",
                *arguments,
                says="Successfully registered with master",
                address=address,
                memory="256m",
            )
            stack.enter_context(server)
        yield master


ALL = ["write", "read", "stream"]


@pytest.mark.parametrize("loses", [pytest.param("worker", marks=pytest.mark.slow), "executor"])
def test_on_a_local_cluster_rows_are_there_once_when_a_process_is_lost(
    disk: Any, run: Run, loses: str
) -> None:
    declare(disk)
    check(disk, run("local-cluster[2,1,512]", loses=loses, jobs=ALL))


def test_through_connect_rows_are_there_once_when_a_worker_is_lost(
    disk: Any, connect: str, run: Run
) -> None:
    declare(disk)
    check(disk, run("", remote=connect, loses="worker", jobs=ALL))


@pytest.mark.slow
def test_through_a_local_connect_session_rows_are_there_once(disk: Any, run: Run) -> None:
    declare(disk)
    check(disk, run("", remote="local[2]", jobs=ALL))


@pytest.mark.slow
def test_on_a_standalone_cluster_rows_are_there_once_when_an_attempt_is_overtaken(
    disk: Any, standalone: str, run: Run, tmp_path: Path
) -> None:
    declare(disk)
    (tmp_path / "flag").touch()
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
    }
    check(disk, run(standalone, loses="time", jobs=ALL, **speculation))


# What a driver has done when it is killed, by what lies in the store's directory.
_STAGED = "staging/*/*.qsb"
_MOMENTS = {"started": "staging/*", "staging": "staging/*/*.qsb.*.tmp", "staged": _STAGED}


@pytest.mark.parametrize(
    "moment",
    [
        "staged",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("started", "staging", "committing")
        ),
    ],
)
def test_a_driver_that_is_killed_is_repeated_once(
    disk: Any,
    start: Callable[..., subprocess.Popen[str]],
    numbered: Callable[[int], Any],
    moment: str,
) -> None:
    driver = start("local[2]", jobs=["write"])
    try:
        while not has_come(disk.path, moment):
            assert driver.poll() is None, f"the job was over before '{moment}'"
            time.sleep(0.001)
    finally:
        end(driver)
    # A commit runs in a process that does not go with the driver: it may come to its end.
    open_store(str(disk.path), wait_s=60).close()
    known = disk.knows("once")
    assert disk.ready() == (ROWS if known else 0)
    disk.write(numbered(ROWS), txnid="once")  # the same rows, from another driver
    assert disk.numbers() == list(range(ROWS))
    assert disk.numbers("odd") == list(range(1, ROWS, 2))


def has_come(store: Path, moment: str) -> bool:
    if moment != "committing":
        return any(store.glob(_MOMENTS[moment]))
    owner = (store / "LOCK").read_text().strip()
    with suppress(OSError):
        if owner and any(store.glob(_STAGED)):
            return "commit_data_source_write" in Path(f"/proc/{owner}/cmdline").read_text()
    return False
