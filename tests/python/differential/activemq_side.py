"""Runs activemq/Sessions.java: an embedded ActiveMQ, whose jars Maven fetches once."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from pyqstore.bench.rivals import jars, java_client
from pyqstore.bench.rivals.server import program_missing

_HERE = Path(__file__).with_name("activemq")
_POM = _HERE / "pom.xml"
_SECONDS = 240.0


def missing() -> str | None:
    """What is not installed."""
    if java_client.find_java() is None:
        return f"there is no {java_client.COMPILER}: apt-get install openjdk-17-jdk-headless"
    if jars.folder(_POM).is_dir():
        return None
    return program_missing(jars.MAVEN, "maven")


def begin(folder: Path) -> subprocess.Popen[str]:
    """The program, which plays its cases on its own; what is missing skips the test, or fails it
    where all is required."""
    skip = pytest.fail if os.environ.get("QS_REQUIRE") == "all" else pytest.skip
    if (why := missing()) is not None:
        skip(why)
    try:
        jars.fetch(_POM)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        skip(str(error))
    *command, path = java_client.java(_POM)
    compiler = Path(command[0]).parent / java_client.COMPILER
    source = _HERE / "Sessions.java"
    subprocess.run([compiler, "-d", folder, "-cp", path, source], check=True)
    return subprocess.Popen(
        [*command, f"{folder}{os.pathsep}{path}", "Sessions"],
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
