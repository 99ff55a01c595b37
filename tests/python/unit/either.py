"""The face of asyncio, used as the synchronous one is: a test of both faces is written once."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any, Self

from pyqstore import aio, session

_PATIENCE_S = 60.0


class Loop:
    """A loop that runs in a thread of its own, so that messages are pushed between calls."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def run(self, call: Callable[[], Any]) -> Any:
        """What ``call()`` returns in the loop, awaited if it is awaitable."""

        async def made() -> Any:
            result = call()
            return await result if inspect.isawaitable(result) else result

        running = asyncio.run_coroutine_threadsafe(made(), self._loop)
        futures.wait([running], _PATIENCE_S)
        assert running.done(), "a call of asyncio's face did not end"
        return running.result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _bare(value: Any) -> Any:
    return value._of if isinstance(value, Synchronous) else value


def threads(value: Any) -> Any:
    """The store or session of threads behind that of either face.  For listeners, which run in the
    loop, and for looking inside."""
    if not isinstance(value, Synchronous):
        return value
    return value._of._store if isinstance(value._of, aio.Store) else value._of._twin


def connect(store: Any, **options: Any) -> Any:
    """A connection of sessions, of the store's face."""
    if not isinstance(store, Synchronous):
        return session.connect(store, **options)
    return store._do(lambda: aio.session.connect(store._of, **options))


class Synchronous:
    """An object of ``pyqstore.aio`` whose methods return what is awaited."""

    def __init__(self, loop: Loop, of: Any) -> None:
        object.__setattr__(self, "_loop", loop)
        object.__setattr__(self, "_of", of)

    def _do(self, call: Callable[[], Any]) -> Any:
        return self._made(self._loop.run(call))

    def _made(self, result: Any) -> Any:
        if isinstance(result, list):
            return [self._made(each) for each in result]
        is_aio = type(result).__module__.startswith(aio.__name__) or inspect.isasyncgen(result)
        return Synchronous(self._loop, result) if is_aio else result

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if not inspect.isroutine(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            named = {name: _bare(value) for name, value in named.items()}
            return self._do(lambda: found(*map(_bare, given), **named))

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        self._loop.run(lambda: setattr(self._of, name, value))

    def __enter__(self) -> Any:
        return self._do(self._of.__aenter__)

    def __exit__(self, *error: object) -> Any:
        return self._do(lambda: self._of.__aexit__(*error))

    def __iter__(self) -> Self:
        return self._made(aiter(self._of))

    def __next__(self) -> Any:
        try:
            return self._do(lambda: anext(self._of))
        except StopAsyncIteration:
            raise StopIteration from None

    def __bool__(self) -> bool:
        return bool(self._of)

    def __len__(self) -> int:
        return len(self._of)

    def __getitem__(self, key: Any) -> Any:
        return self._of[key]
