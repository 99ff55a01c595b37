"""A tool's side of a shovel: the process that has one of the stores open does the work."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..errors import ShovelError, StoreClosed, StoreLocked
from ..shovelling.addresses import GrpcPlace, StorePlace, place_of
from ..shovelling.report import Shovelled
from ..shovelling.running import run
from .hub import open_here
from .reaching import reach, reach_owner
from .shovelling import job_of
from .talk import Asked
from .wire import Report

__all__ = ["called"]

_OWNER_S = 10.0  # the wait of a shovel for a new owner after the last one ended
_LOOK_S = 0.1


def called(
    arguments: Report,
    stop: threading.Event | None,
    progress: Callable[[Shovelled], object] | None,
) -> Shovelled:
    """Like ``pyqstore.shovel``; ``arguments`` are those of the operation without ``at``."""
    told = _Told(stop, progress)
    stores: dict[str, StorePlace] = {}
    for at, key in (("target", "to"), ("source", "from")):
        place = place_of(arguments[key], is_target=at == "target")
        if isinstance(place, StorePlace):
            stores[at] = place
            arguments[key] = f"{os.path.abspath(place.directory)}#{place.name}"
    if not stores:
        return _between(arguments, told)
    is_ours = any(open_here(place.directory) is not None for place in stores.values())
    waits_until = 0.0
    while True:
        try:
            if time.monotonic() < waits_until:
                report = _reached_owner(stores, arguments, told.asked)
            else:
                report = _reached(stores, arguments, told.asked)
        except StoreClosed as error:
            if is_ours:
                raise
            told.lost(error)
            waits_until = time.monotonic() + _OWNER_S
            report = None
        if report is not None:
            return told.whole(report)
        if told.stop.wait(_LOOK_S):
            return told.before


def _reached_owner(stores: dict[str, StorePlace], arguments: Report, asked: Asked) -> Report | None:
    """Runs it in the next owner of one of the stores; None: there is none yet.  A process that is
    just ending may look like an owner for a moment, so only waiting shows that there is none."""
    for at, place in stores.items():
        report = reach_owner(place.directory, "shovel", {**arguments, "at": at}, asked=asked)
        if report is not None and "locked" not in report:
            return report
    return None


def _reached(stores: dict[str, StorePlace], arguments: Report, asked: Asked) -> Report:
    """Runs it in the process that has one of the stores open, which opens the other one or has it
    open, too."""
    locked = ""
    for at, place in stores.items():
        report = reach(place.directory, "shovel", {**arguments, "at": at}, asked=asked)
        if "locked" not in report:
            return report
        locked = report["locked"]
    raise StoreLocked(
        f"{locked}: the stores of source and target are open in two processes.  Let one of them"
        " serve Arrow Flight or AMQP, and name its queue by grpc:// or amqp://"
    )


def _between(arguments: Report, told: _Told) -> Shovelled:
    """Neither end is a directory's store: this process does the work, if an end is a server."""
    job = job_of(arguments)
    if not any(isinstance(place, GrpcPlace) for place in (job.source, job.target)):
        raise ShovelError(
            "source or target must be a queue or a stream of a store: between brokers, put a store"
            " between"
        )
    return run(job, {}, lambda report: told.asked({"shovel": report.to_dict()})[0]["stop"])


class _Told:
    """The reports for the tool, summed over successive owners."""

    def __init__(
        self, stop: threading.Event | None, progress: Callable[[Shovelled], object] | None
    ) -> None:
        self.stop = stop or threading.Event()
        self.before = Shovelled(0, 0, 0, 0, 0, 0.0, None, 0.0, None)
        """The sum of the reports of owners that have ended."""
        self._progress = progress
        self._now: Shovelled | None = None

    def asked(self, report: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Handles a report, and answers whether to stop."""
        self._now = self.whole(report["shovel"])
        if self._progress is not None:
            self._progress(self._now)
        return {"stop": self.stop.is_set()}, b""

    def whole(self, report: dict[str, Any]) -> Shovelled:
        """Adds the counts of earlier owners."""
        now, before = Shovelled(**report), self.before
        counts = ("moved", "bytes", "repeated", "dead", "connected")
        summed = {name: getattr(before, name) + getattr(now, name) for name in counts}
        seconds = before.seconds + now.seconds
        return replace(now, **summed, seconds=seconds, error=now.error or before.error)

    def lost(self, error: StoreClosed) -> None:
        """Called when an owner has closed its store, or has ended."""
        last = self._now or self.before
        self.before = replace(last, connected=last.connected + 1, error=str(error), rate=0.0)
