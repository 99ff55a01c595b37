"""A RabbitMQ node of our own: on free loopback ports, in a directory of its own, gone with its
test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from base64 import b64encode
from pathlib import Path

import pika
import pika.exceptions

from benchmarks.laboratory.rivals.server import free_port

SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # what the system's command runs as another user
ATTEMPTS = 3
START_SECONDS = 90

# One process group: the shell, Erlang's name server in the foreground, the node. It ends as a whole
# when the node does, and when nobody holds the other end of the shell's standard input: that of a
# test which was killed is closed, too. Helpers of the node end when it is gone.
GUARD = """
epmd -port "$ERL_EPMD_PORT" -address "$ERL_EPMD_ADDRESS" &
("$0"; kill -KILL 0) &
read -r nothing
kill -KILL 0
"""

CONFIGURATION = """
listeners.tcp.local = 127.0.0.1:{port}
disk_free_limit.absolute = 1MB
vm_memory_high_watermark.absolute = 2GB
log.file.level = warning
"""


def is_installed() -> bool:
    return Path(SERVER).exists() and shutil.which("epmd") is not None


# Counters of every kind, told soon.
MANAGEMENT = """
management.tcp.ip = 127.0.0.1
management.tcp.port = {port}
collect_statistics = fine
collect_statistics_interval = 200
prometheus.tcp.ip = 127.0.0.1
prometheus.tcp.port = {metrics_port}
"""


class Broker:
    """``start`` to ``stop``: a node that listens on 127.0.0.1, ``port``; with ``managed`` also on
    ``management_port`` and ``metrics_port``, for HTTP."""

    def __init__(self, directory: Path, managed: bool = False) -> None:
        self.directory = directory
        self.managed = managed
        self.port = self.management_port = self.metrics_port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._home = directory
        self._environment: dict[str, str] = {}

    def start(self) -> None:
        """Return when it accepts connections.  Another process may take a free port first: then
        again."""
        for attempt in range(ATTEMPTS):
            home = self.directory / str(attempt)
            self._launch(home)
            if self._answers():
                return
            self.stop()
        told = [path.read_text(errors="replace") for path in (home / "output", *home.glob("log/*"))]
        raise RuntimeError("RabbitMQ did not start:\n" + "\n".join(told))

    def parameters(self) -> pika.ConnectionParameters:
        return pika.ConnectionParameters("127.0.0.1", self.port, heartbeat=0, socket_timeout=30)

    def manage(self, method: str, path: str, **given: str) -> bytes:
        """What the management plugin answers."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.management_port}/api/{path}",
            json.dumps(given).encode() if given else None,
            {"Authorization": "Basic " + b64encode(b"guest:guest").decode()},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bytes(answer.read())

    def stop(self) -> None:
        """Kill the node's processes, and return when they are gone."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Kill the node, and start it again with the same ports and what its disk has."""
        for _ in range(ATTEMPTS):
            self.stop()
            self._run()
            if self._answers():
                return
        told = (self._home / "output").read_text(errors="replace")
        raise RuntimeError(f"RabbitMQ did not start again:\n{told}")

    def sync(self) -> None:
        """What was declared is on the disk, so that a kill leaves it."""
        self.control("eval", "mnesia:dump_log().")

    def control(self, *words: str) -> None:
        """Run rabbitmqctl for the node."""
        program = Path(SERVER).with_name("rabbitmqctl")
        subprocess.run(
            [program, "-n", self._environment["RABBITMQ_NODENAME"], *words],
            env=self._environment,
            cwd=self._home,
            check=True,
            capture_output=True,
            timeout=START_SECONDS,
        )

    def _launch(self, home: Path) -> None:
        home.mkdir(parents=True)
        self.port, self.management_port, self.metrics_port, *others = (
            free_port() for _ in range(5)
        )
        node_port, names_port = others
        configuration = CONFIGURATION.format(port=self.port)
        if self.managed:
            configuration += MANAGEMENT.format(
                port=self.management_port, metrics_port=self.metrics_port
            )
        (home / "rabbitmq.conf").write_text(configuration)
        plugins = "rabbitmq_management, rabbitmq_prometheus" if self.managed else ""
        (home / "plugins").write_text(f"[{plugins}].\n")
        self._home = home
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),  # of the node's cookie
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(names_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"pyqstore-{os.getpid()}@localhost",
            "RABBITMQ_DIST_PORT": str(node_port),
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        self._run()

    def _run(self) -> None:
        with open(self._home / "output", "ab") as output:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", GUARD, SERVER],
                cwd=self._home,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _answers(self) -> bool:
        assert self._process is not None
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self._process.poll() is None:
            try:
                pika.BlockingConnection(self.parameters()).close()
                return True
            except pika.exceptions.AMQPConnectionError:
                time.sleep(0.1)
        return False
