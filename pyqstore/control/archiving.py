"""An archive, in the process that has its store open."""

from __future__ import annotations

import threading

from ..archive_reports import Archived
from ..store import Store
from .talk import Talk
from .wire import Report

__all__ = ["archive"]

_ASK_S = 0.2


def archive(store: Store, arguments: Report, talk: Talk) -> Report:
    """Archives the store to ``to``, with these ``choices``, until the tool answers ``stop``."""
    from ..archives import Choices
    from ..archives import archive as archived
    from ..backups import Target

    target = Target(str(arguments["to"]), create=True)
    choices = Choices(**arguments["choices"])
    asker = _Asker(talk)
    try:
        report = archived(store, target, asker.stop, choices, asker.look)
    finally:
        asker.end()
    if asker.error is not None:
        raise asker.error
    return report.to_dict()


class _Asker:
    """Sends the tool reports, and asks whether to stop, in a thread of its own: a tool that does
    not answer, such as a stopped process, must not delay the archive."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._report: Archived | None = None
        self._ended = threading.Event()
        self.stop: threading.Event = threading.Event()
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="pyqstore-archive-tool", daemon=True)
        self._thread.start()

    def look(self, report: Archived) -> None:
        """Sets the next report."""
        self._report = report

    def end(self) -> None:
        """Ends asking, and waits for the answer to the last question, or for the tool's end."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_ASK_S):
            if self._report is None:
                continue
            try:
                answer, _ = self._talk.ask({"archive": self._report.to_dict()})
            except Exception as error:  # the tool is gone
                self.error = error
                self.stop.set()
                return
            if answer.get("stop"):
                self.stop.set()
