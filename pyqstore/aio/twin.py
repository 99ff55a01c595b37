"""The verbs of the synchronous face, awaited: a decorated method for each."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from inspect import getdoc, signature
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    overload,
)

from .awaiting import Awaited
from .threads import Threads

__all__ = ["Closing", "PendingOpen", "Twin", "awaited"]

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


class Twin(Generic[S]):
    """An object of asyncio that has a synchronous one, ``_twin``, whose verbs it makes in threads.

    A class that stands nearer to its threads has a ``_threaded`` of its own.
    """

    __slots__ = ()

    _twin: S
    _threads: Threads

    async def _threaded(self, call: Callable[[], Any]) -> Any:
        return await self._threads.run(call)

    async def _apart(self, call: Callable[[], Any]) -> Any:
        return await self._threads.run_apart(call)


Verb = Callable[Concatenate[Any, P], T]
Awaiting = Callable[[Callable[[Any], None]], Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]]


@overload
def awaited(
    verb: Verb[P, T], *, by: Callable[..., Coroutine[Any, Any, Any]] = Twin._threaded
) -> Awaiting[P, T]: ...
@overload
def awaited(
    verb: Verb[P, T],
    *,
    made: Callable[[Any, T], R],
    undo: Callable[[T], object] | None = None,
) -> Awaiting[P, R]: ...
def awaited(verb: Any, *, by: Any = Twin._threaded, made: Any = None, undo: Any = None) -> Any:
    """Decorates a method without content, which gives the name and, as its docstring, what differs.
    Arguments, errors and the rest of the docstring are those of ``verb``, a method of the
    synchronous class, which is called in a thread.

    ``by``: the method that makes the call, if it is not ``_threaded``.  ``made(self, result)`` is
    returned in place of the result.  ``undo`` gets the result if the task is cancelled meanwhile;
    ``_threads`` then makes the call, not ``_threaded``.
    """
    name, way = verb.__name__, by.__name__

    def make(method: Callable[[Any], None]) -> Any:
        @wraps(verb, assigned=("__annotations__", "__doc__"))
        async def call(self: Twin[Any], /, *args: Any, **named: Any) -> Any:
            work = partial(getattr(self._twin, name), *args, **named)
            if undo is None:
                result = await getattr(self, way)(work)
            else:
                result = await self._threads.run(work, undo)
            return result if made is None else made(self, result)

        call.__module__, call.__name__ = method.__module__, method.__name__
        call.__qualname__ = method.__qualname__
        if made is not None:  # its name would be looked up in the verb's module
            is_class = isinstance(made, type)
            kind = made if is_class else made.__globals__[made.__annotations__["return"]]
            call.__annotations__ = {**call.__annotations__, "return": kind}
            signed = signature(verb).replace(return_annotation=kind)
            call.__signature__ = signed  # type: ignore[attr-defined]
        if call.__doc__ and method.__doc__:
            call.__doc__ = f"{getdoc(verb)}\n\n{getdoc(method)}"
        return call

    return make


class Closing:
    """Stands behind the other bases of a class that has ``close()``, for ``async with``."""

    __slots__ = ()

    if TYPE_CHECKING:

        async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


C = TypeVar("C", bound=Closing)


class PendingOpen(Awaited[C]):
    """Something that is being opened: a coroutine that returns it, and an asynchronous context
    manager that opens and closes it."""

    __slots__ = ("_opened",)

    async def __aenter__(self) -> C:
        self._opened: C = await self
        return self._opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._opened.close()
