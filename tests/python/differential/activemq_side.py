"""Runs activemq/Sessions.java: an embedded ActiveMQ, whose jars Maven fetches once."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from .. import java_program

_HERE = Path(__file__).with_name("activemq")
_SECONDS = 240.0


def begin(folder: Path) -> subprocess.Popen[str]:
    """The program, which plays its cases on its own; what is missing skips the test, or fails it
    where all is required."""
    return subprocess.Popen(
        java_program.command(_HERE / "Sessions.java", _HERE / "pom.xml", folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
    )


def seen(process: subprocess.Popen[str]) -> dict[str, list[int | str]]:
    """By the names of the cases, once it has ended."""
    said, _ = process.communicate(timeout=_SECONDS)
    assert process.returncode == 0, said
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return {line["case"]: line["seen"] for line in lines}
