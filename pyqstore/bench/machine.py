"""What it ran on: numbers without the machine they are from say little."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import psutil

from .. import _core
from .runs import Progress

_MEMORY = ("tmpfs", "ramfs")
QUIET_LOAD = 0.5
QUIET_S = 600.0
_LOOK_S = 2.0


def facts(directory: Path) -> dict[str, str]:
    """The machine, and the disk under a directory, by name for people to read."""
    return {**_computer(), **_software(), **_disk(directory)}


def in_memory(machine: dict[str, str]) -> bool:
    """Whether that directory is no disk at all."""
    return machine["file system"] in _MEMORY


@dataclass
class Quiet:
    """Waits before a round until the machine does nothing else, and fails when that takes long."""

    progress: Progress
    load: Callable[[], float] = lambda: os.getloadavg()[0]
    sleep: Callable[[float], object] = time.sleep
    _found: list[float] = field(default_factory=list, init=False)

    def __call__(self, what: str) -> None:
        """The last round's own load fades first: to a seventh in two minutes."""
        for look in range(int(QUIET_S / _LOOK_S)):
            if (load := self.load()) < QUIET_LOAD:
                self._found.append(load)
                return
            self.progress(f"{what}: the load is {load:.2f}, waiting", look, int(QUIET_S / _LOOK_S))
            self.sleep(_LOOK_S)
        raise RuntimeError(
            f"{what}: the load is {self.load():.2f}, and was never below {QUIET_LOAD} for"
            f" {QUIET_S / 60:.0f} minutes: end what else runs here, or measure without --quiet"
        )

    def told(self) -> str:
        """The load before each round that counts."""
        return " ".join(f"{load:.2f}" for load in self._found)


def _computer() -> dict[str, str]:
    cores = psutil.cpu_count(logical=False)
    return {
        "processor": _processor(),
        "cores": f"{cores or 'unknown'}, {psutil.cpu_count()} logical,"
        f" {len(os.sched_getaffinity(0))} for this process",
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg()) + " (1, 5, 15 minutes)",
    }


def _processor() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", _read(Path("/proc/cpuinfo")), re.M)
    return found[1] if found else platform.machine()


def _software() -> dict[str, str]:
    core = Path(_core.__file__)
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "pyarrow": version("pyarrow"),
        "pyqstore": f"{version('pyqstore')}, {core.name}, built from sources {_source_hash()[:12]}",
    }


def _source_hash() -> str:
    """The hash that the build compiles into the extension: two builds of a version differ in it."""
    hash_type = ctypes.c_char * 64
    return hash_type.in_dll(ctypes.PyDLL(_core.__file__), "qs_source_hash").value.decode()


def _disk(directory: Path) -> dict[str, str]:
    path = directory.resolve()
    mounts = [
        mount for mount in psutil.disk_partitions(all=True) if path.is_relative_to(mount.mountpoint)
    ]
    if not mounts:
        return {"file system": "unknown"}
    # The last one of the longest: a mount hides the one beneath it.
    mount = max(reversed(mounts), key=lambda each: len(each.mountpoint))
    return {
        "file system": mount.fstype,
        "mount options": mount.opts,
        "device": mount.device,
        **_block_device(path.stat().st_dev),
    }


def _block_device(number: int) -> dict[str, str]:
    """What the kernel tells of the disk, or of the one that a partition is on."""
    folder = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not folder.exists():
        return {}
    folder = folder.resolve()
    if (folder / "partition").exists():
        folder = folder.parent
    queue = folder / "queue"
    scheduler = _read(queue / "scheduler")
    chosen = re.search(r"\[(.+?)\]", scheduler)
    told = {
        "model": _read(folder / "device/model"),
        "scheduler": chosen[1] if chosen else scheduler,
        "rotational": {"0": "no", "1": "yes"}.get(_read(queue / "rotational"), ""),
        "write cache": _read(queue / "write_cache"),
    }
    return {name: value for name, value in told.items() if value}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
