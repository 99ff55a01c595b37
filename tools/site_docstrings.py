"""An extension of griffe, which makes the reference: stubs of compiled modules get the docstrings
that the modules have, and verbs of asyncio the arguments of the verbs that they await."""

import importlib
import inspect
from collections.abc import Iterator
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


def verbs(module: griffe.Module) -> Iterator[tuple[griffe.Class, griffe.Function, griffe.ExprCall]]:
    """The methods that ``@awaited(...)`` makes in the classes of a module, and that call."""
    for member in list(module.members.values()):
        if isinstance(member, griffe.Module):
            yield from verbs(member)
        elif isinstance(member, griffe.Class):
            for each in list(member.members.values()):
                for decorator in each.decorators if isinstance(each, griffe.Function) else []:
                    call = decorator.value
                    if isinstance(call, griffe.ExprCall) and str(call.function) == "awaited":
                        assert isinstance(each, griffe.Function)
                        yield member, each, call


def describe(owner: griffe.Class, verb: griffe.Function, call: griffe.ExprCall) -> None:
    """The verb has the arguments of the synchronous one, and a docstring with its own note."""
    awaited = call.arguments[0]
    assert isinstance(awaited, griffe.Expr)
    place, _, name = awaited.canonical_path.rpartition(".")
    one = owner.package[place.partition(".")[2]].all_members[name]
    verb.parameters = one.parameters
    verb.returns = returned(call, owner.module) or one.returns
    verb.labels.add("async")
    made = getattr(importlib.import_module(owner.module.path), owner.name)
    text = inspect.getdoc(getattr(made, verb.name))
    verb.docstring = griffe.Docstring(text, parent=verb) if text else None


def returned(call: griffe.ExprCall, module: griffe.Module) -> griffe.Expr | str | None:
    """What stands in place of the result: an object of a class, or what a function makes."""
    for argument in call.arguments:
        if isinstance(argument, griffe.ExprKeyword) and argument.name == "made":
            maker = module.members.get(str(argument.value))
            return maker.returns if isinstance(maker, griffe.Function) else argument.value
    return None


class Docstrings(griffe.Extension):
    """Called by griffe with each package that it has read."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Of other packages nothing is compiled here."""
        for name in COMPILED:
            if pkg.name == "pyqstore" and name in pkg.members:
                module = importlib.import_module(f"pyqstore.{name}")
                stub = pkg[name]
                assert isinstance(stub, griffe.Module)
                fill(stub, module)
        if pkg.name == "pyqstore":
            aio = pkg["aio"]
            assert isinstance(aio, griffe.Module)
            for owner, verb, call in verbs(aio):
                describe(owner, verb, call)
