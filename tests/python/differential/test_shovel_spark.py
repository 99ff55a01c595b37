"""The recipe of docs/SHOVEL.md with RabbitMQ and Spark, as it stands there.

The server, Spark and a shovel are killed once each while messages are on their way.  Every message
is in the store once, and every result is right.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pika
import pytest

import pyqstore
from benchmarks.laboratory.rivals.server import free_port

from ..documents import blocks
from ..recipes import commands
from ..support import wait_until
from .broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]
STEP = 1000
KILLED = ("server", "spark", "in")
PATIENCE_S = 180.0


class Service:
    """A command that is started again whenever it ends."""

    def __init__(self, words: list[str], folder: Path) -> None:
        self._words = words
        self._folder = folder
        self._lock = threading.Lock()
        self._is_over = False
        self._process = self._started()
        self._thread = threading.Thread(target=self._keep)
        self._thread.start()

    def _started(self) -> subprocess.Popen[bytes]:
        with (self._folder / "output").open("ab") as output:
            return subprocess.Popen(
                self._words,
                cwd=self._folder,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            )

    def _keep(self) -> None:
        while True:
            self._process.wait()
            with self._lock:
                if self._is_over:
                    return
                self._process = self._started()

    def kill(self) -> None:
        """With all that it has started."""
        os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        with self._lock:
            self._is_over = True
            self.kill()
        self._thread.join()


@contextmanager
def collected(broker: Broker) -> Iterator[dict[str, set[bytes]]]:
    """What comes to RabbitMQ's queue of results, by the id of the message."""
    found: dict[str, set[bytes]] = {}
    is_over = threading.Event()

    def collect() -> None:
        with pika.BlockingConnection(broker.parameters()) as connection:
            channel = connection.channel()
            for method, properties, body in channel.consume("totals", inactivity_timeout=0.2):
                if method is not None:
                    found.setdefault(properties.message_id, set()).add(body)
                    channel.basic_ack(method.delivery_tag)
                if is_over.is_set():
                    return

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()


def expected(number: int) -> set[bytes]:
    total = f"{number % 97 * 0.25 * (number % 7)}"
    return {json.dumps({"total": float(total)}, separators=(",", ":")).encode()}


def publish(broker: Broker, numbers: range) -> None:
    with pika.BlockingConnection(broker.parameters()) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in numbers:
            body = json.dumps({"price": number % 97 * 0.25, "pieces": number % 7})
            properties = pika.BasicProperties(delivery_mode=2, message_id=str(number))
            channel.basic_publish("", "orders", body, properties, mandatory=True)


def services(broker: Broker, folder: Path, stack: ExitStack) -> dict[str, Service]:
    """All of the recipe, at work."""
    port = free_port()
    replaced = {
        "flow.qs": str(folder / "flow.qs"),
        "127.0.0.1:8815": f"127.0.0.1:{port}",
        "USER:PASSWORD@HOST": f"guest:guest@127.0.0.1:{broker.port}",
    }
    found = commands("docs/SHOVEL.md", "Messages of RabbitMQ for Spark, and results back", replaced)
    *declared, server, to_store, to_broker = found
    for words in declared:
        subprocess.run([sys.executable, "-m", *words], check=True, timeout=60)
    program = blocks("docs/SHOVEL.md")[-1].replace("127.0.0.1:8815", f"127.0.0.1:{port}")
    (folder / "totals.py").write_text(program)
    words_of = {
        "server": [sys.executable, "-m", *server],
        "spark": [sys.executable, "totals.py"],
        "in": [sys.executable, "-m", *to_store],
        "out": [sys.executable, "-m", *to_broker],
    }
    started = {}
    for name, words in words_of.items():
        own = folder / name
        own.mkdir()
        if name == "spark":
            own = folder  # where its program is
        started[name] = Service(words, own)
        stack.callback(started[name].end)
        if name == "server":
            wait_until(is_answering(port), PATIENCE_S)
    return started


def is_answering(port: int) -> Callable[[], bool]:
    def answers() -> bool:
        try:
            pyqstore.connect(f"grpc://127.0.0.1:{port}").close()
        except pyqstore.Error:
            time.sleep(0.1)
            return False
        return True

    return answers


def test_results_of_spark_come_back_to_rabbitmq_whatever_is_killed(
    broker: Broker, tmp_path: Path
) -> None:
    with pika.BlockingConnection(broker.parameters()) as connection:
        for name in ("orders", "totals"):
            connection.channel().queue_declare(name, durable=True)
    with ExitStack() as stack:
        running = services(broker, tmp_path, stack)
        found = stack.enter_context(collected(broker))
        for step, name in enumerate(KILLED):
            publish(broker, range(step * STEP, (step + 1) * STEP))
            wait_until(lambda: len(found) > step * STEP, PATIENCE_S)  # noqa: B023
            running[name].kill()
        count = len(KILLED) * STEP
        wait_until(lambda: len(found) == count, PATIENCE_S)
    assert found == {str(number): expected(number) for number in range(count)}
    with pyqstore.open(tmp_path / "flow.qs") as store:
        ids = [
            each
            for batch in store.stream("orders").read("first", columns=["message_id"])
            for each in batch["message_id"].to_pylist()
        ]
        assert sorted(ids, key=int) == [str(number) for number in range(count)]
