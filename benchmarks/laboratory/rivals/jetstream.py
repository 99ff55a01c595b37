"""NATS JetStream: a work queue stream in files, a pull consumer with explicit acknowledgements."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from .contract import (
    ANSWER_SECONDS,
    BATCH,
    OUTSTANDING,
    Rival,
    package_version,
    packages_missing,
)
from .server import LOOPBACK, STOP_SECONDS, Server, find, free_port, output, program_missing

PROGRAM = "nats-server"
STREAM = SUBJECT = "queue"
SYNCS_SINCE = (2, 10)
_T = TypeVar("_T")


class JetStream(Rival):
    """``sync_interval: always`` where the server knows it, from 2.10 on.

    An older one answers when the message is with the operating system, and syncs every two minutes.
    """

    name = "NATS JetStream"

    def __init__(self) -> None:
        self._server: Server | None = None
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def missing(self) -> str | None:
        return program_missing(PROGRAM, "nats-server") or packages_missing("nats")

    def version(self) -> str:
        server = ".".join(map(str, server_version()))
        how = "sync_interval: always" if server_version() >= SYNCS_SINCE else "cannot sync always"
        return f"nats-server {server} ({how}), {package_version('nats-py')}"

    def start(self, directory: Path) -> None:
        port = free_port()
        sync = "sync_interval: always" if server_version() >= SYNCS_SINCE else ""
        configuration = directory / "nats.conf"
        configuration.write_text(
            f"listen: {LOOPBACK}:{port}\n"
            # The client answers pings in its own turns alone: silent for long, it would be cut off.
            'ping_interval: "1h"\n'
            f'jetstream {{ store_dir: "{directory / "data"}"\n max_file: 4G\n {sync} }}\n'
        )
        self._server = Server(directory)
        self._server.run([str(find(PROGRAM)), "--config", str(configuration)], port)
        self._loop = asyncio.new_event_loop()
        self._run(self._connect(port))

    def publish_and_wait(self, body: bytes, count: int) -> list[float]:
        async def work() -> list[float]:
            latencies = []
            for _ in range(count):
                begin = time.perf_counter_ns()
                await self._stream.publish(SUBJECT, body, timeout=ANSWER_SECONDS)
                latencies.append((time.perf_counter_ns() - begin) / 1000)
            return latencies

        return self._run(work())

    def publish_pipelined(self, bodies: Sequence[bytes]) -> None:
        self._run(self._publish(bodies))

    def publish_batches(self, batch: Sequence[bytes], batches: int) -> None:
        async def work() -> None:
            for _ in range(batches):
                await self._publish(batch)

        self._run(work())

    def consume(self, count: int) -> list[bytes]:
        async def work() -> list[bytes]:
            bodies: list[bytes] = []
            while len(bodies) < count:
                wanted = min(BATCH, count - len(bodies))
                got = await self._subscription.fetch(wanted, timeout=ANSWER_SECONDS)
                for message in got[:-1]:
                    await message.ack()
                # The server takes a connection's acknowledgements in their order.
                await got[-1].ack_sync(timeout=ANSWER_SECONDS)
                bodies += [message.data for message in got]
            return bodies

        return self._run(work())

    def stop(self) -> None:
        try:
            if self._client is not None:
                self._run(asyncio.wait_for(self._client.close(), STOP_SECONDS))
        finally:
            if self._server is not None:
                self._server.stop()
            if self._loop is not None:
                self._loop.close()

    async def _connect(self, port: int) -> None:
        import nats
        from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType

        self._client = await nats.connect(f"nats://{LOOPBACK}:{port}")
        self._stream = self._client.jetstream(
            timeout=ANSWER_SECONDS, publish_async_max_pending=OUTSTANDING
        )
        await self._stream.add_stream(
            name=STREAM,
            subjects=[SUBJECT],
            storage=StorageType.FILE,
            retention=RetentionPolicy.WORK_QUEUE,
        )
        consumer = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=2 * BATCH)
        self._subscription = await self._stream.pull_subscribe(SUBJECT, "worker", config=consumer)

    async def _publish(self, bodies: Sequence[bytes]) -> None:
        answers = [await self._stream.publish_async(SUBJECT, body) for body in bodies]
        await asyncio.wait_for(asyncio.gather(*answers), ANSWER_SECONDS)

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        assert self._loop is not None
        return self._loop.run_until_complete(work)


def server_version() -> tuple[int, ...]:
    """Of the program that is installed."""
    told = output(str(find(PROGRAM)), "--version")
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", told)
    if found is None:
        raise RuntimeError(f"{PROGRAM} --version says {told!r}")
    return tuple(map(int, found.groups()))
