"""No module of the package imports itself by way of others: neither when it is imported, nor inside
of a function, nor for its types, but for a few."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
Graph = dict[str, set[str]]
# Of the types alone, or inside of a function: an exception has a message of the engine, whose
# extension raises the exceptions; queues and streams belong to a store, which makes them, and
# transactions and iterations to a channel; a queue starts workers, which take from it; a store lets
# tools in, whose calls have the store, and starts the server of its page.
LATER = {
    ("pyqstore.errors", "pyqstore._core"),
    ("pyqstore.control.hub", "pyqstore.control.answering"),
    ("pyqstore.iteration", "pyqstore.channel.receiving"),
    ("pyqstore.transaction", "pyqstore.channel"),
    ("pyqstore.transaction", "pyqstore.stream_consumer"),
    ("pyqstore.queue", "pyqstore.store"),
    ("pyqstore.queue", "pyqstore.work"),
    ("pyqstore.stream", "pyqstore.store"),
    ("pyqstore.stream_consumer", "pyqstore.store"),
    ("pyqstore.store", "pyqstore.http.server"),
    ("pyqstore.aio.receiving", "pyqstore.aio.channel.receiving"),
    ("pyqstore.aio.transaction", "pyqstore.aio.channel"),
    ("pyqstore.aio.queue", "pyqstore.aio.store"),
    ("pyqstore.aio.stream", "pyqstore.aio.store"),
    ("pyqstore.aio.queue", "pyqstore.aio.work"),
}


def modules(package: str) -> dict[str, Path]:
    """The modules by name; a compiled one stands for its sources."""
    found = {}
    for path in (ROOT / package).rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    for path in (ROOT / package).glob("*.pyi"):
        found.setdefault(f"{package}.{path.stem}", path.with_suffix(".pyx"))
    return found


def imported(name: str, path: Path) -> Iterator[tuple[str, list[str]]]:
    """Where from, and the names, of each import statement."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, []
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = [node.module] if node.module else []
            yield ".".join([*above, *module]), [alias.name for alias in node.names]


def compiled_imports(package: str, path: Path) -> set[str]:
    """What a Cython module imports when it is imported; conversions import what they make later."""
    parts = [path, *(path.parent / "core").glob("*.pyx")] if path.exists() else []
    text = "\n".join(part.read_text() for part in parts)
    return {f"{package}.{name}" for name in re.findall(r"^from \.(\w+) import", text, re.M)}


def graph(package: str) -> Graph:
    found = modules(package)
    edges: Graph = {}
    for name, path in found.items():
        if path.suffix == ".pyx":
            edges[name] = compiled_imports(package, path)
            continue
        edges[name] = set()
        for module, names in imported(name, path):
            inner = {f"{module}.{each}" for each in names if f"{module}.{each}" in found}
            edges[name] |= inner or ({module} & found.keys())
        edges[name].discard(name)
    return edges


def at_once(edges: Graph) -> Graph:
    return {
        user: {used for used in others if (user, used) not in LATER}
        for user, others in edges.items()
    }


def circle(edges: Graph) -> list[str]:
    """The modules of one circle, in its order; none: []."""
    done: set[str] = set()

    def search(name: str, trail: list[str]) -> list[str]:
        if name in trail:
            return [*trail[trail.index(name) :], name]
        if name not in done:
            for other in sorted(edges[name]):
                if found := search(other, [*trail, name]):
                    return found
            done.add(name)
        return []

    for name in sorted(edges):
        if found := search(name, []):
            return found
    return []


@pytest.mark.parametrize("package", ["pyqstore", "spark_udfs", "benchmarks"])
def test_imports_have_no_circles(package: str) -> None:
    edges = graph(package)
    assert len(edges) > 2
    assert circle(at_once(edges)) == []


def test_imports_that_wait_are_needed() -> None:
    edges = graph("pyqstore")
    for user, used in LATER:
        assert used in edges[user], f"{user} no longer imports {used}"


def test_a_circle_is_found() -> None:
    edges = at_once(graph("pyqstore"))
    edges["pyqstore.waiting"].add("pyqstore.aio.channel")
    assert "pyqstore.waiting" in circle(edges)
