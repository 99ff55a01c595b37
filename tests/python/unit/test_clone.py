"""Importing inside a clone, where the sources hide the installed package."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[3] / "pyqstore"
CODE = "import pyqstore, pyqstore.codec as c; print(pyqstore.__file__, c.crc32c(b'123456789'))"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder that holds the package's sources and nothing compiled."""
    compiled = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(SOURCES, tmp_path / "clone" / "pyqstore", ignore=compiled)
    return tmp_path / "clone"


def run(clone: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    code = f"import sys; sys.path.insert(0, {str(clone)!r}); {CODE}"
    return subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True)


def test_sources_find_the_installed_modules(clone: Path) -> None:
    found = run(clone)
    assert found.returncode == 0, found.stderr
    assert found.stdout == f"{clone / 'pyqstore' / '__init__.py'} {0xE3069283}\n"


def test_sources_that_were_not_built_say_what_to_do(clone: Path) -> None:
    refused = run(clone, "-S")  # no site-packages
    assert refused.returncode != 0
    assert "run ./dev build" in refused.stderr
