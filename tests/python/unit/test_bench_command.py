"""The command `pyqstore bench`: what it prints and writes, and how it ends."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pyqstore.bench import laboratory
from pyqstore.bench.command import WORKLOADS, _ended_cleanly

from ..support import run_command, run_python

ROOT = Path(__file__).resolve().parents[3]
PNG = b"\x89PNG\r\n\x1a\n"


def bench(
    *arguments: object, code: str = "", cwd: Path = ROOT
) -> "subprocess.CompletedProcess[str]":
    options: dict[str, Any] = {"env": {**os.environ, "COLUMNS": "80"}, "cwd": cwd}
    if code:
        return run_python(code, "bench", *arguments, **options)
    return run_command("bench", *arguments, **options)


def test_command_measures_and_writes(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    files = {name: tmp_path / f"report.{name}" for name in ("json", "plot", "html")}
    done = bench(
        *("fanout", "--quick", "--scale", 0.01, "--rounds", 1, "--directory", disk),
        *(part for name, path in files.items() for part in (f"--{name}", path)),
    )
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("ratio to", "least to", "bodies of 8 KiB", "raw stream, bytes/s", "file system: "):
        assert word in done.stdout
    assert "…" not in done.stdout  # in 80 columns
    told: dict[str, Any] = json.loads(files["json"].read_text())
    assert told["options"] == {"rounds": 1, "quick": True, "scale": 0.01}
    assert told["results"][1]["metrics"]["ratio_to_floor"][0] > 0
    assert files["plot"].read_bytes().startswith(PNG)
    assert "<svg" in files["html"].read_text()
    assert list(disk.iterdir()) == []
    again = bench("fanout", "--from", files["json"], "--json", "-")
    assert (again.returncode, again.stdout) == (0, files["json"].read_text())
    other = bench("fsync", "--from", files["json"])
    assert (other.returncode, other.stdout) == (3, "")
    assert "is of format 3, fanout, not 3, fsync" in other.stderr


@pytest.mark.slow
def test_json_goes_to_stdout_alone(tmp_path: Path) -> None:
    work = ("routing", "--quick", "--scale", 0.001, "--rounds", 1)
    done = bench(*work, "--directory", tmp_path, "--json", "-")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["work"] == "routing"


# What follows "pyqstore bench", with one case that fails.
FAILING = """
import sys
from pyqstore.bench import fsync
from pyqstore.bench.runs import Case
from pyqstore.cli import main

def run(directory):
    raise {error}

fsync.cases = lambda options: [Case("ours", run, {{"rows": 10}})]
main(prog_name="pyqstore")
"""


@pytest.mark.parametrize(
    "error",
    ["RuntimeError('it broke')", "OSError('it broke')", "pyqstore.StoreCorrupt('it broke')"],
)
def test_a_failure_is_told_in_a_line_with_its_case(tmp_path: Path, error: str) -> None:
    code = "import pyqstore\n" + FAILING.format(error=error)
    done = bench("fsync", "--directory", tmp_path, code=code)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "pyqstore: it broke; in the benchmark case: ours, rows 10\n"
    assert list(tmp_path.iterdir()) == []


def test_a_fault_of_the_benchmark_shows_where_it_is(tmp_path: Path) -> None:
    code = FAILING.format(error="KeyError('it broke')")
    done = bench("fsync", "--directory", tmp_path, code=code)
    assert (done.returncode, done.stdout) == (3, "")
    assert "Traceback" in done.stderr
    assert "ours, rows 10" in done.stderr


@pytest.mark.slow
def test_a_reader_that_goes_away_takes_no_numbers_along(tmp_path: Path) -> None:
    written = tmp_path / "report.json"
    work = ("routing", "--quick", "--scale", "0.001", "--rounds", "1", "--json", str(written))
    with subprocess.Popen(
        [sys.executable, "-m", "pyqstore", "bench", *work],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(120) == 3
    assert json.loads(written.read_text())["work"] == "routing"


@pytest.mark.slow
def test_numbers_that_cannot_be_written_are_printed(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full")
    work = ("routing", "--quick", "--scale", 0.001, "--rounds", 1)
    done = bench(*work, "--directory", tmp_path, "--json", full)
    assert done.returncode == 3
    assert "No space left" in done.stderr
    assert "default exchange" in done.stdout


def test_command_lists_the_workloads_and_their_options() -> None:
    text = bench("--help").stdout
    for name in (*WORKLOADS, *laboratory.WORKLOADS):
        assert re.search(rf"^  {name}  +\w", text, re.M)
    assert "Exit status" in text
    text = bench("fsync", "--help").stdout
    for option in ("--directory", "--rounds", "--quick", "--scale", "--json", "--plot", "--html"):
        assert option in text


# The laboratory.


def planted(root: Path, project: str) -> None:
    """A laboratory with one workload, in what is a clone if the project is pyqstore."""
    folder = root / "benchmarks" / "laboratory"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("print('loaded')\n")
    (folder / "seeds.py").write_text('"""Planted."""\n')
    (root / "pyproject.toml").write_text(f"[project]\nname = '{project}'\n")


def test_the_laboratory_is_found_in_the_root_of_a_clone(tmp_path: Path) -> None:
    planted(tmp_path, "pyqstore")
    done = bench("seeds", "--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("loaded\nUsage: ")
    assert "  Planted.\n" in done.stdout


@pytest.mark.parametrize("project", ["other", "'"])
def test_elsewhere_the_laboratory_is_told_of_and_nothing_is_loaded(
    tmp_path: Path, project: str
) -> None:
    planted(tmp_path, project)
    assert len(re.findall("  Not here.\n", bench("--help", cwd=tmp_path).stdout)) == 5
    for arguments in (["seeds"], ["seeds", "--help"], ["wire", "--quick", "--directory", "."]):
        done = bench(*arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"pyqstore: {laboratory.missing(arguments[0])}\n"
    assert bench("fsync", "--help", cwd=tmp_path).returncode == 0


def test_the_laboratory_is_a_module_to_run_as_well() -> None:
    environment = {name: each for name, each in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [sys.executable, "-m", laboratory.PACKAGE, "seeds", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=environment,
        cwd=ROOT,
    )
    assert done.stdout == bench("seeds", "--help").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing",),
        ("fsync", "--directory", "nowhere"),
        ("fsync", "--json", "nowhere/report.json"),
        ("fsync", "--rounds", "0"),
        ("fsync", "--scale", "0"),
        ("fsync", "--scale", "nan"),
        ("fsync", "--html", "-"),
    ],
)
def test_wrong_arguments_exit_with_2(arguments: tuple[str, ...]) -> None:
    done = bench(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert arguments[-1].partition("/")[0] in done.stderr


def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from pyqstore.cli import main; main(prog_name='pyqstore')"
    )
    done = bench("fsync", "--quick", code=code)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "pyqstore: matplotlib missing: pip install 'pyqstore[bench]'\n"


def test_other_commands_import_nothing_of_it() -> None:
    code = (
        "import sys; from pyqstore.cli import main\n"
        "try: main(['--help'])\n"
        "finally: print([name for name in sys.modules if name.startswith('pyqstore.bench')])"
    )
    done = run_python(code, check=True)
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_it_takes_everything_away(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "pyqstore", "bench", "fsync", "--directory", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests may ignore it (nohup), and what is ignored stays so.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    ) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("pyqstore-bench-*/case")) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(number)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (3, "", "pyqstore: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_a_second_signal_does_not_stop_taking_away() -> None:
    taken_away = []

    def impatient() -> None:
        with _ended_cleanly():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                signal.raise_signal(signal.SIGINT)
                taken_away.append(True)

    with pytest.raises(SystemExit, match="3"):
        impatient()
    assert taken_away == [True]


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with _ended_cleanly():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
