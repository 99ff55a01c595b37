"""Whether a rival syncs before it answers: counted, not believed.

Each rival runs once more, in a process of its own below strace, which follows it into every thread
and every server that it starts.  Two files that this process makes, before the first message and
after the last answer, bound what is counted in strace's log.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from pyqstore.bench import child
from pyqstore.bench.child import Figures

from .known import known
from .server import end

MESSAGES = 100
BEGIN, END = "counting-begins", "counting-ends"
"""The two files."""
_BODY = b"x" * 100
_SECONDS = 180.0
_OPENS = ("open", "openat", "openat2")
_SYNCS = ("fsync", "fdatasync", "syncfs", "sync")
_WRITES = ("write", "writev", "pwrite64", "pwritev", "pwritev2")
# sync_file_range is none: it leaves the file's length and the disk's own cache as they are.
_CALLS = ",".join(f"?{name}" for name in (*_OPENS, *_SYNCS, *_WRITES, "msync"))
_LINE = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (.+)$")
# Names of files, which may say anything.
_NAMES = re.compile(r'"[^"]*"|<[^>]*>')
_SYNCED = re.compile(r"\bO_D?SYNC\b")
# Calls that succeeded, each when it is done; descriptors with the files they stand for.
_STRACE = (
    "strace",
    "-f",
    "--seccomp-bpf",
    "-z",
    "-y",
    "-s",
    "0",
    "-e",
    "signal=none",
    "-e",
    f"trace={_CALLS}",
)


def uncountable() -> str | None:
    """Why nothing can be counted here; None when it can."""
    if shutil.which("strace") is None:
        return "there is no strace (apt-get install strace)"
    tried = subprocess.run([*_STRACE, "true"], capture_output=True, text=True, check=False)
    return f"strace may not trace: {tried.stderr.strip()}" if tried.returncode else None


def syncs_per_answer(names: Sequence[str], directory: Path) -> dict[str, float]:
    """For each rival, by its name; all at once, for nothing is timed."""
    with ExitStack() as ended:
        logs: dict[str, Path] = {}
        processes = {}
        for place, name in enumerate(names):
            own = directory / f"counted-{place}"
            own.mkdir()
            logs[name] = directory / f"counted-{place}.strace"
            processes[name] = _started(name, own, logs[name])
            ended.callback(shutil.rmtree, own)
            ended.callback(end, processes[name])
        for name, process in processes.items():
            told, _ = process.communicate(timeout=_SECONDS)
            if process.returncode:
                last = told.decode(errors="replace")[-2000:]
                raise RuntimeError(f"{name} failed below strace:\n{last}")
        texts = {name: log.read_text(errors="replace") for name, log in logs.items()}
        return {name: counted(text) / MESSAGES for name, text in texts.items()}


def counted(log: str) -> int:
    """How many syncs a log of strace has between the two files."""
    count = 0
    counting = False
    synced: set[str] = set()
    for line in log.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        call, arguments, result = found.groups()
        if call in _OPENS:
            if END in arguments:
                return count
            counting = counting or BEGIN in arguments
            flags = _NAMES.sub("", arguments)
            (synced.add if _SYNCED.search(flags) else synced.discard)(result)
        elif counting:
            count += _is_sync(call, arguments, synced)
    raise ValueError("the log of strace ends before the last answer")


def _is_sync(call: str, arguments: str, synced: set[str]) -> bool:
    if call == "msync":
        return "MS_SYNC" in arguments
    if call in _WRITES:
        file = arguments.partition(">")[0] + ">"
        return file in synced or "RWF_SYNC" in arguments or "RWF_DSYNC" in arguments
    return call in _SYNCS


def publish(name: str, directory: str) -> Figures:
    """What runs below strace: so many messages, each answered before the next, when as many were
    before."""
    rival, own = known()[name], Path(directory)
    (own / "data").mkdir()
    try:
        rival.start(own / "data")
        rival.publish_and_wait(_BODY, MESSAGES)
        (own / BEGIN).touch()
        rival.publish_and_wait(_BODY, MESSAGES)
        (own / END).touch()
    finally:
        rival.stop()
    return {}


def _started(name: str, directory: Path, log: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*_STRACE, "-o", str(log), *child.command(publish, name=name, directory=directory)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
