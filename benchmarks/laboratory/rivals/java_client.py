"""A Java client in a process of its own, one of ``java/*Client.java``, and the pipes to it.

It times what it does, so that handing bodies over is no part of what is measured.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from . import jars
from .server import end

COMPILER = "javac"
_OK = 0
_SAID_LINES = 20


def find_java() -> str | None:
    """The ``java`` of a JDK, which compiles, too: JAVA_HOME's, or that of the PATH."""
    homes = [Path(home) for home in [os.environ.get("JAVA_HOME")] if home]
    if (found := shutil.which(COMPILER)) is not None:
        homes.append(Path(found).resolve().parent.parent)
    for home in homes:
        if (home / "bin" / COMPILER).exists() and (home / "bin/java").exists():
            return str(home / "bin/java")
    return None


def missing(pom: Path = jars.CLIENT_POM) -> str | None:
    """What is not installed and how to get it; None when all is there."""
    if find_java() is None:
        return f"there is no {COMPILER}: apt-get install openjdk-17-jdk-headless"
    return jars.missing(pom)


def java(pom: Path, *options: str) -> list[str]:
    """A command that runs classes of a pom's jars."""
    return [str(find_java()), "-XX:-UsePerfData", *options, "-cp", str(jars.folder(pom) / "*")]


class JavaClient:
    """One queue of one server; ``seconds`` is the time that it worked until now.

    The class is that of a source in ``java``; it is compiled beside the log, with what it uses.
    """

    def __init__(self, name: str, pom: Path, arguments: Sequence[str | int], log: Path) -> None:
        self._name = name
        self._log = log
        self.seconds: float = 0.0
        classes = log.parent / "classes"
        *command, path = java(pom)
        with log.open("ab") as errors:
            _compile(name, path, classes, errors)
            self._process = subprocess.Popen(
                [*command, f"{classes}{os.pathsep}{path}", name, *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=log.parent,
                start_new_session=True,
            )

    def connect(self) -> str:
        """Wait until the queue is declared; what exactly is connected to what."""
        self._begin_answer()
        return self._text()

    def publish(self, bodies: Sequence[bytes], outstanding: int, times: int) -> list[float]:
        """Publish all bodies so often, at most so many unconfirmed; the seconds of each time."""
        request = struct.pack(">cIII", b"p", outstanding, times, len(bodies))
        lengths = struct.pack(f">{len(bodies)}I", *map(len, bodies))
        self._send(request, lengths, b"".join(bodies))
        seconds = struct.unpack(f">{times}d", self._read(8 * times))
        self.seconds += sum(seconds)
        return list(seconds)

    def consume(self, count: int, ack_every: int) -> list[bytes]:
        """Receive so many bodies and acknowledge them, so many at once."""
        self._send(struct.pack(">cII", b"c", ack_every, count))
        (seconds,) = struct.unpack(">d", self._read(8))
        self.seconds += seconds
        lengths = struct.unpack(f">{count}I", self._read(4 * count))
        return [self._read(length) for length in lengths]

    def ask(self, request: str) -> str:
        """What it answers to a text."""
        said = request.encode()
        self._send(struct.pack(">cI", b"s", len(said)), said)
        return self._text()

    def close(self) -> None:
        """End it; harmless when it ended already."""
        end(self._process)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _send(self, *parts: bytes) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError):  # its answer, or what it said, tells why
            pipe.writelines(parts)
            pipe.flush()
        self._begin_answer()

    def _begin_answer(self) -> None:
        if self._read(1)[0] != _OK:
            raise RuntimeError(f"the Java client {self._name} failed: {self._text()}")

    def _text(self) -> str:
        (length,) = struct.unpack(">I", self._read(4))
        return self._read(length).decode()

    def _read(self, count: int) -> bytes:
        pipe = self._process.stdout
        assert pipe is not None
        found = pipe.read(count)
        if len(found) < count:
            lines = self._log.read_text(errors="replace").splitlines()[-_SAID_LINES:]
            told = [f"the Java client {self._name} ended; it said:", *lines]
            raise RuntimeError("\n".join(told))
        return found


def _compile(name: str, path: str, classes: Path, errors: IO[bytes]) -> None:
    compiler = Path(str(find_java())).parent / COMPILER
    sources = ["-sourcepath", str(jars.JAVA), str(jars.JAVA / f"{name}.java")]
    command = [str(compiler), "-d", str(classes), "-cp", path, *sources]
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, check=True)
