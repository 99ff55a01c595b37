#!/usr/bin/env python3
"""Clang's thread-safety analysis: is each lock held where csrc/base/thread_safety.h says so?

    check_locks.py [FILE...]    some C files; without any, all of csrc

Exit status 1: a lock is not held, or a file does not compile; 3: there is no clang.
"""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CSRC = ROOT / "csrc"
GENERATED = ROOT / "build" / "generated"


def find_clang() -> str | None:
    """Clang, or the newest one that has its version in its name."""
    named = [
        path for path in Path("/usr/bin").glob("clang-*") if re.fullmatch(r"clang-\d+", path.name)
    ]
    newest = sorted(named, key=lambda path: int(path.name.removeprefix("clang-")))
    return shutil.which("clang") or (str(newest[-1]) if newest else None)


def check(clang: str, source: Path) -> subprocess.CompletedProcess[str]:
    public = CSRC / "include"  # named with their folder: a floor may have one of the same name
    folders = sorted({header.parent for header in CSRC.rglob("*.h")} - {public / "qstore"})
    # Quoted names only: a floor may have a header that is called as one of the system's is.
    includes = [word for folder in folders for word in ("-iquote", str(folder))]
    includes += ["-iquote", str(GENERATED)]
    flags = ["-fsyntax-only", "-std=gnu11", "-ferror-limit=0"]
    flags += ["-Wthread-safety", "-Werror=thread-safety"]
    return subprocess.run(
        [clang, *flags, *includes, "-I", str(public), str(source)],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )


def main(names: list[str]) -> int:
    clang = find_clang()
    if clang is None:
        print("check_locks: clang is missing", file=sys.stderr)
        return 3
    if shutil.which("cmake") is None:
        print("check_locks: cmake is missing", file=sys.stderr)
        return 3
    table = f"-DQS_CRC32C_TABLE={GENERATED / 'crc32c_table.h'}"
    subprocess.run(["cmake", table, "-P", ROOT / "cmake" / "Crc32cTable.cmake"], check=True)
    sources = [Path(name).resolve() for name in names] or sorted(CSRC.rglob("*.c"))
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        results = list(pool.map(lambda source: check(clang, source), sources))
    for result in results:
        if result.returncode:
            print(result.stdout, end="")
    return int(any(result.returncode for result in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
