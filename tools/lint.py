#!/usr/bin/env python3
"""Style, types, floors, locks and documents: each tool though one before it failed.

    lint.py [NAME...]    all tools, or some by name

Two run at a time, the longest first. What a tool says is shown where it failed; the last line
names those that did.
"""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "tools"


def c_sources() -> list[str]:
    folders = ("csrc", "tests/native", "tests/python", "benchmarks")
    return [str(path) for folder in folders for path in (ROOT / folder).rglob("*.[ch]")]


def cython_sources() -> list[str]:
    package = ROOT / "pyqstore"
    found = [*package.glob("*.pyx"), *package.glob("*.pxd"), *package.glob("core/*.pyx")]
    return [str(path) for path in found]


def commands() -> dict[str, list[str]]:
    python = sys.executable
    return {
        "locks": [python, f"{TOOLS}/check_locks.py"],
        # A disjoint base cannot share a subclass with another such base: true of each Cython
        # class, of no use in stubs.
        "stubtest": ["stubtest", "pyqstore._core", "pyqstore._ffi", "--ignore-disjoint-bases",
                     "--allowlist", "tests/typing/stubtest-allow.txt"],
        "mypy": ["mypy"],
        # Every name that callers see has a type.
        "typed": ["basedpyright", "--pythonpath", python, "--verifytypes", "pyqstore",
                  "--ignoreexternal"],
        "basedpyright": ["basedpyright", "--pythonpath", python],
        "documents": ["mkdocs", "build", "--strict", "--quiet"],
        "clang-format": ["clang-format", "--dry-run", "-Werror", *c_sources()],
        "cython-lint": ["cython-lint", *cython_sources()],
        "ruff": ["ruff", "check"],
        "ruff-format": ["ruff", "format", "--check"],
        "floors": [python, f"{TOOLS}/graph.py", "--check"],  # and the pictures
        "container": ["hadolint", "examples/container/Containerfile"],
        "wheels": ["cibuildwheel", "--platform", "linux", "--archs", "x86_64,aarch64",
                   "--print-build-identifiers"],
    }  # fmt: skip


def run(name: str, command: list[str]) -> tuple[str, int, str, float]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"}
    if name in ("stubtest", "typed", "basedpyright"):  # of the installed package
        environment["PYTHONSAFEPATH"] = "1"
    begun = time.monotonic()
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment | {"NO_MKDOCS_2_WARNING": "1"},
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return name, done.returncode, done.stdout, time.monotonic() - begun


def tell(name: str, status: int, text: str, seconds: float) -> None:
    """Print it, and write it for tools/stages.py."""
    print(f"lint: {name:14}{seconds:6.1f} s  {'failed' if status else 'passed'}", flush=True)
    if status:
        print(text, flush=True)
    if outcomes := os.environ.get("QS_OUTCOMES"):
        line = {
            "name": name,
            "outcome": "failed" if status else "passed",
            "seconds": round(seconds, 3),
            "text": text[-4000:] if status else "",
        }
        with open(outcomes, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def main(names: list[str]) -> int:
    chosen = {name: command for name, command in commands().items() if not names or name in names}
    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(run, name, command) for name, command in chosen.items()]
        results = [each.result() for each in done]
    for result in results:
        tell(*result)
    failed = [name for name, status, _, _ in results if status]
    if failed:
        print(f"lint: failed: {' '.join(failed)}; ./dev format mends what it can", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
