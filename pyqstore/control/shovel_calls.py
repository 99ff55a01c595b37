"""A tool's side of a shovel: whichever process has one of the stores open does the work."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..errors import ShovelError, StoreClosed, StoreLocked
from ..shovelling.addresses import StorePlace, place_of
from ..shovelling.report import Shovelled
from .hub import open_here
from .reaching import is_owned, reach
from .talk import Asked
from .wire import Report

__all__ = ["called"]

_OWNER_S = 10.0  # for which a shovel whose owner went waits for another one
_LOOK_S = 0.1


def called(
    arguments: Report,
    stop: threading.Event | None,
    progress: Callable[[Shovelled], object] | None,
) -> Shovelled:
    """As ``pyqstore.shovel``; ``arguments`` are those of the operation, but for ``at``."""
    told = _Told(stop, progress)
    stores: dict[str, StorePlace] = {}
    for at, key in (("target", "to"), ("source", "from")):
        place = place_of(arguments[key], is_target=at == "target")
        if isinstance(place, StorePlace):
            stores[at] = place
            arguments[key] = f"{os.path.abspath(place.directory)}#{place.name}"
    directories = [place.directory for place in stores.values()]
    is_ours = any(open_here(directory) is not None for directory in directories)
    while True:
        try:
            return told.whole(_reached(stores, arguments, told.asked))
        except StoreClosed as error:
            if is_ours:
                raise
            done = told.wait(lambda: any(map(is_owned, directories)), error)
            if done is not None:
                return done


def _reached(stores: dict[str, StorePlace], arguments: Report, asked: Asked) -> Report:
    """The process that has one of the stores open opens the other one, or has it open as well."""
    locked = ""
    for at, place in stores.items():
        report = reach(place.directory, "shovel", {**arguments, "at": at}, asked=asked)
        if "locked" not in report:
            return report
        locked = report["locked"]
    if stores:
        raise StoreLocked(
            f"{locked}: the stores of source and target are open in two processes.  Let one of them"
            " serve AMQP, and name its queue by amqp://"
        )
    raise ShovelError(
        "source or target must be a queue or a stream of a store: between brokers, put a store"
        " between"
    )


class _Told:
    """What the tool's end hears, over all owners that the stores have meanwhile."""

    def __init__(
        self, stop: threading.Event | None, progress: Callable[[Shovelled], object] | None
    ) -> None:
        self._stop = stop or threading.Event()
        self._progress = progress
        self._before: Shovelled | None = None
        self._now: Shovelled | None = None

    def asked(self, report: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """A report came, and whether to stop is asked for."""
        self._now = self.whole(report["shovel"])
        if self._progress is not None:
            self._progress(self._now)
        return {"stop": self._stop.is_set()}, b""

    def whole(self, report: dict[str, Any]) -> Shovelled:
        """With what was done before."""
        now, before = Shovelled(**report), self._before
        if before is None:
            return now
        counts = ("moved", "bytes", "repeated", "dead", "connected")
        summed = {name: getattr(before, name) + getattr(now, name) for name in counts}
        seconds = before.seconds + now.seconds
        return replace(now, **summed, seconds=seconds, error=now.error or before.error)

    def wait(self, owned: Callable[[], bool], error: StoreClosed) -> Shovelled | None:
        """An owner has closed its store: return when another one is there, or none came for a
        while.  What was done, if it is to stop."""
        if self._now is not None:
            self._before = replace(
                self._now, connected=self._now.connected + 1, error=str(error), rate=0.0
            )
        until = time.monotonic() + _OWNER_S
        while time.monotonic() < until and not owned():
            if self._stop.wait(_LOOK_S):
                return self._before
        return None
