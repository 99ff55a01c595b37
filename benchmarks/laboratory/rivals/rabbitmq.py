"""RabbitMQ: a durable queue with publisher confirms, classic or quorum, through its Java client.

The server is one of its own: everything that it would share with another on the same machine (data,
name, cookie, ports, the port mapper of Erlang) is in the measured directory or on free ports.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import jars, java_client
from .contract import ANSWER_SECONDS, BATCH, OUTSTANDING, Rival
from .java_client import JavaClient
from .server import LOOPBACK, Server, find, free_port, program_missing

PROGRAM = "rabbitmq-server"
# What Debian has on the PATH gives up root, and refuses everybody else; this is the server itself.
DEBIAN_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
MAPPER = "epmd"
# Servers that have each version of classic queues: the first, and the first that has it no more.
CLASSIC_VERSIONS = {1: ((0,), (4, 3)), 2: ((3, 10), (1 << 30,))}


class RabbitMq(Rival):
    """Messages are published over one connection and received over another.

    Acknowledgements have no confirm in AMQP; a declaration behind the last one is answered after
    the channel has taken them all.
    """

    _pom = jars.CLIENT_POM
    _plugins: Sequence[str] = ()

    def __init__(self, name: str, queue_arguments: Mapping[str, str | int]) -> None:
        self.name = name
        self.queue_arguments = queue_arguments
        self.port: int = 0
        self.environment: dict[str, str] = {}
        self._server: Server | None = None
        self._client: JavaClient | None = None
        self._versions = ""

    def missing(self) -> str | None:
        return self.server_missing() or java_client.missing(self._pom)

    def server_missing(self) -> str | None:
        """The same, of the server alone."""
        return (
            program_missing(PROGRAM, "rabbitmq-server")
            or program_missing(MAPPER, "erlang-base")
            or self._version_missing()
        )

    def version(self) -> str:
        return self._versions

    def start(self, directory: Path) -> None:
        self.start_server(directory)
        self._client = self._new_client(directory / "client.log")
        self._versions = self._client.connect()

    def start_server(self, directory: Path) -> Server:
        """The server alone; it ends with ``stop``."""
        self.port, mapper_port = free_port(), free_port()
        environment = _environment(directory, self.port, mapper_port, self._plugins)
        self.environment = environment
        Path(environment["RABBITMQ_CONFIG_FILE"] + ".conf").write_text(self._configuration())
        self._server = Server(directory)
        # Else the server would start one that outlives it.
        mapper = [str(find(MAPPER)), "-address", LOOPBACK, "-port", str(mapper_port)]
        self._server.run(mapper, mapper_port, environment)
        self._server.run([str(_program())], self.port, environment)
        return self._server

    def publish_and_wait(self, body: bytes, count: int) -> list[float]:
        return [seconds * 1e6 for seconds in self._running.publish([body], 1, count)]

    def publish_pipelined(self, bodies: Sequence[bytes]) -> None:
        self._running.publish(bodies, OUTSTANDING, 1)

    def publish_batches(self, batch: Sequence[bytes], batches: int) -> None:
        self._running.publish(batch, len(batch), batches)

    def consume(self, count: int) -> list[bytes]:
        return self._running.consume(count, BATCH)

    def clock(self) -> float:
        return self._running.seconds

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
        self.stop_server()

    def stop_server(self) -> None:
        """End the server alone."""
        if self._server is not None:
            self._server.stop()

    def _configuration(self) -> str:
        return ""

    def _new_client(self, log: Path) -> JavaClient:
        given = [self.port, 2 * BATCH, round(ANSWER_SECONDS)]
        declared = [f"{name}={value}" for name, value in self.queue_arguments.items()]
        return JavaClient("Client", self._pom, [*given, *declared], log)

    @property
    def _running(self) -> JavaClient:
        assert self._client is not None
        return self._client

    def _version_missing(self) -> str | None:
        """That the server has no classic queues of this version, if its files tell."""
        version, server = self.queue_arguments.get("x-queue-version"), server_version()
        if version is None or server is None:
            return None
        first, end = CLASSIC_VERSIONS[int(version)]
        if first <= server < end:
            return None
        told = ".".join(map(str, server))
        return f"RabbitMQ {told} has no classic queues of version {version}"


def server_version() -> tuple[int, ...] | None:
    """Of the server that is installed, by the plugin that it is; None when it is not there."""
    for plugin in plugins_folder().glob("rabbit-*"):
        found = re.match(r"rabbit-(\d+)\.(\d+)", plugin.name)
        if found is not None:
            return tuple(map(int, found.groups()))
    return None


def plugins_folder() -> Path:
    """Where the server's plugins are; it is one itself."""
    return _program().resolve().parent.parent / "plugins"


def _program() -> Path:
    return DEBIAN_PROGRAM if DEBIAN_PROGRAM.exists() else Path(str(find(PROGRAM)))


def _environment(
    directory: Path, port: int, mapper_port: int, enabled: Sequence[str]
) -> dict[str, str]:
    """Everything that a node has of its own."""
    for name in ("data", "log", "config"):
        (directory / name).mkdir()
    plugins = directory / "config/enabled_plugins"
    plugins.write_text(f"[{','.join(enabled)}].\n")
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
