"""One table says what a failed operation on the disk means for the store: csrc/engine/calls has it,
docs/DURABILITY.md prints it, and its callers are those named here."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"
ROOM = CSRC / "engine/calls"
# Of each row the files of csrc/engine that ask for its consequences.
CALLERS = {
    "COMMIT": {"commit/commit.c"},
    "NEXT_FILE": {"commit/commit.c"},
    "PAGING": {"paging/pager_flush.c", "paging/share_bodies.c"},
    "REWRITING": {
        "checkpoint/checkpoint.c",
        "paging/compact.c",
        "transactions/transactions_spill.c",
    },
    "DIRECT": {"adopt_link.c", "publish/publish_direct.c"},
    "CHECKPOINT": {
        "checkpoint/checkpoint.c",
        "checkpoint/checkpoint_sync.c",
        "checkpoint/checkpoint_write.c",
        "checkpoint/copying.c",
        "close.c",
    },
}


def sources() -> dict[str, str]:
    """Of the C files outside the room of the table, without comments."""
    return {
        path.relative_to(CSRC).as_posix(): re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
        for path in sorted(CSRC.rglob("*.[ch]"))
        if path.stem != "failure"
    }


def coded() -> list[list[str]]:
    """The rows in C, in words."""
    text = (ROOM / "failure.def").read_text()
    words = dict(re.findall(r'^QSI_CONSEQUENCE\((\w+), "(.*)"\)$', text, re.M))
    rows = re.findall(r'^QSI_DISK_USE\(\w+, "(.*)", (\w+), (\w+), (\w+)\)$', text, re.M)
    assert len(rows) == len(CALLERS)
    return [[operation, *(words[name] for name in names)] for operation, *names in rows]


def printed() -> list[list[str]]:
    """The rows in the document."""
    text = (ROOT / "docs/DURABILITY.md").read_text()
    table = re.search(r"^\| operation \| shortage \|.*\n\|[-|]*\|\n((?:\|.*\n)*)", text, re.M)
    assert table
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table[1].splitlines()]


def test_the_document_prints_the_table_of_failures() -> None:
    assert printed() == coded()


def test_each_operation_of_the_table_is_explained() -> None:
    text = (ROOT / "docs/DURABILITY.md").read_text()
    assert re.findall(r"^- \*([\w ]+)\*:", text, re.M)[: len(CALLERS)] == [
        row[0] for row in printed()
    ]


def test_each_row_of_the_table_is_asked_by_its_callers() -> None:
    found: dict[str, set[str]] = {}
    for path, text in sources().items():
        for use in re.findall(r"\bQSI_USE_(\w+)\b", text):
            found.setdefault(use, set()).add(path.removeprefix("engine/"))
    assert found == CALLERS


def test_a_store_fails_in_one_place() -> None:
    setting = re.compile(r"\bstore->failed = |\bstore->failure = ")
    assert setting.search((ROOM / "failure.c").read_text())
    assert [path for path, text in sources().items() if setting.search(text)] == []


def test_errors_are_sorted_in_one_place() -> None:
    by_hand = re.compile(
        r"QS_ECORRUPT\b[^;{]*(?:\|\||&&)[^;{]*\bQS_EIO\b"
        r"|\bqsi_is_shortage\([^;{]*(?:\|\||&&)[^;{]*\bQS_ECORRUPT\b"
    )
    assert by_hand.search((CSRC / "base/error.h").read_text())
    found = {path for path, text in sources().items() if by_hand.search(text)}
    assert found == {"base/error.h"}
