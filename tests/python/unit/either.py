"""The face of asyncio, used as the synchronous one is: a test of both faces is written once."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any

from pyqstore import aio


async def _wait(awaited: Awaitable[Any]) -> Any:
    async with asyncio.timeout(60):
        return await awaited


def _bare(value: Any) -> Any:
    return value._of if isinstance(value, Synchronous) else value


class Synchronous:
    """An object of ``pyqstore.aio`` whose coroutines a loop runs to their end."""

    def __init__(self, of: Any, runner: asyncio.Runner) -> None:
        self._of, self._runner = of, runner

    def _result(self, value: Any) -> Any:
        if inspect.isawaitable(value):
            value = self._runner.run(_wait(value))
        if isinstance(value, list):
            return [self._result(each) for each in value]
        is_aio = type(value).__module__.startswith(aio.__name__) or inspect.isasyncgen(value)
        return Synchronous(value, self._runner) if is_aio else value

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if not inspect.isroutine(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            named = {name: _bare(value) for name, value in named.items()}
            return self._result(found(*map(_bare, arguments), **named))

        return call

    def __enter__(self) -> Any:
        return self._result(self._of.__aenter__())

    def __exit__(self, *error: object) -> Any:
        return self._result(self._of.__aexit__(*error))

    def __iter__(self) -> Synchronous:
        return Synchronous(aiter(self._of), self._runner)

    def __next__(self) -> Any:
        try:
            return self._result(anext(self._of))
        except StopAsyncIteration:
            raise StopIteration from None

    def __bool__(self) -> bool:
        return bool(self._of)

    def __len__(self) -> int:
        return len(self._of)

    def __getitem__(self, key: Any) -> Any:
        return self._of[key]
