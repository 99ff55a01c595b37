"""Objects that hand out what they have in memory, in a child of fork().

The engine refuses each call there by itself.  What such an object has was given to the parent,
though, and another thread of that may have held its lock at the fork.  So it is told in the child.
"""

from __future__ import annotations

import os
import weakref
from typing import NoReturn, Protocol

from . import _core
from .errors import ForkedStore

__all__ = ["Refusing", "check_process", "refuse", "tell_in_child"]

_FORKED = "the store was opened before fork(); open it in this process"


def check_process(store: _core.Store) -> None:
    """ForkedStore: this is a child of the process that opened the store."""
    if store._forked:
        refuse()


def refuse() -> NoReturn:
    """ForkedStore: it is."""
    raise ForkedStore(_FORKED)


class Refusing:
    """In place of a lock in the child: whoever takes it gets ForkedStore."""

    __slots__ = ()

    def __enter__(self) -> NoReturn:
        refuse()

    def __exit__(self, *error: object) -> None:
        """As of a lock."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> NoReturn:
        """As of a lock."""
        refuse()

    def release(self) -> None:
        """As of a lock."""


class Forgetting(Protocol):
    """What is told."""

    def _forget_parent(self) -> None:
        """This is a child: what it has is the parent's."""


_told: weakref.WeakSet[Forgetting] = weakref.WeakSet()


def tell_in_child(what: Forgetting) -> None:
    """Call its ``_forget_parent`` in each child of fork()."""
    _told.add(what)


def _after_fork_in_child() -> None:
    for what in list(_told):
        what._forget_parent()


os.register_at_fork(after_in_child=_after_fork_in_child)
