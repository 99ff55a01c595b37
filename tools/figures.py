"""Print how the C sources are made, as a table: lengths, comments, asserts.

What docs/DECISIONS.md says of them is a bound, so that it stays true while they change:
``tests/tidy/test_floors.py`` holds its table against `bounded`.
"""

import re
from dataclasses import dataclass
from statistics import median, quantiles

import floors

LONG_FILE = 800
COLUMNS = 100
ASSERT = re.compile(r"\bQS_D?(?:ASSERT|CHECK)\w*\s*\(")
# Files in memory, disks that lose power and calls that fail.
TEST_ENVIRONMENT = re.compile(r"env_(?!posix|call)|ram_|image|splitmix|sim|fault")


def comment_share(text: str) -> tuple[int, int]:
    """The lines that are comment and nothing else, and all lines."""
    bare = floors.code(text).splitlines()
    lines = text.splitlines()
    full = sum(
        bool(line.strip()) and not code.strip() for line, code in zip(lines, bare, strict=True)
    )
    return full, len(lines)


def struct_fields(text: str, name: str) -> tuple[int, int]:
    """The fields of a struct and those that are bools."""
    found = re.search(rf"^struct {name} \{{\n(.*?)^\}}", floors.code(text), re.M | re.S)
    if found is None:
        return 0, 0
    fields = 0
    bools = 0
    for declaration in re.split(r";", re.sub(r"\([^()]*\)(?=;)", "", found[1])):
        if declaration.strip():
            names = declaration.count(",") + 1
            fields += names
            bools += names if re.search(r"\bbool\b", declaration) else 0
    return fields, bools


@dataclass
class Bounded:
    """What has a bound: at most so much; of asserts, so many at least."""

    function_lines_max: int
    long_files: int
    engine_asserts_per_function: float
    store_fields: int
    store_bools: int
    wide_lines: int


def bounded() -> Bounded:
    """The figures of which docs/DECISIONS.md gives a bound."""
    sources = floors.Sources()
    bodies = {
        path: [found[0] for found in floors.DEFINITION.finditer(text)]
        for path, text in sources.code.items()
    }
    engine = [path for path in sources.code if sources.name(path).startswith("engine/")]
    asserts = sum(len(ASSERT.findall(sources.code[path])) for path in engine)
    fields, bools = max(struct_fields(text, "qs_store") for text in sources.text.values())
    return Bounded(
        max(body.strip().count("\n") + 1 for found in bodies.values() for body in found),
        sum(
            text.count("\n") > LONG_FILE
            for path, text in sources.text.items()
            if path.suffix == ".c"
        ),
        asserts / sum(len(bodies[path]) for path in engine),
        fields,
        bools,
        sum(len(line) > COLUMNS for text in sources.text.values() for line in text.splitlines()),
    )


def main() -> None:
    sources = floors.Sources()
    lengths = []
    asserts = 0
    engine_asserts = 0
    engine_functions = 0
    for path, text in sources.code.items():
        bodies = [found[0] for found in floors.DEFINITION.finditer(text)]
        lengths += [body.strip().count("\n") + 1 for body in bodies]
        count = len(ASSERT.findall(text))
        asserts += count
        if sources.name(path).startswith("engine/"):
            engine_functions += len(bodies)
            engine_asserts += count
    public = {path: path.read_text() for path in (sources.csrc / "include").rglob("*.h")}
    texts = sources.text | public
    shares = {}
    for suffix in (".c", ".h"):
        pairs = [comment_share(text) for path, text in texts.items() if path.suffix == suffix]
        shares[suffix] = (sum(full for full, _ in pairs), sum(lines for _, lines in pairs))
    full = sum(pair[0] for pair in shares.values())
    lines = sum(pair[1] for pair in shares.values())
    engine = [path for path in sources.text if sources.name(path).startswith("engine/")]
    engine_lines = sum(sources.text[path].count("\n") for path in engine)
    store = [struct_fields(text, "qs_store") for text in sources.text.values()]
    fields, bools = max(store)
    wide_c = sum(len(line) > COLUMNS for text in texts.values() for line in text.splitlines())
    documents = [
        path
        for pattern in ("*.md", "docs/*.md", "benchmarks/**/*.md", "examples/*.md")
        for path in floors.ROOT.glob(pattern)
    ]
    wide_md = sum(
        len(line) > COLUMNS and not line.startswith("|")
        for path in documents
        for line in path.read_text().splitlines()
    )
    in_io = sum(
        text.count("\n")
        for path, text in sources.text.items()
        if sources.floor_of[path] == "io" and TEST_ENVIRONMENT.match(path.stem)
    )
    functions = len(lengths)
    rows = [
        (
            "lines of a function: median, p90, max",
            f"{median(lengths):.0f}, {quantiles(lengths, n=10)[-1]:.0f}, {max(lengths)}"
            f" ({functions:,} functions)",
        ),
        (
            f"`.c` files over {LONG_FILE} lines",
            str(
                sum(
                    text.count("\n") > LONG_FILE
                    for path, text in sources.text.items()
                    if path.suffix == ".c"
                )
            ),
        ),
        (
            "lines that are comment (`.c`, `.h`)",
            f"{100 * full / lines:.1f} %"
            f" ({100 * shares['.c'][0] / shares['.c'][1]:.1f},"
            f" {100 * shares['.h'][0] / shares['.h'][1]:.1f})",
        ),
        (
            "asserts for each function (of `engine`)",
            f"{asserts / functions:.2f} ({engine_asserts} in {engine_functions})",
        ),
        ("`csrc/engine`", f"{len(engine)} files, {engine_lines:,} lines"),
        ("fields of `struct qs_store`, bools among them", f"{fields}, {bools}"),
        ("lines of environments but the file system's in `csrc/io`", f"{in_io:,}"),
        ("lines over 100 columns: C, Markdown without tables", f"{wide_c}, {wide_md}"),
    ]
    print("| | |\n|---|---|")
    for name, value in rows:
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
