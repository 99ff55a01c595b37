"""RabbitMQ: a durable queue with publisher confirms, classic or quorum, through pika.

The server is one of its own: everything that it would share with another on the same machine (data,
name, cookie, ports, the port mapper of Erlang) is in the measured directory or on free ports.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from .contract import (
    ANSWER_SECONDS,
    BATCH,
    OUTSTANDING,
    package_version,
    packages_missing,
)
from .server import LOOPBACK, START_SECONDS, Server, find, free_port, program_missing

PROGRAM = "rabbitmq-server"
# What Debian has on the PATH gives up root, and refuses everybody else; this is the server itself.
DEBIAN_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
MAPPER = "epmd"
QUEUE = "queue"


class RabbitMq:
    """pika's SelectConnection: its BlockingConnection can only wait for each confirm in turn.

    Acknowledgements have no confirm in AMQP; a declaration behind the last one is answered after
    the channel has taken them all.
    """

    def __init__(self, name: str, queue_type: str) -> None:
        self.name = name
        self._queue_type = queue_type
        self._server: Server | None = None
        self._connection: Any = None
        self._answer: Any = None
        self._failure: BaseException | None = None
        self._publishing: _Publishing | None = None
        self._next_tag = 1

    def missing(self) -> str | None:
        return (
            program_missing(PROGRAM, "rabbitmq-server")
            or program_missing(MAPPER, "erlang-base")
            or packages_missing("pika")
        )

    def version(self) -> str:
        told = self._connection.server_properties
        server = f"RabbitMQ {told['version']} on {told['platform']}"
        return f"{server}, {package_version('pika')}"

    def start(self, directory: Path) -> None:
        port, mapper_port = free_port(), free_port()
        environment = _environment(directory, port, mapper_port)
        self._server = Server(directory)
        # Else the server would start one that outlives it.
        mapper = [str(find(MAPPER)), "-address", LOOPBACK, "-port", str(mapper_port)]
        self._server.run(mapper, mapper_port, environment)
        program = DEBIAN_PROGRAM if DEBIAN_PROGRAM.exists() else find(PROGRAM)
        self._server.run([str(program)], port, environment)
        self._connect(port)
        self._channel = self._open_channel()

    def publish_and_wait(self, body: bytes, count: int) -> list[float]:
        return self._publish([body] * count, 1)

    def publish_pipelined(self, bodies: Sequence[bytes]) -> None:
        self._publish(bodies, OUTSTANDING)

    def publish_batches(self, batch: Sequence[bytes], batches: int) -> None:
        for _ in range(batches):
            self._publish(batch, len(batch))

    def consume(self, count: int) -> list[bytes]:
        bodies: list[bytes] = []

        def deliver(channel: Any, method: Any, _properties: Any, body: bytes) -> None:
            bodies.append(body)
            if len(bodies) % BATCH == 0 or len(bodies) == count:
                channel.basic_ack(method.delivery_tag, multiple=True)
            if len(bodies) == count:
                channel.basic_cancel(method.consumer_tag)
                channel.queue_declare(QUEUE, passive=True, callback=self._done)

        self._channel.basic_consume(QUEUE, deliver)
        self._wait()
        return bodies

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()

    def _publish(self, bodies: Sequence[bytes], outstanding: int) -> list[float]:
        """Publish with at most so many unconfirmed; the microseconds until each confirm."""

        def send(body: bytes) -> None:
            self._channel.basic_publish("", QUEUE, body, self._persistent)

        publishing = self._publishing = _Publishing(send, self._next_tag, bodies, outstanding)
        self._next_tag += len(bodies)
        publishing.fill()
        self._wait()
        if publishing.refused:
            raise RuntimeError(f"{self.name} refused {publishing.refused} messages")
        return publishing.latencies

    def _confirmed(self, frame: Any) -> None:
        assert self._publishing is not None
        if self._publishing.confirmed(frame):
            self._done()

    def _connect(self, port: int) -> None:
        import pika

        parameters = pika.ConnectionParameters(LOOPBACK, port, heartbeat=0)
        deadline = time.monotonic() + START_SECONDS
        while True:
            self._failure = None
            self._connection = pika.SelectConnection(
                parameters,
                on_open_callback=self._done,
                on_open_error_callback=self._failed,
                on_close_callback=self._failed,
            )
            try:
                self._wait()
                return
            except RuntimeError:  # it listens a moment before it lets anybody in
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _open_channel(self) -> Any:
        import pika

        self._persistent = pika.BasicProperties(delivery_mode=2)
        self._connection.channel(on_open_callback=self._done)
        channel = self._wait()
        channel.add_on_close_callback(self._failed)
        channel.confirm_delivery(self._confirmed, self._done)
        self._wait()
        channel.basic_qos(prefetch_count=2 * BATCH, callback=self._done)
        self._wait()
        arguments = {"x-queue-type": self._queue_type}
        channel.queue_declare(QUEUE, durable=True, arguments=arguments, callback=self._done)
        self._wait()
        return channel

    # A request is sent, then the loop runs until a callback says that its answer is there.

    def _wait(self) -> Any:
        loop = self._connection.ioloop
        timer = loop.call_later(ANSWER_SECONDS, self._late)
        loop.start()
        loop.remove_timeout(timer)
        if self._failure is not None:
            raise RuntimeError(f"{self.name}: {self._failure!r}") from self._failure
        return self._answer

    def _done(self, answer: object = None) -> None:
        self._answer = answer
        self._connection.ioloop.stop()

    def _failed(self, _where: object, reason: BaseException) -> None:
        self._failure = reason
        self._connection.ioloop.stop()

    def _late(self) -> None:
        self._failed(None, TimeoutError(f"no answer in {ANSWER_SECONDS:.0f} s"))


class _Publishing:
    """Messages on their way: sent in order, at most so many unconfirmed, confirmed in any order."""

    def __init__(
        self,
        send: Callable[[bytes], object],
        first_tag: int,
        bodies: Sequence[bytes],
        outstanding: int,
    ) -> None:
        self._send, self._first_tag = send, first_tag
        self._bodies, self._outstanding = bodies, outstanding
        self._begun: dict[int, int] = {}
        self._sent = 0
        self.latencies: list[float] = []
        self.refused = 0

    def fill(self) -> None:
        """Send as many as may be outstanding."""
        end = min(len(self._bodies), self._sent + self._outstanding - len(self._begun))
        while self._sent < end:
            self._begun[self._first_tag + self._sent] = time.perf_counter_ns()
            self._send(self._bodies[self._sent])
            self._sent += 1

    def confirmed(self, frame: Any) -> bool:
        """Take an answer, send what it makes room for; whether it was the last."""
        now, tag = time.perf_counter_ns(), frame.method.delivery_tag
        tags = [tag]
        if frame.method.multiple:
            tags = list(takewhile(lambda each: each <= tag, self._begun))
        self.latencies += [(now - self._begun.pop(each)) / 1000 for each in tags]
        if frame.method.NAME == "Basic.Nack":
            self.refused += len(tags)
        self.fill()
        return not self._begun


def _environment(directory: Path, port: int, mapper_port: int) -> dict[str, str]:
    """Everything that a node has of its own."""
    for name in ("data", "log", "config"):
        (directory / name).mkdir()
    plugins = directory / "config/enabled_plugins"
    plugins.write_text("[].\n")
    distribution = free_port()
    return {
        "HOME": str(directory),  # the cookie is made there
        "ERL_EPMD_PORT": str(mapper_port),
        "RABBITMQ_NODENAME": f"pyqstore{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_MNESIA_BASE": str(directory / "data"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(directory / "config"),
        # None of the machine's own.
        "RABBITMQ_CONF_ENV_FILE": str(directory / "config/none"),
        "RABBITMQ_CONFIG_FILE": str(directory / "config/rabbitmq"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(directory / "config/advanced"),
        # The virtual machine in place of the shell that starts it.
        "RUNNING_UNDER_SYSTEMD": "true",
    }
