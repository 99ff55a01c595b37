"""Jars from Maven, once, in the user's cache: ``pyqstore bench rivals --fetch``.

Their versions stand in the files ``*pom.xml`` in ``java``.  Measuring loads nothing.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from .server import program_missing

JAVA = Path(__file__).parent / "java"
CLIENT_POM = JAVA / "pom.xml"
STREAMS_POM = JAVA / "streams.pom.xml"
KAFKA_POM = JAVA / "kafka.pom.xml"
PERFTEST_POM = JAVA / "perftest.pom.xml"
POMS = {
    CLIENT_POM: "no Java client of RabbitMQ",
    STREAMS_POM: "no Java client of RabbitMQ for streams",
    KAFKA_POM: "no Kafka",
    PERFTEST_POM: "no PerfTest",
}
"""What there is not, where its jars are missing."""
COMMAND = "pyqstore bench rivals --fetch"
MAVEN = "mvn"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_SECONDS = 900.0
_SAID_LINES = 20


def folder(pom: Path = CLIENT_POM) -> Path:
    """Where the jars of a pom are, or will be; another pom's are elsewhere."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(given) if os.path.isabs(given) else Path.home() / ".cache"
    version = hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    return cache / "pyqstore" / "jars" / version


def missing(pom: Path = CLIENT_POM) -> str | None:
    """How to get the jars when they are not there."""
    if folder(pom).is_dir():
        return None
    return program_missing(MAVEN, "maven") or (
        f"there is {POMS.get(pom, 'nothing')} in {folder(pom)}: {COMMAND}"
    )


def fetch(pom: Path = CLIENT_POM) -> Path:
    """Have Maven put the jars there, all or none; nothing when they are there."""
    target = folder(pom)
    if target.is_dir():
        return target
    if (why := program_missing(MAVEN, "maven")) is not None:
        raise RuntimeError(why)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetching-", dir=target.parent) as own:
        jars = Path(own) / "jars"
        _run_maven(pom, jars)
        try:
            jars.rename(target)
        except OSError:
            if not target.is_dir():  # else somebody else was quicker
                raise
    return target


def _run_maven(pom: Path, jars: Path) -> None:
    # Checksums that do not match fail (-C); Maven's own repository keeps what it loaded.
    command = [MAVEN, "-B", "-C", "-ntp", "-f", str(pom), COPY, f"-DoutputDirectory={jars}"]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=_SECONDS,
    )
    if done.returncode or not any(jars.glob("*.jar")):
        said = "\n".join(done.stdout.splitlines()[-_SAID_LINES:])
        raise RuntimeError(
            f"Maven did not get the jars of {pom}; it needs a repository, the network or a mirror"
            f" in ~/.m2/settings.xml.  It said:\n{said}"
        )
