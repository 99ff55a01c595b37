"""What tests fetch from registries and make of it: once, below build/foreign."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "build/foreign"
SECONDS = 600


class Missing(Exception):
    """A program that a suite needs is not installed."""


ERRORS = (Missing, RuntimeError, subprocess.TimeoutExpired)
"""What says that something was not to be had."""


def program(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is missing: apt-get install {package}")
    return found


def run(
    *command: str | Path, cwd: Path | None = None, more: Mapping[str, str] | None = None
) -> str:
    """Its output; RuntimeError with that when it fails."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | dict(more or {}),
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def made(name: str, make: Callable[[Path], None]) -> Path:
    """The folder that ``make`` fills, whole or not at all; nothing when it is there."""
    folder = FOLDER / name
    if not folder.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        unfinished = FOLDER / f"{name}.{os.getpid()}"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        try:
            make(unfinished)
            unfinished.rename(folder)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            if not folder.exists():  # or another process was faster
                raise
    return folder


def copy(source: str | Path, folder: Path) -> None:
    """A copy to write in of what a package manager's cache has for reading only."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)
