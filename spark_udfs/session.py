"""A quiet local Spark session: finds Java, keeps to 127.0.0.1 and to one directory, prints nothing.

For the demonstration, the tests and trying things out; a real job brings its own session.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_LOWEST = 17
_JAVA_END_S = 20.0
_SOCKET_NAME_MAX = 107  # sun_path is 108 bytes with its NUL on Linux
_LOG4J = """\
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


class JavaNotFoundError(RuntimeError):
    """There is no Java that Spark can run on."""


def find_java(search: str = "/usr/lib/jvm") -> str:
    """The directory for JAVA_HOME: the environment's, that of PATH, or the best under search.

    Raises:
        JavaNotFoundError: none of 17 or later; says what to install.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        if not os.access(os.path.join(home, "bin", "java"), os.X_OK):
            raise JavaNotFoundError(
                f"JAVA_HOME is {home}, and there is no bin/java in it: correct or unset it"
            )
        return home
    found = []
    on_path = shutil.which("java")
    if on_path:
        found.append(os.path.dirname(os.path.dirname(os.path.realpath(on_path))))
    # The releases Spark names come first, 17 before 21, then whatever is newest.
    others = sorted(
        {os.path.realpath(path.parent.parent) for path in Path(search).glob("*/bin/java")}
    )
    found += sorted(
        others, key=lambda path: {17: 0, 21: 1}.get(_java_version(path), 1000 - _java_version(path))
    )
    for path in found:
        if _java_version(path) >= JAVA_LOWEST:
            return path
    raise JavaNotFoundError(
        f"Spark needs Java {JAVA_LOWEST} or later, and there is none on PATH or under {search}: "
        f"install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
    )


def _java_version(home: str) -> int:
    """The major version of the Java in home; 0 when it does not say."""
    try:
        text = (Path(home) / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    return int(found.group(1)) if found else 0


def local_session(
    master: str = "local[2]",
    *,
    directory: str | os.PathLike[str] | None = None,
    memory: str = "1g",
    app: str = "pyqstore",
    level: str = "off",
    log: str | os.PathLike[str] | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start (or take) this process's Spark session.

    Sets JAVA_HOME, PYSPARK_PYTHON, SPARK_LOCAL_IP, SPARK_CONF_DIR, PYTHONSAFEPATH and, when unset,
    SPARK_LAUNCHER_OPTS in the environment: workers run this very interpreter with the packages that
    are installed, not those that lie in the working directory, and nothing listens beyond
    127.0.0.1.

    Args:
        master: "local[n]", or "local[n,f]" where a task may fail f - 1 times.
        directory: for scratch files and the warehouse; None makes one that goes with the process.
        memory: of the Java process.
        level: what it logs, "off" to "debug".
        log: a file for what the Java process and its workers write to stderr; None leaves it on
            this process's.
        conf: more Spark settings.

    Raises:
        JavaNotFoundError: no Java of 17 or later.
    """
    if directory is None:
        directory = tempfile.mkdtemp(prefix="pyqstore-spark-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
    root = Path(directory).absolute()
    conf_dir = root / "conf"
    conf_dir.mkdir(parents=True, exist_ok=True)
    (conf_dir / "log4j2.properties").write_text(_LOG4J.format(level=level), encoding="utf-8")
    os.environ.update(
        JAVA_HOME=find_java(),
        PYSPARK_PYTHON=sys.executable,
        PYSPARK_DRIVER_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
        SPARK_CONF_DIR=str(conf_dir),
        PYTHONSAFEPATH="1",
    )
    # Java runs twice: first for a moment, to say how to start the one that stays.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:-UsePerfData")
    temporary = root / "tmp"
    temporary.mkdir(exist_ok=True)
    settings = {
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # One small machine: a collector and a compiler without threads of their own start faster.
        # A killed Java removes nothing: its temporary files belong where somebody else does, and it
        # publishes no figures of its own in /tmp/hsperfdata_*.
        "spark.driver.extraJavaOptions": (
            "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData "
            "-Djava.net.preferIPv4Stack=true "
            f'"-Djava.io.tmpdir={temporary}"'
        ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(root / "scratch"),
        "spark.sql.warehouse.dir": str(root / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        # Over TCP each Python task waits some 40 ms for a delayed acknowledgement.
        "spark.python.unix.domain.socket.enabled": str(_holds_sockets(temporary)).lower(),
        **(conf or {}),
    }
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(app)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _stderr_to(log):
        spark = builder.getOrCreate()
    if all(module.name != "pyspark_pyqstore" for module in iter_modules()):
        # Spark lists folders, and an editable install has none of that name in a folder.
        from .source import QStoreDataSource

        spark.dataSource.register(QStoreDataSource)
    return spark


def stop_session(spark: SparkSession) -> None:
    """Stop a session, and the Java process, which would stay as long as this one.

    Returns when that is gone, so that what it wrote can be removed.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    spark.stop()
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return  # Java was here first
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    process.stdin.close()  # Java ends when it reads the end
    try:
        process.wait(_JAVA_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _holds_sockets(directory: Path) -> bool:
    """Do the names of Spark's sockets (a dot, a UUID, ".sock") fit a socket address there?"""
    return len(os.fsencode(directory)) + 1 + 42 <= _SOCKET_NAME_MAX


@contextmanager
def _stderr_to(path: str | os.PathLike[str] | None) -> Iterator[None]:
    """Processes started meanwhile write their stderr to the file at path."""
    if path is None:
        yield
        return
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, 2)
        os.close(file)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
