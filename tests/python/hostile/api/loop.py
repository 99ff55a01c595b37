"""Calls by chance on pyqstore.aio: many tasks, some of them cancelled."""

import asyncio
import inspect
import random
from pathlib import Path
from typing import Any

import pyqstore
from pyqstore import aio

from .life import EXPECTED, Life, arguments_for, work_arguments
from .values import KEPT, QUEUES

_PERSISTENT = pyqstore.Properties(delivery_mode=2)


class LoopLife(Life):
    """The same store, asked by tasks."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        super().__init__(root, chance)
        self.given.act = lambda: None

    def run(self, count: int) -> None:
        asyncio.run(self._main(count))

    async def _main(self, count: int) -> None:
        path = self.root / "store"
        self.aio = await aio.open(path, sync="none", journal_file_bytes="64KiB")
        self.kept = await self.aio.channel()
        await self.kept.queue_declare(KEPT, durable=True)
        await self.kept.confirm_select()
        channel = await self.aio.channel()
        for queue in QUEUES:
            await channel.queue_declare(queue, durable=True)
        self.things += [self.aio, channel, await self.aio.channel(), await self.aio.connection("c")]
        done = 0
        while done < count:
            tasks = [
                asyncio.ensure_future(self._call()) for _ in range(self.chance.randrange(1, 9))
            ]
            tasks.append(asyncio.ensure_future(self._keep()))
            done += len(tasks)
            if self.chance.random() < 0.3:
                await asyncio.sleep(0)
                self.chance.choice(tasks[:-1]).cancel()
            async with asyncio.timeout(100):
                await asyncio.gather(*tasks, return_exceptions=True)
        for thing in self.things:
            if hasattr(thing, "close") and type(thing).__module__.startswith("pyqstore"):
                ending = thing.close()
                if inspect.isawaitable(
                    ending
                ):  # those of a listener and of a page wait by themselves
                    await asyncio.wait_for(ending, 100)
        self.things.clear()
        await asyncio.wait_for(self.kept.close(), 100)
        await asyncio.wait_for(self.aio.close(), 100)
        del self.kept, self.aio
        if left := [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]:
            self.wrong(f"tasks left: {left}")

    async def _keep(self) -> None:
        number = self.published
        self.published += 1
        try:
            await self.kept.basic_publish("", KEPT, b"%d" % number, _PERSISTENT)
            self.confirmed = max(self.confirmed, number + 1)
        except (pyqstore.StoreClosed, pyqstore.ChannelClosed):
            self.published = number

    async def _call(self) -> None:
        thing: Any = self.chance.choice(self.things)
        names = [name for name in dir(type(thing)) if not name.startswith("_")]
        name = self.chance.choice(names)
        forbidden = {"start_consuming", "of"}
        closes = name == "close" and (thing is self.aio or self.chance.random() < 0.8)
        if name in forbidden or closes or not type(thing).__module__.startswith("pyqstore"):
            return
        self.calls += 1
        what = f"aio {type(thing).__name__}.{name}"
        try:
            result = getattr(thing, name)
            if name == "work":
                result = asyncio.wait_for(
                    result(self.given.callback, **work_arguments(self.given)), 0.005
                )
            elif callable(result):
                positional, named = arguments_for(result, self.given)
                what += f"({positional!r:.80}, {named!r:.80})"
                result = result(*positional, **named)
            if inspect.isawaitable(result):
                result = await result
            elif hasattr(result, "__anext__"):
                result = await asyncio.wait_for(anext(result), 0.002)
        except EXPECTED:
            self.outcome.figures["refused"] = self.outcome.figures.get("refused", 0) + 1
        except RecursionError:
            pass
        except Exception as error:
            self.wrong(f"{what}: {type(error).__name__}: {error}")
        else:
            self.add(result)
