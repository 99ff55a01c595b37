"""Kafka: one node, a topic of one partition, its Java client.

Both server and client come from Maven.  All that the server writes is in the measured directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from . import jars
from .contract import ANSWER_SECONDS, OUTSTANDING, Rival
from .java_client import JavaClient
from .kafka_node import KafkaNode


class Kafka(Rival):
    """``flush_messages``: so many between two syncs of the topic; 0: when the kernel likes.

    A reader keeps its place itself, so nothing is acknowledged.
    """

    is_stream = True

    def __init__(self, name: str, flush_messages: int) -> None:
        self.name = name
        self._flush_messages = flush_messages
        self._server: KafkaNode | None = None
        self._client: JavaClient | None = None
        self._versions = ""

    def missing(self) -> str | None:
        return KafkaNode.missing()

    def version(self) -> str:
        return self._versions

    def start(self, directory: Path) -> None:
        self._server = KafkaNode(directory)
        self._server.start()
        given = [self._server.port, round(ANSWER_SECONDS), self._flush_messages]
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
