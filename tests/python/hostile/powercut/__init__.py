"""Cuts the power of a real file system while a store on it is at work.

A disk in memory (blockrec.c, over FUSE and a loop device) writes down every write and every flush
in order.  On it ext4 or xfs, on that the mixed workload, which notes with each event how much the
disk had written down.  Then disks are made as cuts would leave them at random positions: all that
was written before the last flush, and any part of what came after it, torn at sectors.  Each is
mounted, which replays the file system's journal, and the store in it must hold what was promised at
that position.

All of it runs in a process with mounts of its own (``unshare``), the files in memory that is one of
them: they go with it, however it ends.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ..mixed.life import die_with_parent
from ..report import Report
from .disk import FILE_SYSTEMS

__all__ = ["FILE_SYSTEMS", "missing", "run"]

_PROGRAM = Path(__file__).with_name("cutter.py")


def missing() -> str:
    """What power cuts need and is not here; empty: nothing."""
    if os.geteuid() != 0:
        return "root"
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not os.path.exists(device):
            return device
    for program in ("cc", "pkg-config", "unshare", "mount", "mkfs.ext4", "mkfs.xfs"):
        if shutil.which(program) is None:
            return f"the program {program}"
    if subprocess.run(["pkg-config", "--exists", "fuse3"], check=False).returncode:
        return "libfuse3-dev"
    return ""


def run(
    seed: int, seconds: float, kinds: tuple[str, ...] = tuple(FILE_SYSTEMS), sync: str = "fdatasync"
) -> Report:
    """Cut for ``seconds``, evenly on file systems of ``kinds``.

    ``sync="none"`` plants a fault: a store that confirms without syncing.  Raises RuntimeError when
    something is missing.
    """
    if what := missing():
        raise RuntimeError(f"power cuts need {what}")
    report = Report()
    outside = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    for kind in kinds:
        with tempfile.TemporaryDirectory(prefix="qs-cut-") as folder:
            plan = {
                "seed": f"{seed} {kind}",
                "seconds": seconds / len(kinds),
                "kind": kind,
                "sync": sync,
                "folder": folder,
                "outside": outside,
            }
            done = subprocess.run(
                ["unshare", "--mount", sys.executable, str(_PROGRAM), json.dumps(plan)],
                stdout=subprocess.PIPE,
                check=True,
                text=True,
                pass_fds=(outside,),
                preexec_fn=die_with_parent,
            )
        part = json.loads(done.stdout.splitlines()[-1])
        for name, count in part["figures"].items():
            report.add(f"{name} ({kind})", count)
        report.violations += [f"{kind}: {text}" for text in part["violations"]]
    os.close(outside)
    return report
