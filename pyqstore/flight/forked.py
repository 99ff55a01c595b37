"""Objects of gRPC that a child of fork() must not touch: ending them there hangs, or breaks the
parent's."""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

from ..errors import ForkedStore

__all__ = ["Grip"]


class Grip:
    """An object of gRPC, with the process that made it."""

    def __init__(self, what: Any) -> None:
        self._what: Any = what
        self._is_forked: bool = False
        _all.add(self)

    def get(self) -> Any:
        """The object.  ForkedStore: the parent has it."""
        if self._is_forked:
            raise ForkedStore("the client was connected before fork(); connect in this process")
        return self._what

    def end(self, how: str) -> None:
        """Call its method, unless the parent has the object."""
        if not self._is_forked:
            getattr(self._what, how)()

    def abandon(self) -> None:
        """Keep it in memory forever: its destructor waits for threads that this process does not
        have."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._what))
        self._what, self._is_forked = None, True


_all: weakref.WeakSet[Grip] = weakref.WeakSet()


def _abandon_all() -> None:
    for grip in list(_all):
        grip.abandon()


os.register_at_fork(after_in_child=_abandon_all)
