"""Functions in processes of their own: for memory that is theirs alone, and to be killed.

A child is asked in JSON and answers with a line of it.  One that is to leave its store as a crash
would says so and waits for SIGKILL.
"""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from . import laboratory

Figures = dict[str, Any]


def command(function: Callable[..., Figures], **arguments: object) -> list[str]:
    """What runs a module's function in a process of its own."""
    place = laboratory.folder() if function.__module__.startswith(laboratory.PACKAGE) else None
    called = [place, function.__module__, function.__qualname__, arguments]
    # -P: the installed package, whatever lies in the current directory.
    return [sys.executable, "-P", "-m", __name__, json.dumps(called, default=str)]


def call(function: Callable[..., Figures], **arguments: object) -> Figures:
    """Run it; what it returned."""
    started = command(function, **arguments)
    with subprocess.Popen(started, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline() or "{}")
            if told.get("kill"):
                process.kill()
            code = process.wait()
        except BaseException:
            process.kill()
            raise
    if "figures" not in told or code != (-signal.SIGKILL if told["kill"] else 0):
        raise RuntimeError(f"{function.__qualname__} ended with {code} in its process")
    figures: Figures = told["figures"]
    return figures


def end_by_kill(figures: Figures) -> NoReturn:
    """In a child: answer, and be killed with everything open."""
    _tell(figures, kill=True)
    while True:
        signal.pause()


def _tell(figures: Figures, *, kill: bool) -> None:
    sys.stdout.write(json.dumps({"figures": figures, "kill": kill}) + "\n")
    sys.stdout.flush()


def main(request: str) -> None:
    """The child."""
    place, module, name, arguments = json.loads(request)
    if place is not None:
        laboratory.load(Path(place))
    _tell(getattr(importlib.import_module(module), name)(**arguments), kill=False)


if __name__ == "__main__":
    main(sys.argv[1])
