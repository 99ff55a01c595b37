"""A step of the demonstration in processes of its own, which can be killed at a chosen moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .flights import DemoError

_LOOK_S = 0.002
_ENDED = "ZX"
_STOPPED = "Tt" + _ENDED


class Step:
    """A step that runs; whatever is left of it ends with the block."""

    def __init__(self, name: str, path: Path, scratch: Path) -> None:
        """As ``flights.run_step``."""
        self._name = name
        self._log = scratch / "log"
        command = [sys.executable, "-P", "-m", "spark_udfs", "step", name]
        # What pyspark has there while it starts Java goes with the rest, whatever is killed when.
        environment = {**os.environ, "TMPDIR": str(scratch)}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--path", str(path), "--scratch", str(scratch)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # with its Java and that one's workers, in Python
            )

    def __enter__(self) -> Step:
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()

    def finish(self, look: Callable[[], object]) -> None:
        """Wait until it is done, and call ``look`` all the while.

        Raises:
            DemoError: it failed; with its last words.
        """
        while self._process.poll() is None:
            look()
            time.sleep(_LOOK_S)
        if self._process.returncode != 0:
            words = self._log.read_text(encoding="utf-8", errors="replace")[-3000:]
            raise DemoError(f"the step '{self._name}' failed; its last words:\n{words}")

    def kill_when(self, state: Callable[[], bool], look: Callable[[], object]) -> None:
        """Kill it (SIGKILL, all of its processes) in the state that a function tells.

        The processes are stopped before that is asked for the last time, so it still holds when
        they are killed.

        Raises:
            DemoError: it came to its end before.
        """
        while not self._stopped_in(state):
            look()
            if self._process.poll() is not None:
                self.finish(look)
                raise DemoError(f"the step '{self._name}' was done before it could be killed")
            time.sleep(_LOOK_S)
        self._kill()

    def _stopped_in(self, state: Callable[[], bool]) -> bool:
        if not state():
            return False
        self._send(signal.SIGSTOP, until=_STOPPED)
        if state():
            return True
        self._send(signal.SIGCONT)
        return False

    def _kill(self) -> None:
        self._send(signal.SIGKILL, until=_ENDED)
        self._process.wait()

    def _send(self, number: signal.Signals, until: str | None = None) -> None:
        """To all that run; again and again until all of them are in one of the states ``until``.

        To children before their parents: Linux lets a stopped process go on when its parent ends
        and nothing else holds its group, and it would run until its own turn comes.
        """
        while True:
            for process, state in sorted(self._processes().items(), reverse=True):
                if state not in (until or _ENDED):
                    with suppress(ProcessLookupError):
                        os.kill(process, number)
            if until is None or all(state in until for state in self._processes().values()):
                return
            time.sleep(_LOOK_S)

    def _processes(self) -> dict[int, str]:
        """The state of each process of the session, as proc(5) names it."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    state, _, _, session, *_ = (
                        (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                    )
                    if int(session) == self._process.pid:
                        found[int(entry.name)] = state
        return found
