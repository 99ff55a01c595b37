"""Kafka: one node that is broker and controller (KRaft), a topic of one partition, its Java client.

Both server and client come from Maven.  All that the server writes is in the measured directory.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from . import jars, java_client
from .contract import ANSWER_SECONDS, OUTSTANDING, Rival
from .java_client import JavaClient
from .server import LOOPBACK, START_SECONDS, Server, free_port

_HEAP = "-Xmx1g"  # as Kafka's own script has it
_CLUSTER = "cHlxc3RvcmUtcml2YWxzLg"  # sixteen bytes in base64, as its tool makes them


class Kafka(Rival):
    """``flush_messages``: so many between two syncs of the topic; 0: when the kernel likes.

    A reader keeps its place itself, so nothing is acknowledged.
    """

    is_stream = True

    def __init__(self, name: str, flush_messages: int) -> None:
        self.name = name
        self._flush_messages = flush_messages
        self._server: Server | None = None
        self._client: JavaClient | None = None
        self._versions = ""

    def missing(self) -> str | None:
        return java_client.missing(jars.KAFKA_POM)

    def version(self) -> str:
        return self._versions

    def start(self, directory: Path) -> None:
        port = free_port()
        configuration = _configured(directory, port, free_port())
        java = java_client.java(jars.KAFKA_POM, _HEAP)
        format_ = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(configuration)]
        with (directory / "output.log").open("ab") as log:
            subprocess.run([*java, *format_], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                           cwd=directory, check=True, timeout=START_SECONDS)  # fmt: skip
        self._server = Server(directory)
        self._server.run([*java, "kafka.Kafka", str(configuration)], port)
        given = [port, round(ANSWER_SECONDS), self._flush_messages]
        log_of_client = directory / "client.log"
        self._client = JavaClient("KafkaClient", jars.KAFKA_POM, given, log_of_client)
        self._versions = self._client.connect()

    def publish_and_wait(self, body: bytes, count: int) -> list[float]:
        return [seconds * 1e6 for seconds in self._running.publish([body], 1, count)]

    def publish_pipelined(self, bodies: Sequence[bytes]) -> None:
        self._running.publish(bodies, OUTSTANDING, 1)

    def publish_batches(self, batch: Sequence[bytes], batches: int) -> None:
        self._running.publish(batch, len(batch), batches)

    def consume(self, count: int) -> list[bytes]:
        return self._running.consume(count, count)

    def clock(self) -> float:
        return self._running.seconds

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._server is not None:
            self._server.stop()

    @property
    def _running(self) -> JavaClient:
        assert self._client is not None
        return self._client


def _configured(directory: Path, port: int, controller_port: int) -> Path:
    """The server's configuration, in a file; what it does not say is Kafka's default."""
    configuration = directory / "server.properties"
    told = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller_port}",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": directory / "data",
        "offsets.topic.replication.factor": 1,
    }
    configuration.write_text("".join(f"{name}={value}{os.linesep}" for name, value in told.items()))
    return configuration
