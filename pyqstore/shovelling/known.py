"""The shovels that work for a store in this process, for who looks at the store."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from weakref import WeakKeyDictionary

from ..store import Store
from .report import Shovelled

__all__ = ["known_to", "shovels_of"]

_lock = threading.Lock()
_known: WeakKeyDictionary[Store, dict[str, Shovelled]] = WeakKeyDictionary()


@contextlib.contextmanager
def known_to(stores: Iterable[Store], name: str) -> Iterator[Callable[[Shovelled], None]]:
    """Takes reports of the shovel ``name``, which these stores know until the end."""
    ours = list(stores)

    def note(report: Shovelled) -> None:
        with _lock:
            for store in ours:
                _known.setdefault(store, {})[name] = report

    try:
        yield note
    finally:
        with _lock:
            for store in ours:
                _known.get(store, {}).pop(name, None)


def shovels_of(store: Store) -> dict[str, Shovelled]:
    """The latest report of each, by name."""
    with _lock:
        return dict(sorted(_known.get(store, {}).items()))
