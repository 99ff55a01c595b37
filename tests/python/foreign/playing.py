"""Running other projects' programs and reading what they say."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

Fetched = Callable[[Callable[[], Any]], Any]
SECONDS = 240


def played(
    *command: str | Path,
    cwd: Path,
    stderr: int | IO[bytes] = subprocess.STDOUT,
    seconds: float = SECONDS,
    **more: str,
) -> tuple[int, str]:
    """Exit status and output."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | more,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        timeout=seconds,
        check=False,
    )
    return done.returncode, done.stdout


def passed_by_pytest(said: str) -> int:
    """How many tests its last line counts."""
    return int((re.findall(r"\b(\d+) passed\b", said) or ["0"])[-1])
