"""What `./dev lint` finds when something in csrc/ looks up, and that pictures are kept."""

import dataclasses
import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {
    "CMakeLists.txt": "qs_floor(low LIBRARIES m)\nqs_floor(high/part USES low) # not other\n"
    "qs_floor(high\n  USES low high/part)\n",
    "low/low.h": "int qsi_low(void);\n",
    "low/low.c": '#include "low.h"\n\nint qsi_low(void)\n{\n    return 1;\n}\n',
    "high/part/part.h": '#include "low.h"\n\nint qsi_part(void);\n',
    "high/part/part.c": '#include "part.h"\n\nint qsi_part(void)\n{\n    return qsi_low();\n}\n',
    "high/high.h": "int qsi_high(void);\n",
    "high/high.c": '#include "high.h"\n#include "part.h"\n\nint qsi_high(void)\n{\n'
    "    return qsi_part() + qsi_low(); /* qsi_higher() */\n}\n",
}


@pytest.fixture
def floors(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("floors")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in SOURCES.items():
        path = tmp_path / "csrc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def complaints(floors: ModuleType, tree: Path) -> list[str]:
    found: list[str] = floors.complaints(floors.Sources(tree))
    return found


def test_floors_are_those_of_cmake(floors: ModuleType, tree: Path) -> None:
    found = floors.read_floors(tree)
    assert {name: floor.uses for name, floor in found.items()} == {
        "low": [],
        "high/part": ["low"],
        "high": ["low", "high/part"],
    }
    assert [path.name for path in found["high"].sources] == ["high.c", "high.h"]
    assert complaints(floors, tree) == []


def test_an_include_that_leads_up_is_found(floors: ModuleType, tree: Path) -> None:
    with (tree / "csrc/high/part/part.h").open("a") as header:
        header.write('#include "high.h"\n')
    assert complaints(floors, tree) == [
        "high/part/part.h includes high/high.h: not below it",
    ]


def test_a_call_that_leads_up_is_found_without_an_include(floors: ModuleType, tree: Path) -> None:
    with (tree / "csrc/low/low.c").open("a") as source:
        source.write("\nint qsi_high(void);\n\nint qsi_lower(void)\n{\n    return qsi_high();\n}\n")
    assert complaints(floors, tree) == [
        "low/low.c calls qsi_high of high/high.c: not below it",
    ]


def test_files_in_a_circle_are_found(floors: ModuleType, tree: Path) -> None:
    (tree / "csrc/low/other.h").write_text('#include "low.h"\n')
    with (tree / "csrc/low/low.h").open("a") as header:
        header.write('#include "other.h"\n')
    assert complaints(floors, tree) == ["in a circle: low/low, low/other"]


def test_a_floor_that_uses_one_above_it_is_found(floors: ModuleType, tree: Path) -> None:
    lists = tree / "csrc/CMakeLists.txt"
    lists.write_text(lists.read_text().replace("qs_floor(low ", "qs_floor(low USES high "))
    assert complaints(floors, tree) == [
        "csrc/CMakeLists.txt: low uses high, which is not below it",
    ]


def check(tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(tree / "tools/graph.py"), "--check"],
        env={},
        text=True,
        capture_output=True,
        check=False,
    )


def test_a_picture_that_is_not_drawn_from_the_sources_is_found(tree: Path) -> None:
    shutil.copytree(ROOT / "tools", tree / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "docs/pictures").mkdir(parents=True)
    (tree / "docs/pictures/way.txt").write_text("node a | A\nnode b | B\na -> b | to\n")
    drawn = subprocess.run([sys.executable, str(tree / "tools/graph.py")], env={}, check=False)
    assert drawn.returncode == 0
    assert check(tree).returncode == 0
    (tree / "docs/pictures/way.txt").write_text("node a | A\nnode b | B\nb -> a | to\n")
    failed = check(tree)
    assert failed.returncode == 1
    assert failed.stderr == "docs/pictures/way.svg is not what tools/graph.py draws: run it\n"


def test_types_of_headers_have_the_prefix() -> None:
    found = {
        (header.name, name)
        for header in (ROOT / "csrc").rglob("*.h")
        for name in re.findall(r"^(?:struct|enum|union) (\w+) \{", header.read_text(), re.M)
        if not name.startswith(("qs_", "qsi_", "Arrow"))
    }
    assert found == set()


def test_documented_figures_are_true(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    now = dataclasses.astuple(importlib.import_module("figures").bounded())
    text = (ROOT / "docs/DECISIONS.md").read_text()
    table = text[text.index("## Figures") :]
    bounds = re.findall(r"\| at (most|least) ([\d.]+) \|$", table, re.M)
    assert len(bounds) == len(now)
    for (kind, bound), figure in zip(bounds, now, strict=True):
        assert figure <= float(bound) if kind == "most" else figure >= float(bound), table
