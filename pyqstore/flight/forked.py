"""What of gRPC's must not be touched in a child of fork(): to end it there hangs, or spoils the
parent's."""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

from ..errors import ForkedStore

__all__ = ["Grip"]


class Grip:
    """One object of gRPC's, in the process that made it."""

    def __init__(self, what: Any) -> None:
        self._what: Any = what
        self._is_forked: bool = False
        _all.add(self)

    def get(self) -> Any:
        """The object.  ForkedStore: it is of the parent."""
        if self._is_forked:
            raise ForkedStore("the client was connected before fork(); connect in this process")
        return self._what

    def end(self, how: str) -> None:
        """Call its method, unless it is of the parent."""
        if not self._is_forked:
            getattr(self._what, how)()

    def abandon(self) -> None:
        """It stays in memory for ever: its destructor waits for threads that are not here."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._what))
        self._what, self._is_forked = None, True


_all: weakref.WeakSet[Grip] = weakref.WeakSet()


def _abandon_all() -> None:
    for grip in list(_all):
        grip.abandon()


os.register_at_fork(after_in_child=_abandon_all)
