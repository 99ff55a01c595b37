"""A program whose main thread ends with an exception while waits without an end are in flight.

``python -m`` this with the store's directory, how the waits are made, and a verb or "all".
"""

import asyncio
import faulthandler
import sys
import threading
from typing import Any

import pyqstore

from .faces import WAITS, Place, Wait

HANGS_S = 40.0


def threads(store: pyqstore.Store, waits: list[Wait]) -> None:
    """Each in a thread of the program, which is no daemon; main raises."""
    for wait in waits:
        ready = threading.Event()
        place = Place(store, declared(store, wait), print, ready.set)
        threading.Thread(target=wait.run, args=[place], name=wait.name).start()
        ready.wait()
    raise RuntimeError("of main")


def tasks(store: pyqstore.Store, waits: list[Wait]) -> None:
    """Each in a task, which ``asyncio.run`` cancels."""
    asyncio.run(begun(store, waits))


def abandoned(store: pyqstore.Store, waits: list[Wait]) -> None:
    """Each in a task of a loop that is not run any more and that nobody closes."""
    asyncio.new_event_loop().run_until_complete(begun(store, waits))


async def begun(store: pyqstore.Store, waits: list[Wait]) -> None:
    begun: list[asyncio.Task[Any]] = []
    for wait in waits:
        ready = asyncio.Event()
        place = Place(pyqstore.aio.Store(store), declared(store, wait), print, ready.set)
        begun.append(asyncio.create_task(wait.call(place)))
        await ready.wait()
    await asyncio.sleep(0.1)  # until their threads are in their waits; no matter if they are not
    raise RuntimeError("of main")


def opened(store: pyqstore.Store, waits: list[Wait]) -> None:
    """Each in a task, on a store that a block of asyncio opens and closes."""
    path = store.path
    store.close()

    async def main() -> None:
        async with pyqstore.aio.open(path) as store:
            await begun(store._store, waits)

    asyncio.run(main())


HOW = (threads, tasks, abandoned, opened)


def declared(store: pyqstore.Store, wait: Wait) -> str:
    """The name of what it waits for."""
    wait.declare(store, wait.name)
    return wait.name


def main(path: str, how: str, verb: str) -> None:
    """Raises."""
    faulthandler.dump_traceback_later(HANGS_S, exit=True)
    store = pyqstore.open(path)
    store.queue("confirmed").put(b"kept")
    waits = [wait for wait in WAITS if wait.is_async or how == "threads"]
    begin = {each.__name__: each for each in HOW}[how]
    begin(store, [wait for wait in waits if verb in ("all", wait.verb)])


if __name__ == "__main__":
    main(*sys.argv[1:])
