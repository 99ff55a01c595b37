"""The verbs of the synchronous face, awaited: one line for each."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from inspect import getdoc
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from .awaiting import Awaited
from .threads import Threads

__all__ = ["Closing", "Opening", "Twin", "awaited"]

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

    async def _threaded(
        self, call: Callable[[], Any], undo: Callable[[Any], object] | None = None
    ) -> Any:
        return await self._threads.run(call, undo)

    async def _apart(self, call: Callable[[], Any]) -> Any:
        return await self._threads.run_apart(call)


@overload
def awaited(
    verb: Callable[Concatenate[Any, P], T],
    note: str = "",
    *,
    by: Callable[..., Coroutine[Any, Any, Any]] = Twin._threaded,
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]: ...
@overload
def awaited(
    verb: Callable[Concatenate[Any, P], T],
    note: str = "",
    *,
    made: Callable[[Any, T], R],
    undo: Callable[[T], object] | None = None,
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]: ...
def awaited(
    verb: Any, note: str = "", *, by: Any = Twin._threaded, made: Any = None, undo: Any = None
) -> Any:
    """A method with the name, the arguments and the errors of ``verb``, a method of the synchronous
    class, which it calls in a thread.

    ``note``: what differs from it, behind its docstring.  ``by``: the method that makes the call,
    if it is not ``_threaded``.  ``made(self, result)``: what is returned in place of the result;
    ``undo`` gets the result if the task is cancelled meanwhile.
    """
    name, way = verb.__name__, by.__name__

    @wraps(verb)
    async def call(self: Twin[Any], /, *args: Any, **named: Any) -> Any:
        work = partial(getattr(self._twin, name), *args, **named)
        run = getattr(self, way)
        result = await (run(work) if undo is None else run(work, undo))
        return result if made is None else made(self, result)

    if note:
        call.__doc__ = f"{getdoc(verb)}\n\n{note}"
    return call


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


class Opening(Awaited[C]):
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
