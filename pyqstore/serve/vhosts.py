"""The stores of a process that serves several: one for each virtual host."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .. import store as _store
from ..errors import Error
from ..options import StoreOptions

__all__ = ["Stores", "opened", "vhost_directories"]

_log = logging.getLogger("pyqstore")


@dataclass(frozen=True)
class Stores:
    """All of them, open."""

    store: _store.Store
    """Of the virtual host "/", and of what knows no others."""
    vhosts: dict[str, _store.Store]
    """The others, by name."""

    def end_failed_vhosts(self) -> None:
        """Close the stores that have failed: their clients hear so, and no others."""
        for name in [name for name, each in self.vhosts.items() if each.stats().failed]:
            failed = self.vhosts.pop(name)
            try:
                failed.close()
            except Error as error:
                _log.error("vhost %r has ended, and others are served: %s", name, error)


def vhost_directories(given: tuple[str, ...], directory: Path) -> dict[str, Path]:
    """As the command line has them.  ValueError: no NAME=DIRECTORY, or one of them twice."""
    places: dict[str, Path] = {}
    taken = {directory.resolve(): "/"}
    for pair in given:
        name, equals, place = pair.partition("=")
        if not (name and equals and place):
            raise ValueError(f"vhost {pair!r}: expected NAME=DIRECTORY")
        if name == "/" or name in places:
            raise ValueError(f"vhost {name!r} is there twice")
        path = Path(place)
        if (other := taken.setdefault(path.resolve(), name)) != name:
            raise ValueError(f"vhosts {other!r} and {name!r} have the same directory {place}")
        places[name] = path
    return places


@contextlib.contextmanager
def opened(directory: Path, places: Mapping[str, Path], options: StoreOptions) -> Iterator[Stores]:
    """Closes them all, whatever comes of each."""
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(_store.open(directory, **options))
        vhosts: dict[str, _store.Store] = {}
        for name, place in places.items():
            vhosts[name] = stack.enter_context(_store.open(place, **options))
        yield Stores(store, vhosts)
