"""Servers that the benchmark runs itself: found, started on loopback, waited for, ended.

A server has a session of its own: Ctrl-C in the terminal reaches the benchmark alone, which then
ends the server and everything it started.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

LOOPBACK = "127.0.0.1"
START_SECONDS = 120.0
STOP_SECONDS = 10.0
# Below those that the kernel gives to connections.
_PORTS = (10_000, 32_000)
# Debian puts servers where the PATH of an ordinary user does not lead.
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def find(program: str) -> str | None:
    """Where a server's program is."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *SYSTEM_FOLDERS])
    return shutil.which(program, path=path)


def program_missing(program: str, package: str) -> str | None:
    """How to get a server that is not there."""
    if find(program) is not None:
        return None
    return f"there is no {program}: apt-get install {package}"


def output(*command: str) -> str:
    """What a program prints, both streams."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=START_SECONDS
    )
    return done.stdout.strip()


def free_port() -> int:
    """A port that nobody listened to a moment ago.  The kernel gives it to no connection, so that a
    server that is started again has it again."""
    while True:
        port = random.SystemRandom().randrange(*_PORTS)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((LOOPBACK, port))
            return port


class Server:
    """Processes of one rival, with what they print in one file."""

    def __init__(self, directory: Path) -> None:
        self._log = directory / "output.log"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._program = ""

    def run(
        self, command: Sequence[str], port: int, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a program and return when it listens."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._log.parent,
                env=dict(os.environ) | dict(environment or {}),
                start_new_session=True,
            )
        self._processes.append(process)
        self._program = command[0]
        self.wait_until_it_listens(port)

    def wait_until_it_listens(self, port: int) -> None:
        """Return when the program that was started last listens there, too."""
        process, program = self._processes[-1], self._program
        deadline = time.monotonic() + START_SECONDS
        while not listens(port):
            if process.poll() is not None:
                raise RuntimeError(self._told(f"{program} ended at once"))
            if time.monotonic() > deadline:
                raise RuntimeError(self._told(f"{program} did not listen in time"))
            time.sleep(0.02)

    def processes(self) -> list[psutil.Process]:
        """All that run, and what they started."""
        return [member for process in self._processes for member in _family(process)]

    def stop(self) -> None:
        """End all of them, the last that was started first."""
        while self._processes:
            end(self._processes.pop())

    def kill(self) -> None:
        """Kill all of them, as a crash does."""
        while self._processes:
            process = self._processes.pop()
            for member in _family(process):
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            process.wait()

    def _told(self, what: str) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join([what + "; it said:", *lines[-20:]])


def listens(port: int) -> bool:
    """Whether a connection to a port on loopback is taken."""
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
        return True
    return False


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all below it, those with sessions of their own, too.

    First kindly, for files are to be closed before they are removed; then for sure.
    """
    family = _family(process)
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.terminate()
    _, alive = psutil.wait_procs(family, timeout=STOP_SECONDS)
    for member in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    # Whoever was forked meanwhile is in the session at least.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        head = psutil.Process(process.pid)
        return [head, *head.children(recursive=True)]
    return []
