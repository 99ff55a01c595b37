"""Hash what the extension, or the whole installed package, is made of.

    source_hash.py                 print the hash of the sources of the extension
    source_hash.py --package       print the hash of everything that gets installed
    source_hash.py --header OUT    write OUT, a C header that defines QS_SOURCE_HASH

The build compiles the first one into `_core`; the test session compares it with the tree.
"""

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTENSION = (
    "CMakeLists.txt",
    "cmake/*.cmake",
    "csrc/CMakeLists.txt",
    "csrc/**/*.[ch]",
    "csrc/**/*.def",
    "pyqstore/CMakeLists.txt",
    "pyqstore/*.pyx",
    "pyqstore/*.pxd",
    "pyqstore/core/*.pyx",
    "pyqstore/*_cdef.h",
    "tools/gen_ffi.py",
    "tools/source_hash.py",
)
PACKAGE = (
    *EXTENSION,
    "pyproject.toml",
    "pyqstore/**/*.py*",
    "pyqstore/py.typed",
    "pyqstore/**/*.jinja",
    "pyqstore/http/page/static/**/*",
    "spark_udfs/**/*",
)


def source_hash(patterns: Iterable[str] = EXTENSION, root: Path = ROOT) -> str:
    """Hash the names and contents of the files under `root` that match: 64 hex digits."""
    paths = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    total = hashlib.sha256()
    for path in sorted(paths):
        if "__pycache__" in path.parts:
            continue
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(root).as_posix()}\0{content}\n".encode())
    return total.hexdigest()


def main(arguments: list[str]) -> None:
    match arguments:
        case []:
            print(source_hash())
        case ["--package"]:
            print(source_hash(PACKAGE))
        case ["--header", out]:
            Path(out).write_text(f'#define QS_SOURCE_HASH "{source_hash()}"\n', encoding="ascii")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
