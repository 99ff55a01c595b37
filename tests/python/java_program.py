"""A Java program of one source that a test runs, on the jars of a pom, which Maven fetches once."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from benchmarks.laboratory.rivals import jars, java_client
from benchmarks.laboratory.rivals.server import program_missing


def command(source: Path, pom: Path, folder: Path) -> list[str]:
    """What runs it, compiled into a folder; what is missing skips the test, or fails it where all
    is required."""
    skip = pytest.fail if os.environ.get("QS_REQUIRE") == "all" else pytest.skip
    if (why := _missing(pom)) is not None:
        skip(why)
    try:
        jars.fetch(pom)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        skip(str(error))
    *java, path = java_client.java(pom)
    compiler = Path(java[0]).parent / java_client.COMPILER
    subprocess.run([compiler, "-parameters", "-d", folder, "-cp", path, source], check=True)
    return [*java, f"{folder}{os.pathsep}{path}", source.stem]


def _missing(pom: Path) -> str | None:
    if java_client.find_java() is None:
        return f"there is no {java_client.COMPILER}: apt-get install openjdk-17-jdk-headless"
    if jars.folder(pom).is_dir():
        return None
    return program_missing(jars.MAVEN, "maven")
