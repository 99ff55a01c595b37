"""The laboratory: workloads in ``benchmarks/laboratory`` of a clone, that no wheel has.

They need servers, Java or programs that a clone builds.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import tomllib
from pathlib import Path
from types import ModuleType

PACKAGE = "benchmarks.laboratory"
WORKLOADS = ("rivals", "wire", "shovel", "spark", "seeds")
_FOLDER = Path("benchmarks", "laboratory")


def folder() -> Path | None:
    """Where it is: that of this process, or of the clone whose root is the current directory."""
    if PACKAGE in sys.modules:
        return Path(sys.modules[PACKAGE].__path__[0])
    root = Path.cwd()
    return root / _FOLDER if _is_clone(root) else None


def load(place: Path) -> None:
    """Have it imported, and nothing else that lies beside it."""
    spec = importlib.util.spec_from_file_location(
        PACKAGE, place / "__init__.py", submodule_search_locations=[str(place)]
    )
    assert spec is not None
    assert spec.loader is not None
    # What is above it is asked for by name alone.
    sys.modules.setdefault(PACKAGE.partition(".")[0], ModuleType(PACKAGE.partition(".")[0]))
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[PACKAGE])


def workload(name: str) -> ModuleType | None:
    """The module of one; None: it is not here."""
    if (place := folder()) is None:
        return None
    if PACKAGE not in sys.modules:
        load(place)
    return importlib.import_module(f"{PACKAGE}.{name}")


def missing(name: str) -> str:
    """What to do where there is none."""
    return (
        f"the workload {name} is in {_FOLDER} of a clone of pyqstore, which is not installed with"
        " it: run this in the root of a clone"
    )


def _is_clone(root: Path) -> bool:
    """Whether a directory is the root of a clone of pyqstore."""
    if not (root / _FOLDER / "__init__.py").is_file():
        return False
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return bool(project["name"] == "pyqstore")
    except (OSError, ValueError, LookupError, TypeError):
        return False
