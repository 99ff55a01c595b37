"""Whatever takes a function looks at it when it is given: a TypeError that names the argument."""

import asyncio
import collections.abc
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore import aio, session
from pyqstore.aio import session as aio_session

from .faces import FACES, classes, verbs

NO_FUNCTION = object()
SETTERS = {"listener", "exception_listener"}


def _takes_function(hint: object) -> bool:
    is_function = typing.get_origin(hint) is collections.abc.Callable
    return is_function or any(_takes_function(part) for part in typing.get_args(hint))


def _functions(of: Callable[..., Any]) -> Iterator[str]:
    """The parameters that are functions."""
    names = getattr(inspect.unwrap(of), "__globals__", {})
    for parameter in inspect.signature(of).parameters.values():
        hint = parameter.annotation
        try:
            hint = eval(hint, dict(names)) if isinstance(hint, str) else hint
            is_function = _takes_function(hint)
        except NameError:  # imported for the type checker alone
            is_function = "Callable" in hint
        if is_function:
            yield parameter.name


def _found() -> Iterator[tuple[str, str, str]]:
    """Class or module, verb and parameter of all that takes a function, in all faces."""
    for face, module in FACES.items():
        for name in module.__all__:
            if inspect.isfunction(getattr(module, name)):
                for parameter in _functions(getattr(module, name)):
                    yield face, name, parameter
    for of, kind in classes():
        for name, verb in verbs(kind):
            function = verb.fset if isinstance(verb, property) else verb
            if inspect.isfunction(function):
                for parameter in _functions(function):
                    yield of, name, name if name in SETTERS else parameter


FOUND = sorted(set(_found()) | {("pyqstore", "open", "progress"), ("aio", "open", "progress")})


def test_introspection_finds_the_verbs_that_take_functions() -> None:
    assert {verb for _, verb, _ in FOUND} >= {
        "add_cancel_listener", "add_confirm_listener", "add_return_listener", "basic_consume",
        "browse", "exception_listener", "listen", "listener", "open", "serve_page",
        "stream_consumer", "verify", "work",
    }  # fmt: skip
    assert len(FOUND) >= 30, FOUND


class Place:
    """An object of each class that has such a verb, and what else the verbs must be given."""

    def __init__(self, store: pyqstore.Store, path: Path) -> None:
        """With a queue and a stream."""
        self._store = store
        self._given: dict[str, Any] = {
            "queue": "q", "streams": "log", "group": "g", "path": path / "new",
            "source": "new.qs#q", "target": "new.qs#q",
            "function": print, "callback": print, "on_ack": None, "on_nack": None,
        }  # fmt: skip
        store.queue("q")
        store.stream("log")

    async def make(self, of: str) -> Any:
        """The object, or the module."""
        if of in FACES:
            return FACES[of]
        if of.startswith("aio.session."):
            connection = await aio_session.connect(self._store)
            its = await connection.session()
            return connection if of.endswith("Connection") else await its.consumer(its.queue("q"))
        if of.startswith("session."):
            opened = session.connect(self._store)
            made = opened.session()
            return opened if of.endswith("Connection") else made.consumer(made.queue("q"))
        store: Any = aio.Store(self._store) if of.startswith("aio.") else self._store
        match of.removeprefix("aio."):
            case "Store":
                made_there = store
            case "Channel":
                made_there = store.channel()
            case "Queue":
                made_there = store.queue("q")
        return await made_there if inspect.isawaitable(made_there) else made_there

    async def call(self, of: str, verb: str, parameter: str) -> None:
        """Give it what is no function."""
        made = await self.make(of)
        if verb in SETTERS:
            setattr(made, verb, NO_FUNCTION)
            return
        function = getattr(made, verb)
        given = {
            name: self._given[name]
            for name, each in inspect.signature(function).parameters.items()
            if each.default is each.empty and each.kind is not each.VAR_KEYWORD
        }
        result = function(**{**given, parameter: NO_FUNCTION})
        if inspect.isawaitable(result):
            await result


@pytest.mark.parametrize(("of", "verb", "parameter"), FOUND)
def test_what_is_no_function_is_refused_by_the_call_that_takes_it(
    store: pyqstore.Store, tmp_path: Path, of: str, verb: str, parameter: str
) -> None:
    place = Place(store, tmp_path)
    with pytest.raises(TypeError) as caught:
        asyncio.run(place.call(of, verb, parameter))
    text = str(caught.value)
    assert re.match(rf"{parameter} must be .*(callable|mapping).*, not object$", text), text
