"""A RabbitMQ node of our own: on free loopback ports, in a directory of its own, gone with its
test."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pika
import pika.exceptions

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


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class Broker:
    """``start`` to ``stop``: a node that listens on 127.0.0.1, ``port``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

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

    def stop(self) -> None:
        """Return when the node's processes are gone."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._process = None

    def _launch(self, home: Path) -> None:
        home.mkdir(parents=True)
        self.port, node_port, names_port = free_ports(3)
        (home / "rabbitmq.conf").write_text(CONFIGURATION.format(port=self.port))
        (home / "plugins").write_text("[].\n")
        environment = {
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
        with open(home / "output", "wb") as output:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", GUARD, SERVER],
                cwd=home,
                env=environment,
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
