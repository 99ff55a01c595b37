"""A tool in a process of its own: it forks, and tests' processes have threads."""

import subprocess
import sys
from pathlib import Path

_SOAK = Path(__file__).with_name("soak.py")


def run_apart(tool: str, seed: int, seconds: float) -> None:
    """Run a tool as ``./dev soak`` does; it must find nothing."""
    command = [sys.executable, str(_SOAK), tool, "--seed", str(seed)]
    ended = subprocess.run(
        [*command, "--minutes", str(seconds / 60)], capture_output=True, text=True, check=False
    )
    print(ended.stdout)
    assert ended.returncode == 0, ended.stdout + ended.stderr
