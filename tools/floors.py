"""The floors of csrc/: what csrc/CMakeLists.txt lets each see, and what its sources do see.

A floor is a folder of csrc/ (or several, `FOLDERS`) that is built as a static library of its own.
It may include and call itself and the floors that `USES` names, directly or through them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# One match for what is no code: comments, strings, character constants.
NO_CODE = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"\n]+)"', re.M)
# A function begins its body with a brace in the first column, and so does nothing else.
DEFINITION = re.compile(r"^([A-Za-z_][^;{}#]*?\b(\w+)\([^;{}]*\))\s*\n\{\n(.*?)^\}", re.M | re.S)


@dataclass
class Floor:
    """A static library: its name, which is its folder's, what it may see, and its sources."""

    name: str
    uses: list[str]
    sources: list[Path]


def code(text: str) -> str:
    """C with comments and strings blanked and every line in its place."""
    return NO_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def read_floors(root: Path = ROOT) -> dict[str, Floor]:
    """The floors in the order of csrc/CMakeLists.txt, by name."""
    csrc = root / "csrc"
    floors: dict[str, Floor] = {}
    text = re.sub(r"#[^\n]*", "", (csrc / "CMakeLists.txt").read_text())
    for name, words in re.findall(r"\bqs_\w*floor\(\s*([\w/]+)([^)]*)\)", text):
        lists: dict[str, list[str]] = {}
        keyword = ""
        for word in words.split():
            if word.isupper():
                keyword = word
            else:
                lists.setdefault(keyword, []).append(word)
        folders = [csrc / folder for folder in lists.get("FOLDERS", [name])]
        found = sorted(path for folder in folders for path in folder.glob("*.[ch]"))
        floors[name] = Floor(name, lists.get("USES", []), found)
    return floors


def seen(floors: Mapping[str, Floor], name: str) -> set[str]:
    """The floors below one: all that `USES` leads to."""
    below: set[str] = set()
    ways = list(floors[name].uses)
    while ways:
        floor = ways.pop()
        if floor not in below:
            below.add(floor)
            ways += floors[floor].uses
    return below


def circles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of two nodes or more, and nodes that lead to themselves."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(start: str) -> None:
        ways: list[tuple[str, Iterator[str]]] = []

        def enter(node: str) -> None:
            number[node] = lowest[node] = len(number)
            path.append(node)
            ways.append((node, iter(sorted(edges.get(node, ())))))

        enter(start)
        while ways:
            node, ahead = ways[-1]
            for other in ahead:
                if other not in number:
                    enter(other)
                    break
                if other in path:
                    lowest[node] = min(lowest[node], number[other])
            else:
                ways.pop()
                if ways:
                    lowest[ways[-1][0]] = min(lowest[ways[-1][0]], lowest[node])
                if lowest[node] == number[node]:
                    circle = path[path.index(node) :]
                    del path[path.index(node) :]
                    if len(circle) > 1 or node in edges.get(node, ()):
                        found.append(sorted(circle))

    for node in sorted(edges):
        if node not in number:
            visit(node)
    return sorted(found)


class Sources:
    """All C files of the floors, with what each includes and calls."""

    def __init__(self, root: Path = ROOT) -> None:
        self.csrc = root / "csrc"
        self.floors = read_floors(root)
        self.floor_of: dict[Path, str] = {}
        self.text: dict[Path, str] = {}
        self.code: dict[Path, str] = {}
        for floor in self.floors.values():
            for path in floor.sources:
                self.floor_of[path] = floor.name
                self.text[path] = path.read_text()
                self.code[path] = code(self.text[path])
        self.headers = {path.name: path for path in self.text if path.suffix == ".h"}
        self.defined_in = self._definitions()

    def _definitions(self) -> dict[str, Path]:
        """The functions that more than one file can call, and where each is defined."""
        found: dict[str, Path] = {}
        for path, text in self.code.items():
            if path.suffix == ".c":
                for start, name, _ in DEFINITION.findall(text):
                    if not start.startswith("static"):
                        found[name] = path
        return found

    def name(self, path: Path) -> str:
        return path.relative_to(self.csrc).as_posix()

    def includes(self, path: Path) -> list[Path]:
        """The headers of floors that a file includes: no public ones, nor those of the system."""
        names = [Path(name) for name in INCLUDE.findall(self.text[path])]
        return [
            self.headers[name.name]
            for name in names
            if name.parts[0] != "qstore" and name.name in self.headers
        ]

    def calls(self, path: Path) -> dict[str, Path]:
        """The functions of other files that a file names, and where they are defined."""
        if path.suffix == ".h":  # which declares; what it calls inline, those that include it call
            return {}
        words = set(re.findall(r"(?<!struct )\bqsi?_\w+", self.code[path]))
        found = {word: self.defined_in[word] for word in words if word in self.defined_in}
        return {word: where for word, where in found.items() if where != path}


def complaints(sources: Sources) -> list[str]:
    """What is wrong with the floors: circles, and arrows that do not lead downwards."""
    floors = sources.floors
    order = list(floors)
    found = [
        f"csrc/CMakeLists.txt: {floor.name} uses {used}, which is not below it"
        for floor in floors.values()
        for used in floor.uses
        if used not in floors or order.index(used) >= order.index(floor.name)
    ]
    if found:
        return found
    below = {name: seen(floors, name) | {name} for name in floors}
    for path in sorted(sources.text):
        floor = sources.floor_of[path]
        found += [
            f"{sources.name(path)} includes {sources.name(header)}: not below it"
            for header in sources.includes(path)
            if sources.floor_of[header] not in below[floor]
        ]
        found += [
            f"{sources.name(path)} calls {function} of {sources.name(where)}: not below it"
            for function, where in sorted(sources.calls(path).items())
            if sources.floor_of[where] not in below[floor]
        ]
    # An arrow that leads up may make a circle, too: it is told alone.
    rings = circles(module_edges(sources))
    return found or ["in a circle: " + ", ".join(circle) for circle in rings]


def module_edges(sources: Sources) -> dict[str, set[str]]:
    """What each module (a .c file and its header) includes and calls of others."""
    edges: dict[str, set[str]] = {}
    for path in sources.text:
        module = sources.name(path.with_suffix(""))
        others = {*sources.includes(path), *sources.calls(path).values()}
        names = {sources.name(other.with_suffix("")) for other in others}
        edges.setdefault(module, set()).update(names - {module})
    return edges
