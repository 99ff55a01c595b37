"""An extension of griffe, which makes the reference: stubs of compiled modules get the docstrings
that the modules have."""

import importlib
import inspect
from typing import Any

import griffe

COMPILED = ["_core", "_ffi"]


def fill(stub: griffe.Object, compiled: object) -> None:
    """What a stub describes, and what is in it."""
    for name, member in stub.members.items():
        there = inspect.getattr_static(compiled, name, None)
        if there is None or not isinstance(member, griffe.Object):
            continue
        text = inspect.getdoc(there)
        if text and not member.docstring:
            member.docstring = griffe.Docstring(text, parent=member)
        if isinstance(member, griffe.Class):
            fill(member, there)


class CompiledDocstrings(griffe.Extension):
    """Called by griffe with each package that it has read."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Of other packages nothing is compiled here."""
        for name in COMPILED:
            if pkg.name == "pyqstore" and name in pkg.members:
                module = importlib.import_module(f"pyqstore.{name}")
                stub = pkg[name]
                assert isinstance(stub, griffe.Module)
                fill(stub, module)
