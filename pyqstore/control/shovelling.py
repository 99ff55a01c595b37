"""A shovel, in the process that has one of its stores open."""

from __future__ import annotations

import contextlib
from typing import Any

from ..errors import StoreLocked
from ..places import start_of
from ..shovelling.addresses import StorePlace, place_of
from ..shovelling.loop import Choices
from ..shovelling.report import Shovelled
from ..shovelling.running import Job, run
from ..store import Store
from ..store import open as open_store
from .hub import open_here
from .talk import Talk
from .wire import Report

__all__ = ["job_of", "shovel"]


def shovel(store: Store, arguments: Report, talk: Talk) -> Report:
    """Moves messages from ``from`` to ``to``, one of which is this store, by ``at``.  Asks the tool
    regularly whether to ``stop``.

    A report with ``locked``: another process has the other end's store open.
    """
    job = job_of(arguments)
    at, other = (
        (job.source, job.target) if arguments["at"] == "source" else (job.target, job.source)
    )
    assert isinstance(at, StorePlace)
    stores = {at.directory: store}

    def look(report: Shovelled) -> bool:
        answer, _ = talk.ask({"shovel": report.to_dict()})
        return bool(answer.get("stop"))

    with contextlib.ExitStack() as stack:
        if isinstance(other, StorePlace) and other.directory not in stores:
            here = open_here(other.directory)
            if here is None:
                try:
                    here = stack.enter_context(open_store(other.directory, create=False))
                except StoreLocked as error:
                    return {"locked": str(error)}
            stores[other.directory] = here
        return run(job, stores, look).to_dict()


def job_of(arguments: dict[str, Any]) -> Job:
    """ValueError: an address is invalid."""
    return Job(
        place_of(str(arguments["from"]), is_target=False),
        place_of(str(arguments["to"]), is_target=True),
        arguments.get("name"),
        start_of(str(arguments.get("start") or "first")) or "first",
        Choices(arguments.get("idle"), int(arguments.get("tries") or 5), arguments.get("dead")),
    )
