"""``pyqstore serve`` as a process of its own."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

START_S = 60
_RUN = "import runpy; runpy.run_module('pyqstore', run_name='__main__', alter_sys=True)"


# What a service manager does: descriptors from 3 on, and whose they are.
_PASS = """
import os, sys
sockets = [int(number) for number in sys.argv[1].split(",")]
for number, own in enumerate(sockets, 3):
    os.dup2(own, number)
os.environ |= {"LISTEN_FDS": str(len(sockets)), "LISTEN_PID": str(os.getpid())}
os.execv(sys.argv[2], sys.argv[2:])
"""


class Served:
    """A process that serves a store; ``planted`` is code that it runs first, ``passed`` are sockets
    that it has from its service manager."""

    def __init__(
        self,
        directory: Path,
        *options: str,
        planted: str = "",
        passed: Sequence[socket.socket] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        # Clear of those that they will be.
        sockets = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 100) for each in passed]
        numbers = ",".join(map(str, sockets))
        self.ready = directory.with_name(f"{directory.name}.ready")
        self.ready.unlink(missing_ok=True)  # of one that was killed
        self.process = subprocess.Popen(
            [
                *((sys.executable, "-c", _PASS, numbers) if passed else ()),
                *(sys.executable, "-X", "faulthandler"),
                *(("-c", f"{planted}\n{_RUN}") if planted else ("-m", "pyqstore")),
                *("serve", str(directory), *options, "--ready-file", str(self.ready)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=sockets,
            env={**os.environ, **(environment or {})},
        )
        for each in sockets:
            os.close(each)

    def addresses(self) -> dict[str, str]:
        """Once all accept."""
        end = time.monotonic() + START_S
        while not self.ready.exists():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < end
            time.sleep(0.01)
        found: dict[str, str] = json.loads(self.ready.read_text())
        return found

    def end(self, number: int = signal.SIGTERM, seconds: float = 30) -> tuple[int, str, str]:
        """Exit status, what it printed, and its complaints."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out, err


@contextmanager
def served(
    directory: Path,
    *options: str,
    planted: str = "",
    passed: Sequence[socket.socket] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Served]:
    """It is killed at the end, if it is still there."""
    one = Served(directory, *options, planted=planted, passed=passed, environment=environment)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.communicate()


def resident(pid: int) -> int:
    """Bytes of memory that a process has now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
