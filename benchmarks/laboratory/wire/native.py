"""The clients in C: benchmarks/native/bench_wire.c, and bench_embedded.c, which has no wire."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WIRE = "bench_wire"
EMBEDDED = "bench_embedded"
FOLDER = "build/release/benchmarks"
BUILT_BY = "cmake --preset release && cmake --build --preset release"
_SECONDS = 300.0
Told = Mapping[str, Any]


@dataclass(frozen=True)
class Programs:
    """Both of them, in a folder."""

    folder: Path

    def missing(self) -> str | None:
        """How to get one that is not there."""
        for name in (WIRE, EMBEDDED):
            if not (self.folder / name).is_file():
                return f"there is no {self.folder / name}: {BUILT_BY}, in the clone"
        return None

    def wire(self, load: str, port: int, *arguments: object) -> Told:
        """A load on a server, until it has ended."""
        return self._run(WIRE, load, port, *arguments)

    def embedded(self, *arguments: object) -> Told:
        """The load without a wire."""
        return self._run(EMBEDDED, *arguments)

    def heartbeats(self, port: int, each_s: int, seconds: float) -> Told:
        """How long each heartbeat of a server took to come."""
        return self._run(WIRE, "heartbeats", port, each_s, seconds)

    @contextmanager
    def idle(self, port: int, connections: int, heartbeat_s: int) -> Iterator[Told]:
        """Connections that are open inside of the block."""
        command = [self.folder / WIRE, "idle", port, connections, heartbeat_s]
        with subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            try:
                line = process.stdout.readline()
                if not line:
                    _, errors = process.communicate()
                    raise RuntimeError(f"{WIRE} idle: {errors.strip()}")
                yield json.loads(line)
                _, errors = process.communicate(timeout=_SECONDS)
            except BaseException:
                process.kill()
                raise
        if process.returncode:  # a server that ended some of them made it fail
            raise RuntimeError(f"{WIRE} idle: {errors.strip() or f'status {process.returncode}'}")

    def _run(self, name: str, *arguments: object) -> Told:
        done = subprocess.run(
            [str(self.folder / name), *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr.strip() or f'status {done.returncode}'}")
        told: Told = json.loads(done.stdout)
        return told
