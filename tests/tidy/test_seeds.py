"""What benchmarks/laboratory/SEEDS.md names is there: each file, and in it each function, field or
test.  Where it says that something is the same the tests that it names are run, in the nightly
tier."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "benchmarks" / "laboratory" / "SEEDS.md"
FOLDERS = {"benchmarks", "csrc", "docs", "pyqstore", "tests", "tools"}
NAMED = re.compile(r"`([\w.-]+(?:/[\w.-]+)+)(?:::(\w+))?`")
ROWS_LEAST = 120
COLUMNS = 5
LIMIT_S = 3600
Test: TypeAlias = tuple[str, str]  # its file, and its name or ""


def missing(text: str) -> Iterator[str]:
    """What is named and is not there."""
    for path, symbol in NAMED.findall(text):
        if path.split("/")[0] not in FOLDERS:
            continue
        found = ROOT / path
        if not found.exists():
            yield path
        elif symbol and not re.search(rf"\b{symbol}\b", found.read_text()):
            yield f"{path}::{symbol}"


def rows(text: str) -> list[list[str]]:
    """Of the tables that go through the documents, without their heads and lines."""
    found = re.findall(r"^\|(.*)\|$", text, re.M)
    cells = [[cell.strip() for cell in row.split("|")] for row in found]
    return [each for each in cells if len(each) == COLUMNS and each[0] not in ("the text", "---")]


def same(text: str) -> dict[str, list[Test]]:
    """By what the text says: the tests of rows that say that it is the same."""
    return {
        says: NAMED.findall(tests)
        for says, here, _, tests, _ in rows(text)
        if here.startswith("the same")
    }


def is_test(path: str, name: str, root: Path = ROOT) -> bool:
    """Whether pytest collects it, or the program of a C test calls it."""
    if not path.startswith("tests/") or not Path(path).name.startswith("test_"):
        return False
    text = (root / path).read_text()
    if not name:
        return True
    if path.endswith(".py"):
        return re.search(rf"^ *(?:async )?def {name}\(", text, re.M) is not None and (
            name.startswith("test_")
        )
    if re.search(rf"^[A-Z_]+_TEST\({name}[,)]", text, re.M):
        return True
    return len(re.findall(rf"\b{name}\b", text)) > 1  # where it is defined, and where it is called


def untested(text: str) -> Iterator[str]:
    """Rows that say that something is the same without a test, and what they name that is none."""
    for says, tests in same(text).items():
        if not tests:
            yield says
        yield from (f"{path}::{name}" for path, name in tests if not is_test(path, name))


def test_what_the_document_names_is_there() -> None:
    text = DOCUMENT.read_text()
    assert list(missing(text)) == []
    assert len(NAMED.findall(text)) > ROWS_LEAST


def test_each_row_says_where_it_is_or_why_it_is_not() -> None:
    found = rows(DOCUMENT.read_text())
    assert len(found) > ROWS_LEAST
    for says, here, where, tests, why in found:
        assert says
        assert here
        assert why or where or tests, says
        assert not where or NAMED.search(where), says
        assert not tests or NAMED.search(tests), says


def test_each_row_that_says_the_same_names_tests() -> None:
    text = DOCUMENT.read_text()
    assert len({row[0] for row in rows(text)}) == len(rows(text))
    assert same(text)
    assert list(untested(text)) == []


def test_a_name_that_is_not_there_is_told() -> None:
    text = "`tests/tidy/test_seeds.py::rows` `tests/tidy/test_seeds.py::nothing_" + "here`"
    assert list(missing(text + " `csrc/none.c::f`, `a/b.c`")) == [
        "tests/tidy/test_seeds.py::nothing_" + "here",
        "csrc/none.c",
    ]


def test_a_row_that_says_the_same_without_a_test_is_told() -> None:
    table = """
| the text | here | where | test | what differs, and why |
|---|---|---|---|---|
| one | the same | `csrc/route/router.c` | | a reason |
| two | the same: 312 | | `tests/tidy/test_seeds.py::rows`, `tests/tidy/test_seeds.py` | |
| three | another | | | a reason |
| four | the same | | `tests/tidy/test_seeds.py::test_what_the_document_names_is_there` | |
"""
    assert [row[0] for row in rows(table)] == ["one", "two", "three", "four"]
    assert list(untested(table)) == ["one", "tests/tidy/test_seeds.py::rows"]


# What is the same.


def told_by_pytest(tests: Sequence[Test], root: Path, report: Path) -> dict[Test, str]:
    """What became of each Python test, "passed" if all of its cases did, in one run of pytest; of
    each file under the name "".  What was not found is left out."""
    names = [f"{path}::{name}" if name else path for path, name in tests]
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *names],
        cwd=root,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        check=False,
    )
    outcomes: dict[Test, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        path = case.get("classname", "").replace(".", "/") + ".py"
        ends = {each.tag for each in case} & {"failure", "error", "skipped"}
        for test in ((path, case.get("name", "").split("[")[0]), (path, "")):
            if ends or test not in outcomes:
                outcomes[test] = min(ends, default="passed")
    return outcomes


def told_by_program(path: str, root: Path, folder: Path) -> str:
    """What became of the C tests of a file, all of which its program runs; where that was not
    built, to be called in the file is enough."""
    program = root / "build" / "debug" / "tests" / Path(path).stem
    if not program.exists():
        return "passed"
    ended = subprocess.run(
        [program],
        cwd=folder,
        env={"QS_SWEEPS": "short", **os.environ},
        check=False,
        timeout=LIMIT_S / 2,
    )
    return "passed" if ended.returncode == 0 else f"ended with {ended.returncode}"


def not_the_same(text: str, folder: Path, root: Path = ROOT) -> list[str]:
    """Rows that say so of which a test failed, was skipped or was not found, and what it did."""
    claimed = same(text)
    tests = sorted({test for named in claimed.values() for test in named})
    in_python = [test for test in tests if test[0].endswith(".py")]
    outcomes = told_by_pytest(in_python, root, folder / "outcomes.xml")
    for path in sorted({path for path, _ in tests if path.endswith(".c")}):
        outcome = told_by_program(path, root, folder)
        of_file = [test for test in tests if test[0] == path and is_test(*test, root)]
        outcomes |= dict.fromkeys(of_file, outcome)
    return [
        f"{says}: {name or path}: {outcomes.get((path, name), 'not found')}"
        for says, named in claimed.items()
        for path, name in named
        if outcomes.get((path, name)) != "passed"
    ]


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
def test_what_is_the_same_is_found_so_by_its_tests(tmp_path: Path) -> None:
    assert not_the_same(DOCUMENT.read_text(), tmp_path) == []


PLANTED = """
import pytest

def test_good(): pass
@pytest.mark.parametrize("number", [1, 2])
def test_bad(number): assert number == 1
@pytest.mark.skip
def test_left_out(): pass
"""


def test_a_row_whose_test_fails_or_is_skipped_is_told(tmp_path: Path) -> None:
    programs, native = tmp_path / "build" / "debug" / "tests", tmp_path / "tests" / "native"
    programs.mkdir(parents=True)
    native.mkdir(parents=True)
    (tmp_path / "tests" / "test_planted.py").write_text(PLANTED)
    (native / "test_good.c").write_text("QS_TEST(test_good_c) { }")
    (native / "test_bad.c").write_text("void test_bad_c(void) { } test_bad_c();")
    for name, status in (("good", 0), ("bad", 3)):
        (programs / f"test_{name}").write_text(f"#!/bin/sh\nexit {status}\n")
        (programs / f"test_{name}").chmod(0o755)
    names = ("test_planted.py::test_good", "native/test_good.c::test_good_c")
    bad = {
        "test_planted.py::test_bad": "failure",
        "test_planted.py::test_left_out": "skipped",
        "native/test_good.c::test_none": "not found",
        "native/test_bad.c::test_bad_c": "ended with 3",
    }
    table = "\n".join(f"| {name} | the same | | `tests/{name}` | |" for name in (*names, *bad))
    assert not_the_same(table, tmp_path, tmp_path) == [
        f"{name}: {name.split('::')[1]}: {outcome}" for name, outcome in bad.items()
    ]
    gone = "| gone | the same | | `tests/test_planted.py::test_gone`, `tests/test_planted.py` | |"
    assert not_the_same(gone, tmp_path, tmp_path)[0] == "gone: test_gone: not found"
