"""What a process can tell of itself while it works: memory, bytes from the disk, progress."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from .runs import Curve

_SAMPLE_SECONDS = 0.02
_POINTS_MOST = 60


def rss_bytes() -> int:
    """Resident set now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_rss_bytes() -> int:
    """The largest that it ever was, as the kernel saw it."""
    return _number("status", "VmHWM:") << 10


def read_bytes() -> int:
    """What this process had read from the device itself."""
    return _number("io", "read_bytes:")


def _number(file: str, key: str) -> int:
    for line in Path("/proc/self", file).read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1])
    raise ValueError(f"/proc/self/{file} has no {key}")


def forget_pages(path: Path) -> None:
    """Let the next reads of the files below come from the disk, which needs no root this way."""
    for folder, _, names in os.walk(path):
        for name in names:
            descriptor = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


class Sampler(threading.Thread):
    """Notes messages done and memory, many times a second, while something goes on."""

    def __init__(self, idle_bytes: int) -> None:
        super().__init__(daemon=True)
        self.messages = 0
        self._idle = idle_bytes
        self._ended = threading.Event()
        self._began = time.perf_counter()
        self._samples: list[tuple[float, int, int]] = []

    def run(self) -> None:
        """Until curves() is asked for."""
        while not self._ended.wait(_SAMPLE_SECONDS):
            now = time.perf_counter() - self._began
            self._samples.append((now, self.messages, rss_bytes() - self._idle))

    def curves(self) -> dict[str, Curve]:
        """Memory and rate over messages.  Ends the noting."""
        self._ended.set()
        self.join()
        memory = [(float(done), float(rss)) for _, done, rss in _thinned(self._samples)]
        return {"rss_over_idle_bytes": memory, "messages_per_s": rates(self._samples)}


def rates(samples: Sequence[tuple[float, int, int]]) -> Curve:
    """Messages a second over messages, from (seconds, messages, anything)."""
    step = max(1, len(samples) // _POINTS_MOST)
    return [
        (float(done), (done - before) / (end - begin))
        for (begin, before, _), (end, done, _) in itertools.pairwise(samples[::step])
        if done > before
    ]


def _thinned(samples: Sequence[tuple[float, int, int]]) -> Sequence[tuple[float, int, int]]:
    return samples[:: max(1, len(samples) // _POINTS_MOST)]
