"""The tests run against the installed package, which must have been built from this very tree."""

import ctypes
import importlib.util
import logging
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from .ordering import pytest_collection_modifyitems as pytest_collection_modifyitems

ROOT = Path(__file__).resolve().parents[2]

# `python -m pytest` puts the folder it was started in on the path, and its pyqstore/ holds no built
# extension. The same for every interpreter that a test, or Spark, starts.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
os.environ["PYTHONSAFEPATH"] = "1"
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def stale_reason() -> str | None:
    """Say in what the installed package differs from the tree, None if in nothing."""
    tool = runpy.run_path(str(ROOT / "tools/source_hash.py"))
    core = importlib.util.find_spec("pyqstore._core")
    if core is None or core.origin is None:
        return "pyqstore is not installed here"
    built_from = ctypes.c_char * 64
    compiled = built_from.in_dll(ctypes.PyDLL(core.origin), "qs_source_hash").value.decode()
    if compiled != tool["source_hash"]():
        return "_core was compiled from other sources"
    installed = Path(core.origin).parent.parent
    for package in ("pyqstore", "spark_udfs"):
        for source in sorted((ROOT / package).rglob("*.py")):
            path = source.relative_to(ROOT)
            copy = installed / path
            if path.parts[:2] == ("spark_udfs", "pyspark_pyqstore"):
                copy = installed.joinpath(*path.parts[1:])
            if not copy.is_file() or copy.read_bytes() != source.read_bytes():
                return f"{path} is not the one installed"
    return None


if reason := stale_reason():
    pytest.exit(f"stale build: run ./dev build ({reason})", returncode=4)

# What is not installed of the benchmarks: for its own tests, and those that start its servers.
import_module("pyqstore.bench.laboratory").load(ROOT / "benchmarks/laboratory")


# A run in the background has Ctrl-C ignored, and so have all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def shared_state() -> dict[str, object]:
    """What all tests of a process share, and a test must leave as it was."""
    ours = [name for name in logging.root.manager.loggerDict if name.startswith("pyqstore")]
    loggers = [logging.getLogger(name) for name in ours]
    return {
        "handlers of signals": [
            signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)
        ],
        "logging": (logging.root.manager.disable, logging.root.level),
        "loggers that are silent": [
            each.name for each in loggers if each.disabled or each.level or not each.propagate
        ],
    }


@pytest.fixture(autouse=True)
def leaves_what_is_shared() -> Iterator[None]:
    before = shared_state()
    yield
    assert shared_state() == before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Reports go to another process as UTF-8, whatever a test has logged."""
    report = yield
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate authority, and a certificate each of a server and of a client."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ("req", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    openssl(*new, "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority")
    for name in ("server", "client"):
        (folder / "extensions").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
        openssl(*new, "-keyout", f"{name}.key", "-out", "request", "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", "request", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2",
                "-CAcreateserial", "-extfile", "extensions", "-out", f"{name}.pem")  # fmt: skip
    return folder
