"""A node of Kafka that is broker and controller (KRaft), on loopback, from Maven's jars."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from . import jars, java_client
from .server import LOOPBACK, START_SECONDS, Server, free_port

_HEAP = "-Xmx1g"  # as Kafka's own script has it
_CLUSTER = "cHlxc3RvcmUtcml2YWxzLg"  # sixteen bytes in base64, as its tool makes them


class KafkaNode:
    """All that it writes is in ``directory``; what its configuration does not say is Kafka's
    default."""

    def __init__(self, directory: Path, configured: Mapping[str, object] | None = None) -> None:
        """Nothing runs yet.  ``configured``: what is to be otherwise."""
        self.port: int = free_port()
        self._directory = directory
        self._configured = dict(configured or {})
        self._server = Server(directory)

    @staticmethod
    def missing() -> str | None:
        """How to get what is not there."""
        return java_client.missing(jars.KAFKA_POM)

    def start(self) -> None:
        """Make its files, and return when it listens."""
        configuration = self._write_configuration()
        format_ = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(configuration)]
        with (self._directory / "output.log").open("ab") as log:
            subprocess.run([*self._java(), *format_], stdin=subprocess.DEVNULL, stdout=log,
                           stderr=log, cwd=self._directory, check=True,
                           timeout=START_SECONDS)  # fmt: skip
        self._run()

    def restart(self) -> None:
        """Kill it, and return when it listens again, with the same port and what its files have."""
        self._server.kill()
        self._run()

    def stop(self) -> None:
        """End it."""
        self._server.stop()

    def _run(self) -> None:
        self._server.run([*self._java(), "kafka.Kafka", str(self._configuration)], self.port)

    @property
    def _configuration(self) -> Path:
        return self._directory / "server.properties"

    def _java(self) -> list[str]:
        return java_client.java(jars.KAFKA_POM, _HEAP)

    def _write_configuration(self) -> Path:
        controller_port = free_port()
        told = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller_port}",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{self.port},"
            f"CONTROLLER://{LOOPBACK}:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self._directory / "data",
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            **self._configured,
        }
        lines = [f"{name}={value}{os.linesep}" for name, value in told.items()]
        self._configuration.write_text("".join(lines))
        return self._configuration
