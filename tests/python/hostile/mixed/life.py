"""One worker: a process that lives by its plan, until it ends in good order or is killed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

_PROGRAM = Path(__file__).with_name("worker.py")
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_SECONDS = 240.0  # a wait that only a fault reaches


def die_with_parent() -> None:
    """Called in a child before it becomes another program."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Worker:
    """A process that waits for its plan; a thread reads all that it tells."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=die_with_parent,
        )
        self._said = bytearray()
        self._errors = b""
        self._news = threading.Condition()
        self._is_over = False
        self._readers = [
            threading.Thread(target=self._read_story, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_story(self) -> None:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while part := os.read(descriptor, 2**16):
            with self._news:
                self._said += part
                self._news.notify_all()
        with self._news:
            self._is_over = True
            self._news.notify_all()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._errors = self._process.stderr.read()

    def say(self, text: str) -> None:
        """A line to the worker, which may be dead."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(text.encode() + b"\n")
            self._process.stdin.flush()

    def wait_for_phase(self, phase: str) -> None:
        """Return when the worker is in ``phase``, or over."""
        wanted = f'"phase","{phase}"'.encode()
        self._wait_for(lambda: wanted in self._said)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait_for_confirm(self) -> None:
        """Return when the worker told of one, or is over."""
        self._wait_for(lambda: b',"confirm",' in self._said)

    def wait_until_over(self) -> None:
        self._wait_for(lambda: False)

    def _wait_for(self, happened: Callable[[], bool]) -> None:
        """Until it happened or the worker is over.  One that hangs is aborted, and tells where."""
        with self._news:
            in_time = self._news.wait_for(lambda: self._is_over or happened(), _SECONDS)
            if not in_time:
                self._process.send_signal(signal.SIGABRT)
                self._news.wait_for(lambda: self._is_over, _SECONDS)

    def end(self) -> None:
        """Kill it if it lives; read what is left of its words."""
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    @property
    def said(self) -> bytes:
        return bytes(self._said)

    @property
    def failure(self) -> str:
        """Why it ended, unless by a kill or in good order."""
        status = self._process.returncode
        if status in (0, -signal.SIGKILL):
            return ""
        return f"the worker ended with {status}: {self._errors.decode(errors='replace')[-3000:]}"


class Workers:
    """A worker is started while another one works: importing takes longer than a short life."""

    def __init__(self) -> None:
        self._next = Worker()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._next.end()

    def take(self) -> Worker:
        taken, self._next = self._next, Worker()
        return taken
