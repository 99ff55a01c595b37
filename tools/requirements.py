"""Print what to install first: requirements.py [EXTRA...] for the package, --build for its build.

pip installs a package with what it needs or without it, never what it needs alone. Installed
alone and first, it lets the package be built again and again in place with nothing to look up.
"""

import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def requirements(project: dict[str, Any], extras: Iterable[str]) -> set[str]:
    """Flatten the dependencies and those of the extras, also of extras that extras name."""
    found = set(project["dependencies"])
    for extra in extras:
        for entry in project["optional-dependencies"][extra]:
            if entry.startswith(project["name"] + "["):
                found |= requirements(project, entry.partition("[")[2].rstrip("]").split(","))
            else:
                found.add(entry.replace(" ", ""))
    return found


def main(arguments: list[str]) -> None:
    pyproject = Path(__file__).resolve().parent.parent / "pyproject.toml"
    table = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    if arguments == ["--build"]:
        print(*table["build-system"]["requires"], sep="\n")
    else:
        print(*sorted(requirements(table["project"], arguments)), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
