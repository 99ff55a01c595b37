"""Redis: a stream with a group, its append-only file synced before each answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyqstore.bench.runs import timed

from .contract import (
    ANSWER_SECONDS,
    BATCH,
    OUTSTANDING,
    Rival,
    package_version,
    packages_missing,
)
from .server import LOOPBACK, Server, find, free_port, output, program_missing

PROGRAM = "redis-server"
STREAM, GROUP, FIELD = "queue", "workers", b"b"


class Redis(Rival):
    """``appendonly yes, appendfsync always``, no snapshots.

    XADD in pipelines without MULTI; XREADGROUP, then XACK and XDEL in one pipeline with the next
    XREADGROUP.
    """

    name = "Redis"

    def __init__(self) -> None:
        self._server: Server | None = None
        self._client: Any = None

    def missing(self) -> str | None:
        return program_missing(PROGRAM, "redis-server") or packages_missing("redis", "hiredis")

    def version(self) -> str:
        server = output(str(find(PROGRAM)), "--version").split()[2].removeprefix("v=")
        return f"Redis {server}, {package_version('redis')}, {package_version('hiredis')}"

    def start(self, directory: Path) -> None:
        import redis

        port = free_port()
        self._server = Server(directory)
        data = ["--dir", str(directory), "--appendonly", "yes", "--appendfsync", "always"]
        command = [str(find(PROGRAM)), "--bind", LOOPBACK, "--port", str(port), *data]
        self._server.run([*command, "--save", "", "--daemonize", "no"], port)
        self._client = redis.Redis(LOOPBACK, port, socket_timeout=ANSWER_SECONDS)
        self._client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)

    def publish_and_wait(self, body: bytes, count: int) -> list[float]:
        return timed(lambda: self._client.xadd(STREAM, {FIELD: body}), count)

    def publish_pipelined(self, bodies: Sequence[bytes]) -> None:
        for start in range(0, len(bodies), OUTSTANDING):
            self._add(bodies[start : start + OUTSTANDING])

    def publish_batches(self, batch: Sequence[bytes], batches: int) -> None:
        for _ in range(batches):
            self._add(batch)

    def consume(self, count: int) -> list[bytes]:
        bodies: list[bytes] = []
        identifiers: list[bytes] = []
        while len(bodies) < count:
            pipeline = self._settling(identifiers)
            wanted = min(BATCH, count - len(bodies))
            pipeline.xreadgroup(GROUP, "worker", {STREAM: ">"}, count=wanted)
            got = pipeline.execute()[-1]
            if not got:
                raise RuntimeError(f"{len(bodies)} messages came and no more, of {count}")
            entries = got[0][1]
            identifiers = [identifier for identifier, _ in entries]
            bodies += [fields[FIELD] for _, fields in entries]
        self._settling(identifiers).execute()
        return bodies

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
        if self._client is not None:
            self._client.close()

    def _add(self, bodies: Sequence[bytes]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for body in bodies:
            pipeline.xadd(STREAM, {FIELD: body})
        pipeline.execute()

    def _settling(self, identifiers: Sequence[bytes]) -> Any:
        pipeline = self._client.pipeline(transaction=False)
        if identifiers:
            pipeline.xack(STREAM, GROUP, *identifiers)
            pipeline.xdel(STREAM, *identifiers)
        return pipeline
