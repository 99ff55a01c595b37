"""The public headers say what their functions do, and Python declares what they declare."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ROOT / "csrc/include/qstore"
FUNCTION = re.compile(r"(?:/\*((?:(?!\*/).)*)\*/\n)?(QS_API\b[^;{]*?\b(qs_\w+)\s*\([^;{]*);", re.S)
BLOCKS = re.compile(r"^ \* (?:\w+, )*[Bb]locks(?:, \w+)*: ", re.M)
SPOKEN = re.compile(r"\bQS_[A-Z_]+\b(?<!_)")


def documented() -> Iterator[tuple[str, str, str]]:
    """Name, declaration and the comment right above it, of each public function."""
    for header in sorted(HEADERS.glob("*.h")):
        for comment, declaration, name in FUNCTION.findall(header.read_text()):
            yield name, declaration, comment


def test_every_public_function_says_what_it_does_and_returns() -> None:
    wrong = []
    for name, declaration, comment in documented():
        if not comment.lstrip().startswith(f"{name} - "):
            wrong.append(f"{name}: no comment above it that begins with its name")
        elif re.match(r"QS_API (QS_MUST_CHECK )?qs_status\b", declaration) and not re.search(
            r"^ \* Returns\b[\w, ]*: ", comment, re.M
        ):
            wrong.append(f"{name}: no line Returns")
    assert not wrong, "\n".join(wrong)
    assert len(list(documented())) == sum(
        len(re.findall(r"^QS_API\b", header.read_text(), re.M)) for header in HEADERS.glob("*.h")
    )


def test_a_public_function_that_may_be_told_not_to_wait_says_what_it_waits_for() -> None:
    found = {}
    for name, _, comment in documented():
        if "QS_NO_WAIT" in comment:
            found[name] = BLOCKS.search(comment)
    assert len(found) > 5
    assert [name for name, line in found.items() if line is None] == []


def waiting(sources: ModuleType) -> set[str]:
    """The functions that can wait for another thread, themselves or in what they call.  Not those
    that only drain the removal list when they leave a channel: store.h says that of all."""
    found = sources.Sources()
    bodies = {
        (path, name): body
        for path, text in found.code.items()
        if path.suffix == ".c"
        for _, name, body in sources.DEFINITION.findall(text)
    }
    users: dict[tuple[Path, str], set[tuple[Path, str]]] = {}
    for user, body in bodies.items():
        for name in set(re.findall(r"\b\w+(?=\s*\()", body)):
            inside = (user[0], name) in bodies
            used = (user[0] if inside else found.defined_in.get(name, user[0]), name)
            users.setdefault(used, set()).add(user)
    ways = [key for key in bodies if key[1] == "qsi_cond_wait"]
    assert ways
    reached = set(ways)
    while ways:
        new = users.get(ways.pop(), set()) - reached
        reached |= new
        ways += new
    return {name for _, name in reached}


def test_a_public_function_that_waits_for_another_thread_says_for_what(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    waits = waiting(importlib.import_module("floors"))
    assert {"qs_channel_close", "qs_channel_tx_commit", "qs_store_sync"} <= waits
    silent = [
        name for name, _, comment in documented() if name in waits and not BLOCKS.search(comment)
    ]
    assert silent == []


def test_public_comments_name_constants_that_there_are() -> None:
    known = set(re.findall(r"QS_STATUS\((\w+)", (HEADERS / "status.def").read_text()))
    for header in HEADERS.glob("*.h"):
        code = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
        known |= set(SPOKEN.findall(code))
    for name, _, comment in documented():
        named = set(SPOKEN.findall(comment))
        assert named <= known, f"{name}: {sorted(named - known)}"


def declared(struct: str) -> list[str]:
    """The members of a struct in its header."""
    text = re.sub(r"/\*.*?\*/", "", (HEADERS / "admin.h").read_text(), flags=re.S)
    body = re.search(rf"typedef struct {struct} {{(.*?)}} {struct};", text, re.S)
    assert body, struct
    groups = [re.sub(r"^\s*\w+\s", "", part) for part in body[1].split(";") if part.strip()]
    return [name.strip() for group in groups for name in group.split(",")]


def bound(struct: str) -> list[str]:
    """The members of a struct as Cython knows it."""
    text = (ROOT / "pyqstore/_capi.pxd").read_text()
    body = re.search(rf"ctypedef struct {struct}:\n((?:        .*\n)+)", text)
    assert body, struct
    return re.findall(r"^ {8}\w+ (\w+)$", body[1], re.M)


@pytest.mark.parametrize("struct", ["qs_queue_status", "qs_verified"])
def test_structs_that_python_takes_whole_have_all_their_members(struct: str) -> None:
    assert bound(struct) == declared(struct) != []


def test_stats_have_one_definition() -> None:
    """The struct, its listing and Python take its members from stats.def; the pxd has none."""
    names = re.findall(r"^QS_STAT\(\w+, (\w+), ", (HEADERS / "stats.def").read_text(), re.M)
    assert len(names) == len(set(names)) > 40
    assert bound("qs_stats") == ["file_system"]
