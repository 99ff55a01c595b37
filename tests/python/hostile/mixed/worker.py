"""The process that is killed: runs the mixed workload on a store, and tells what it does.

It reads a line of JSON, the plan, from its standard input, and ends in good order at the next line.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from hostile.mixed.actors import Stage, act, at_once, cast_of, declare_all
from hostile.mixed.story import Story

import pyqstore
from pyqstore import aio


def position_in(recorder: str | None) -> Callable[[], int]:
    """What asks the disk's recorder how much it has recorded."""
    if recorder is None:
        return lambda: 0
    descriptor = os.open(recorder, os.O_RDONLY)
    return lambda: int(os.pread(descriptor, 20, 0))


def random_options(chance: random.Random) -> dict[str, Any]:
    """Options under which files are small, memory is short and checkpoints never end."""
    return {
        "memory_budget": chance.choice(("512KiB", "2MiB", "16MiB", "256MiB")),
        "embed_below": chance.choice((0, 200, 4096, 2**20)),
        "journal_file_bytes": chance.choice(("64KiB", "256KiB", "4MiB")),
        "message_file_bytes": chance.choice(("64KiB", "1MiB")),
        "checkpoint_bytes": chance.choice(("64KiB", "1MiB", "256MiB")),
        "checkpoint_interval": chance.choice((0.02, 0.5, None)),
    }


def stage_for(plan: dict[str, Any], store: Any, story: Story, stop: threading.Event) -> Stage:
    repeats = [(key, [(name, home) for name, home in copies]) for key, copies in plan["repeats"]]
    return Stage(store, story, plan["life"], stop, repeats)


def work_in_threads(plan: dict[str, Any], story: Story, stop: threading.Event) -> None:
    story.tell("phase", "opening")
    store = pyqstore.open(plan["path"], **plan["options"])
    story.tell("phase", "open")
    with store.channel() as channel:
        at_once(declare_all(channel))
    actors = cast_of(stage_for(plan, store, story, stop), plan["seed"])
    threads = [threading.Thread(target=at_once, args=(act(actor),)) for actor in actors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    story.tell("phase", "closing")
    store.close()
    story.tell("phase", "closed")


async def work_in_tasks(plan: dict[str, Any], story: Story, stop: threading.Event) -> None:
    story.tell("phase", "opening")
    store = await aio.open(plan["path"], **plan["options"])
    story.tell("phase", "open")
    async with await store.channel() as channel:
        await declare_all(channel)
    actors = cast_of(stage_for(plan, store, story, stop), plan["seed"])
    await asyncio.gather(*(act(actor) for actor in actors))
    story.tell("phase", "closing")
    await store.close()
    story.tell("phase", "closed")


def stop_at_next_line(stop: threading.Event) -> None:
    sys.stdin.readline()
    stop.set()


def main() -> None:
    faulthandler.enable()  # who kills this one for its slowness learns where it was
    pa.table({"body": [b""]})  # the first one imports what takes as long as a life may last
    plan = json.loads(sys.stdin.readline())
    chance = random.Random(plan["seed"])
    plan["options"] = {**random_options(chance), **plan["options"]}
    story = Story(1, position_in(plan["recorder"]))
    stop = threading.Event()
    threading.Thread(target=stop_at_next_line, args=(stop,), daemon=True).start()
    if chance.random() < 0.5:
        work_in_threads(plan, story, stop)
    else:
        asyncio.run(work_in_tasks(plan, story, stop))
    os._exit(0)  # the thread that reads the standard input may be in the middle of it


if __name__ == "__main__":
    main()
