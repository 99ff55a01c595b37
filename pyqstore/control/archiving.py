"""An archive, in the process that has its store open."""

from __future__ import annotations

import threading
import time

from ..archive_reports import Archived
from ..store import Store
from .talk import Talk
from .wire import Report

__all__ = ["archive"]

_ASK_S = 0.2


def archive(store: Store, arguments: Report, talk: Talk) -> Report:
    """Archive the store in ``to``, with these ``choices``, until the tool says ``stop``."""
    from ..archives import Choices
    from ..archives import archive as archived
    from ..backups import Target

    stop = threading.Event()
    asks_at = 0.0

    def look(report: Archived) -> None:
        nonlocal asks_at
        if time.monotonic() >= asks_at:
            answer, _ = talk.ask({"archive": report.to_dict()})
            if answer.get("stop"):
                stop.set()
            asks_at = time.monotonic() + _ASK_S

    target = Target(str(arguments["to"]), create=True)
    return archived(store, target, stop, Choices(**arguments["choices"]), look).to_dict()
