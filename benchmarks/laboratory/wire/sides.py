"""Who is under load: `pyqstore serve` and RabbitMQ, each a process of its own on loopback."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyqstore.bench.runs import Progress

from ..rivals.rabbitmq import RabbitMq, server_version
from ..rivals.server import LOOPBACK, Server, free_port

SERVE = "pyqstore serve"
SERVE_TLS = "pyqstore serve, TLS"
RABBITMQ = "RabbitMQ"
CLASSIC_V1 = "RabbitMQ classic v1"
CLASSIC_V2 = "RabbitMQ classic v2"
QUORUM = "RabbitMQ quorum"
_ARGUMENTS: dict[str, dict[str, str | int]] = {
    CLASSIC_V1: {"x-queue-version": 1},
    CLASSIC_V2: {"x-queue-version": 2},
    QUORUM: {"x-queue-type": "quorum"},
}


@dataclass(frozen=True)
class Side:
    """A server and a kind of queues."""

    name: str
    port: int
    server: Server
    argument: str = ""
    """Of its queues: NAME=VALUE, or none."""
    scheme: str = "amqp"

    @property
    def uri(self) -> str:
        """For clients that take one."""
        return f"{self.scheme}://guest:guest@{LOOPBACK}:{self.port}"

    def resident_bytes(self) -> int:
        """Of all of its processes."""
        return sum(process.memory_info().rss for process in self.server.processes())

    def descriptors(self) -> int:
        """Open in all of its processes."""
        return sum(process.num_fds() for process in self.server.processes())

    def processor_seconds(self) -> float:
        """That its processes have taken until now."""
        times = [process.cpu_times() for process in self.server.processes()]
        return float(sum(each.user + each.system for each in times))


@dataclass(frozen=True)
class Sides:
    """All that run, pyqstore first, and why others do not."""

    ours: Side
    others: tuple[Side, ...] = ()
    left_out: str | None = None
    over_tls: Side | None = None
    """Ours, by its other address; None: there is no openssl to make a certificate with."""

    @property
    def queues(self) -> tuple[Side, ...]:
        """One for each kind of queues."""
        return (self.ours, *self.others)

    @property
    def servers(self) -> tuple[Side, ...]:
        """One for each server, by its name alone."""
        first = [Side(RABBITMQ, each.port, each.server) for each in self.others[:1]]
        return (self.ours, *first)


@contextmanager
def started(directory: Path, progress: Progress) -> Iterator[Sides]:
    """Run both servers, or ours alone where RabbitMQ is not installed; end them with the block."""
    node = RabbitMq(RABBITMQ, {})
    why = node.server_missing()
    with ExitStack() as running:
        progress(f"starting {SERVE}", 0, 2)
        ours, over_tls = _served(_folder(directory, "pyqstore"), running)
        if why is not None:
            yield Sides(ours, left_out=why, over_tls=over_tls)
            return
        progress(f"starting {RABBITMQ}", 1, 2)
        running.callback(node.stop)
        server = node.start_server(_folder(directory, "rabbitmq"))
        yield Sides(ours, tuple(_kinds(node, server)), over_tls=over_tls)


def version() -> str:
    """Of the server that is installed."""
    return ".".join(map(str, server_version() or ("of an unknown version",)))


def _folder(directory: Path, name: str) -> Path:
    own = directory / name
    own.mkdir()
    return own


def _served(directory: Path, running: ExitStack) -> tuple[Side, Side | None]:
    port, server = free_port(), Server(directory)
    running.callback(server.stop)
    # -P: the installed package, whatever lies in the current directory.
    command = [sys.executable, "-P", "-m", "pyqstore", "serve", str(directory / "store")]
    command += ["--listen", f"amqp://{LOOPBACK}:{port}"]
    over_tls = None
    if _has_certificate(directory):
        other = free_port()
        command += ["--listen", f"amqps://{LOOPBACK}:{other}"]
        command += ["--tls-cert", str(directory / "cert.pem"), "--tls-key"]
        command += [str(directory / "key.pem")]
        over_tls = Side(SERVE_TLS, other, server, scheme="amqps")
    server.run(command, port)
    return Side(SERVE, port, server), over_tls


def _has_certificate(directory: Path) -> bool:
    """Made now, for this machine alone, of the kind that servers have."""
    if shutil.which("openssl") is None:
        return False
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext"]
    command += [f"subjectAltName=IP:{LOOPBACK}", "-keyout", str(directory / "key.pem")]
    command += ["-out", str(directory / "cert.pem")]
    return subprocess.run(command, capture_output=True).returncode == 0


def _kinds(node: RabbitMq, server: Server) -> Iterator[Side]:
    """The kinds of queues that this version of the server has."""
    for name, arguments in _ARGUMENTS.items():
        if RabbitMq(name, arguments).server_missing() is None:
            ((key, value),) = arguments.items()
            yield Side(name, node.port, server, f"{key}={value}")
