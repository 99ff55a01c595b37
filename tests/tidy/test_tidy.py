"""Rules about the source itself that catch faults, checked like any other test."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"
# Of each floor its folders: what is named after FOLDERS, or the one of its name.
FLOORS = {
    name: folders.split() or [name]
    for name, folders in re.findall(
        r"^ *qs_floor\(([\w/]+)(?: FOLDERS ([a-z/ ]+))?",
        (CSRC / "CMakeLists.txt").read_text(),
        re.M,
    )
}
SOURCES = sorted(CSRC.rglob("*.[ch]"))
# One match for what is no code: comments, strings, character constants.
NO_CODE = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
# A call, not a member of that name: `free(p)`, but neither `allocator->free(p)` nor `qs_free(p)`.
CALL = r"(?<![\w.>])(?:{})\s*\("


@functools.cache
def code(path: Path) -> str:
    """The text of a C file with comments and strings blanked and every line in its place."""
    return NO_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), path.read_text())


def where(path: Path, text: str, position: int) -> str:
    return f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, position) + 1}"


def bound(path: str) -> set[str]:
    text = re.sub(r"#[^\n]*|\"\"\".*?\"\"\"", "", (ROOT / path).read_text(), flags=re.S)
    return set(re.findall(r"\b(qs_\w+)\s*\(", text))


def public() -> set[str]:
    """The functions and variables that the public headers declare."""
    found: set[str] = set()
    for header in (CSRC / "include/qstore").glob("*.h"):
        text = re.sub(r"^\s*#(?:[^\n]*\\\n)*[^\n]*", "", code(header), flags=re.M)
        for declaration in re.findall(r"\bQS_API\b([^;{]*)", text):
            name = re.search(r"\b(qs_\w+)\s*(?:\(|\[|$)", declaration.strip())
            assert name, f"no name in: QS_API {declaration}"
            found.add(name[1])
    return found


def declared() -> set[str]:
    """Every function that the public headers declare, whether it is marked or not."""
    found: set[str] = set()
    for header in (CSRC / "include/qstore").glob("*.h"):
        text = re.sub(r"^\s*#(?:[^\n]*\\\n)*[^\n]*", "", code(header), flags=re.M)
        found |= set(re.findall(r"^(?!typedef|static)\w[\w \n*]*?\b(qs_\w+)\s*\(", text, re.M))
    return found


def run(*command: str | Path) -> str:
    tools = Path(sys.executable).parent
    path = os.pathsep.join([str(tools), os.environ["PATH"]])
    program = shutil.which(command[0], path=path)
    assert program, f"{command[0]} is missing"
    done = subprocess.run(
        [program, *command[1:]],
        cwd=ROOT,
        env=os.environ | {"PATH": path},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def build() -> Path:
    """The debug build of the C core, brought up to date."""
    folder = ROOT / "build/debug"
    if not (folder / "build.ninja").exists():
        run("cmake", "--preset", "debug")
    run("cmake", "--build", folder, "--target", "qstore", "qs_codec")
    return folder


def test_no_c_function_is_bound_twice() -> None:
    assert bound("pyqstore/_capi.pxd") & bound("pyqstore/_ffi_cdef.h") == set()


def test_every_bound_function_is_public() -> None:
    assert bound("pyqstore/_capi.pxd") | bound("pyqstore/_ffi_cdef.h") <= public()


def test_shared_library_exports_what_the_headers_declare(build: Path) -> None:
    symbols = run("nm", "-D", "--defined-only", build / "csrc/libqstore.so")
    exported = {line.split()[2] for line in symbols.splitlines()}
    assert exported == public()
    assert declared() <= exported


def test_shared_library_has_no_test_environment_in_it(build: Path) -> None:
    symbols = run("nm", "--defined-only", build / "csrc/libqstore.so")
    defined = {line.split()[-1] for line in symbols.splitlines()}
    of_tests: set[str] = set()
    for header in (ROOT / "tests/native/sim").glob("*.h"):
        of_tests |= set(re.findall(r"^\w[\w *]*?\b(\w+)\(", code(header), re.M))
    assert "qsi_env_sim_cut" in of_tests
    assert of_tests & defined == set()


def test_codec_floor_has_no_mutable_statics(build: Path) -> None:
    # Two extensions link it, and each has a copy. The choice of a checksum routine is made once per
    # copy through a relaxed atomic; every thread and every copy comes to the same choice.
    allowed = {"crc32c_dispatch"}
    mutable = set()
    for line in run("nm", "--format=sysv", build / "csrc/libqs_codec.a").splitlines():
        columns = [column.strip() for column in line.split("|")]
        name, section = columns[0], columns[-1]
        # Constant tables of pointers are relocated once, in .data.rel.ro, and then read-only.
        if re.match(r"\.t?(data|bss)|\*COM\*", section) and ".rel.ro" not in section:
            mutable.add(name.partition(".")[0])
    assert mutable <= allowed


# Functions that no other file of the product calls, and why they are there after all.
UNCALLED = {
    # The power cuts of the tests work on the disk that is beneath ":memory:" (tests/native/sim).
    "qsi_image_assign",
    "qsi_image_pages",
    "qsi_ram_clear_names",
    "qsi_ram_node_of_dir",
    "qsi_ram_node_of_file",
    "qsi_ram_parent_of_dir",
    # Reading a block file without the cache: what its tests and benchmark hold the cache against.
    "qsi_block_cache_counts",
    "qsi_block_reader_close",
    "qsi_block_reader_open",
    "qsi_block_reader_read",
    "qsi_block_reader_read_dictionary",
    "qsi_block_reader_read_index",
    "qsi_block_next_place",
}


def linked(archive: Path) -> Iterator[tuple[str, str, bool]]:
    """The object, the name, and whether it is defined there, of each symbol that files share."""
    for line in run("nm", "-A", "--format=posix", archive).splitlines():
        found = re.match(r"\S*\[(.+)\]: (qsi?_\w+) ([TU])\b", line)
        if found:
            yield found[1], found[2], found[3] == "T"


def uncalled(archives: list[Path], used_inside: set[str]) -> set[str]:
    """The functions of the floors that no other object calls and that are not public."""
    defined: dict[str, str] = {}
    called: set[str] = set()
    for archive in archives:
        for where_it_is, name, is_defined in linked(archive):
            if is_defined:
                defined[name] = where_it_is
            else:
                called.add(name)
    assert len(defined) > 1000
    return defined.keys() - called - public() - used_inside


def test_every_function_that_files_share_is_called_by_another_file(build: Path) -> None:
    # Or by its own, and then a test looks at it: that is why it is not static.
    of_tests = {
        name
        for path in (ROOT / "tests/native").rglob("*.[ch]")
        for name in re.findall(r"\bqsi_\w+", code(path))
    }
    used_inside = set()
    for path in SOURCES:
        words = re.findall(r"\bqsi_\w+(?=\()", code(path)) if path.suffix == ".c" else []
        used_inside |= {name for name in words if words.count(name) > 1}
    archives = sorted((build / "csrc").glob("libqs_*.a"))
    dead = uncalled(archives, used_inside & of_tests)
    assert sorted(dead - UNCALLED) == []
    everywhere = {name for path in SOURCES for name in re.findall(r"\bqsi_\w+", code(path))}
    assert sorted(UNCALLED - everywhere) == [], "gone: take them out of the list"


def test_a_main_of_a_c_test_runs_the_tests_of_its_file() -> None:
    files = [path for path in (ROOT / "tests/native").rglob("*.c") if "_TEST(" in path.read_text()]
    mains = [path for path in files if re.search(r"^int main\(", path.read_text(), re.M)]
    assert len(mains) > 5
    assert [path.name for path in mains if "qs_test_run_all();" not in path.read_text()] == []


# What is banned: where it may be after all, and what to use instead.
BANNED = [
    (
        "malloc calloc realloc reallocarray free aligned_alloc posix_memalign memalign "
        "strdup strndup asprintf vasprintf getline",
        r"base/alloc\.c",
        "qsi_alloc and its kin of base/alloc.h",
    ),
    ("fsync fdatasync sync_file_range syncfs sync", r"io/", "the sync calls of io/file.h"),
    (
        "open openat creat fopen read pread preadv readv write pwrite pwritev writev ftruncate "
        "fallocate posix_fallocate rename renameat unlink unlinkat mkdir mkdirat rmdir opendir "
        "fdopendir flock mmap munmap",
        r"io/|net/address\.c",  # names of sockets
        "qs_env, the only door to the disk",
    ),
    (
        "time gettimeofday clock_gettime clock nanosleep clock_nanosleep usleep sleep rand srand "
        "random srandom drand48 getrandom getentropy",
        r"io/|base/lock\.[ch]",
        "the clock and the randomness of qs_env",
    ),
    (
        "strcpy stpcpy strcat strncpy strncat sprintf vsprintf gets strtok alloca atoi atol",
        r"$.",
        "a call that knows the size",
    ),
    ("assert static_assert", r"$.", "QS_ASSERT, QS_DCHECK or _Static_assert"),
    ("exit _exit abort", r"base/check\.c", "a status, or QS_ASSERT"),
]


@pytest.mark.parametrize(
    ("names", "allowed", "instead"), BANNED, ids=[row[0].split()[0] for row in BANNED]
)
def test_no_banned_call(names: str, allowed: str, instead: str) -> None:
    found = []
    for path in SOURCES:
        if re.match(allowed, path.relative_to(CSRC).as_posix()):
            continue
        text = code(path)
        for call in re.finditer(CALL.format("|".join(names.split())), text):
            line = text[text.rfind("\n", 0, call.start()) + 1 : call.end()]
            # A declaration of a function or a function pointer of that name is no call.
            if not re.search(r"\w\s*\*?\s*$", line[: -len(call[0])]) or "return" in line:
                found.append(f"{where(path, text, call.start())}: {call[0]}...): use {instead}")
    assert not found, "\n".join(found)


def functions(text: str) -> Iterator[tuple[int, str]]:
    """Position and body of each function: its braces are those in the first column."""
    for found in re.finditer(r"^\{\n.*?^\}", text, re.M | re.S):
        yield found.start(), found[0]


def test_no_early_return_where_something_is_held() -> None:
    found = []
    for path in SOURCES:
        text = code(path)
        for position, body in functions(text):
            if "QS_TRY(" in body and re.search(r"\bgoto out\b", body):
                found.append(f"{where(path, text, position)}: QS_TRY in a function with goto out")
    assert not found, "\n".join(found)


def test_every_c_source_is_in_a_target(build: Path) -> None:
    commands = json.loads((build / "compile_commands.json").read_text())
    compiled = {Path(entry["file"]).resolve() for entry in commands}
    present = {*CSRC.rglob("*.c"), *(ROOT / "tests/native").rglob("*.c")}
    assert sorted(map(str, present - compiled)) == []


def test_every_folder_of_sources_is_in_one_floor() -> None:
    folders = {path.parent.relative_to(CSRC).as_posix() for path in CSRC.rglob("*.c")}
    assert sorted(folders) == sorted(folder for named in FLOORS.values() for folder in named)


def test_header_names_are_unique() -> None:
    # Every floor is on the include path of those above it.
    names = [path.name for path in CSRC.rglob("*.h") if "include" not in path.parts]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_the_laboratory_is_in_no_wheel() -> None:
    packed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["wheel"]
    folders = [ROOT / folder for folder in packed["packages"].values()]
    assert {folder.relative_to(ROOT).parts[0] for folder in folders} == {"pyqstore", "spark_udfs"}
    assert (ROOT / "benchmarks/laboratory/rivals/java").is_dir()
    of_java = ("*.java", "*.pom.xml")
    assert [path for folder in folders for kind in of_java for path in folder.rglob(kind)] == []


def test_no_store_lies_among_the_sources() -> None:
    """Tests that misuse paths made some in the directory that they were started in."""
    made = sorted(ROOT.glob("*/MANIFEST"))
    assert not made, f"{len(made)} stores: {made[:3]}"


def test_no_path_of_somebodys_machine_in_the_tree() -> None:
    private = re.compile("/(?:" + "work|root|home|Users" + r")/\w")
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            name
            for name in folders
            if name not in {"build", "dist", "__pycache__"}
            and (not name.startswith(".") or name == ".ci")
        ]
        for name in names:
            path = Path(folder, name)
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            found += [
                f"{where(path, text, hit.start())}: {hit[0]}" for hit in private.finditer(text)
            ]
    assert not found, "\n".join(found)
