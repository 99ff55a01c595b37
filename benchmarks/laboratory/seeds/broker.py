"""RabbitMQ beside us: a server of its own, and the Java client that is asked for the workloads."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from pyqstore.bench.runs import Sample

from ..rivals.contract import ANSWER_SECONDS
from ..rivals.java_client import JavaClient
from ..rivals.rabbitmq import RabbitMq, plugins_folder

# Classic queues of this version have the queue index and the message store that the documents
# describe.
QUEUE_VERSION = 1
Asked = Mapping[str, str | int]
"""Parameters of a workload."""
_CTL_SECONDS = 60.0
_DEFAULTS: dict[str, str | int] = {
    "version": QUEUE_VERSION,
    "lazy": 0,
    "persistent": 1,
    "body": 100,
    "queues": 1,
    "way": "confirms",
    "group": 1000,
    "rate": 0,
    "auto": 0,
    "ack_every": 1,
    "multiple": 0,
    "prefetch": 0,
    "work_us": 0,
    "delay_us": 0,
}


class Broker(RabbitMq):
    """A node with a configuration of its own."""

    def __init__(self, embed_below: int | None = None) -> None:
        arguments: dict[str, str | int] = {"x-queue-version": QUEUE_VERSION}
        super().__init__("RabbitMQ", arguments)
        self._embed_below = embed_below
        self._other: Broker | None = None
        self.in_memory: dict[str, int] = {}
        """What the server said of backlogs, by a name; to ask takes seconds."""

    def start(self, directory: Path) -> None:
        super().start(directory)
        self._directory = directory

    def stop(self) -> None:
        if self._other is not None:
            self._other.stop()
            self._other = None
        super().stop()

    @property
    def without_embedding(self) -> Broker:
        """A second node, of which no message is in its index; started when it is asked for."""
        if self._other is None:
            own = self._directory / "other"
            own.mkdir()
            self._other = Broker(0)
            self._other.start(own)
        return self._other

    def _configuration(self) -> str:
        if self._embed_below is None:
            return ""
        return f"queue_index_embed_msgs_below = {self._embed_below}\n"

    def _new_client(self, log: Path) -> JavaClient:
        return JavaClient("SeedsClient", self._pom, [self.port, round(ANSWER_SECONDS)], log)

    def ask(self, workload: str, **given: str | int) -> dict[str, list[float]]:
        """Run a workload; what it found, by name."""
        pairs = [f"{name}={value}" for name, value in {**_DEFAULTS, **given}.items()]
        found = {}
        for pair in self._running.ask(" ".join([workload, *pairs])).split():
            name, values = pair.split("=", 1)
            found[name] = [float(each) for each in values.split(",") if each]
        return found

    def sample(self, workload: str, messages: int, **given: str | int) -> Sample:
        """Run a workload; the seconds and latencies that it took for so many messages."""
        found = self.ask(workload, **given)
        latencies = found.get("latencies_us", [])
        return Sample(found["seconds"][0], messages, latencies_us=latencies)

    def message_bytes_in_memory(self) -> int:
        """Bodies that the server's queues keep in memory, by its own count."""
        command = plugins_folder().parent / "sbin/rabbitmqctl"
        done = subprocess.run(
            [str(command), "-q", "list_queues", "message_bytes_ram", "--no-table-headers"],
            env=dict(os.environ) | self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_CTL_SECONDS,
            check=True,
        )
        return sum(int(line) for line in done.stdout.split())
