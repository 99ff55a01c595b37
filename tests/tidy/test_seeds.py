"""What docs/SEEDS.md names is there: each file, and in it each function, field or test."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "SEEDS.md"
FOLDERS = {"benchmarks", "csrc", "docs", "pyqstore", "tests", "tools"}
NAMED = re.compile(r"`([\w.-]+(?:/[\w.-]+)+)(?:::(\w+))?`")
ROWS_LEAST = 120
COLUMNS = 5


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
    """Of the tables that go through the documents, without their heads."""
    found = re.findall(r"^\| .* \|$", text, re.M)
    cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in found]
    return [each for each in cells if len(each) == COLUMNS and each[0] != "the text"]


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


def test_a_name_that_is_not_there_is_told() -> None:
    text = "`tests/tidy/test_seeds.py::rows` `tests/tidy/test_seeds.py::nothing_" + "here`"
    assert list(missing(text + " `csrc/none.c::f`, `a/b.c`")) == [
        "tests/tidy/test_seeds.py::nothing_" + "here",
        "csrc/none.c",
    ]
