"""The order in which processes that share the tests take their files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .. import ordering

_FILES = {
    "test_many.py": "@pytest.mark.parametrize('n', range(30))\ndef test_quick(n): pass\n",
    "test_one.py": "@pytest.mark.slow\ndef test_slow(): pass\n",
    "test_patient.py": "@pytest.mark.timeout(900)\ndef test_patient(): pass\n",
    "test_short.py": "def test_b(): pass\ndef test_a(): pass\n",
}


def test_files_that_last_long_begin_first_and_keep_their_order(tmp_path: Path) -> None:
    for name, text in _FILES.items():
        (tmp_path / name).write_text(f"import pytest\n{text}")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    (tmp_path / "conftest.py").write_text(Path(ordering.__file__).read_text())
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-n", "1"]
    done = subprocess.run(
        [*command, "--dist", "loadfile", "--no-loadscope-reorder"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = [
        line.split("PASSED ")[1].strip() for line in done.stdout.splitlines() if "PASSED " in line
    ]
    assert list(dict.fromkeys(line.partition("::")[0] for line in passed)) == [
        "test_patient.py",
        "test_one.py",
        "test_many.py",
        "test_short.py",
    ]
    assert passed[-2:] == ["test_short.py::test_b", "test_short.py::test_a"]
