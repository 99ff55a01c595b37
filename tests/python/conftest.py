"""The tests run against the installed package, which must have been built from this very tree."""

import ctypes
import importlib.util
import os
import runpy
import sys
from pathlib import Path

import pytest

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
