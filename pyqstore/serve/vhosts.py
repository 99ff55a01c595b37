"""The stores of a process that serves several: one for each virtual host."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Lock

from .. import store as _store
from ..errors import Error
from ..options import StoreOptions
from .vhost_folder import VhostFolder, VhostNote

__all__ = ["Follower", "Stores", "opened", "vhost_directories"]

_log = logging.getLogger("pyqstore")

Follower = Callable[[str, _store.Store], object]


class Stores:
    """All of them, open; those in a folder come and go.  Any thread may call it."""

    store: _store.Store
    """Of the virtual host "/", and of what knows no others."""
    vhosts: dict[str, _store.Store]
    """The others, by name."""

    def __init__(
        self,
        store: _store.Store,
        vhosts: dict[str, _store.Store],
        folder: VhostFolder | None = None,
        options: StoreOptions | None = None,
    ) -> None:
        """``folder``: where new ones are made, with these options; without it there are none."""
        self.store = store
        self.vhosts = vhosts
        self._folder = folder
        self._options: StoreOptions = {} if options is None else options
        self._followers: list[Follower] = []
        self._lock = Lock()

    def follow(self, follower: Follower) -> None:
        """Have it called with each virtual host that is made from now on, before that is there."""
        self._followers.append(follower)

    def note(self, name: str) -> VhostNote:
        """What is said of a virtual host."""
        return VhostNote() if self._folder is None else self._folder.note(name)

    def add(self, name: str, note: VhostNote) -> bool:
        """Whether it was made, durable; False: it is there, and the note is said of it from now on.
        ValueError: it cannot be made, and why; Error, OSError."""
        with self._lock:
            is_new = name not in (*self.vhosts, "/")
            folder = self._changeable(name) if is_new or note != self.note(name) else None
            if is_new and folder is not None:
                self.vhosts[name] = self._made(name, folder.place(name))
            if folder is not None:
                folder.keep_note(name, note)
            return is_new

    def remove(self, name: str) -> None:
        """End its clients' connections and delete its store.  KeyError: there is none; ValueError:
        it is not to be deleted, and why; OSError."""
        with self._lock:
            failed = () if self._folder is None else self._folder.places()
            if name not in (*self.vhosts, *failed, "/"):
                raise KeyError(name)
            folder = self._changeable(name)
            try:
                if (store := self.vhosts.pop(name, None)) is not None:
                    store.close()
            except Error as error:
                _log.error("vhost %r is deleted; its store ended with: %s", name, error)
            folder.remove(name)

    def _changeable(self, name: str) -> VhostFolder:
        if self._folder is None:
            raise ValueError("virtual hosts are made and deleted in the folder of --vhosts alone")
        if name == "/" or (name in self.vhosts and name not in self._folder.places()):
            raise ValueError(f"vhost {name!r} was given when the server was started")
        return self._folder

    def _made(self, name: str, place: Path) -> _store.Store:
        store = _store.open(place, **self._options)
        try:
            for follower in self._followers:
                follower(name, store)
        except BaseException:
            store.close()
            raise
        return store

    def end_failed_vhosts(self) -> None:
        """Close the stores that have failed: their clients hear so, and no others."""
        with self._lock:
            for name in [name for name, each in self.vhosts.items() if each.stats().failed]:
                failed = self.vhosts.pop(name)
                try:
                    failed.close()
                except Error as error:
                    _log.error("vhost %r has ended, and others are served: %s", name, error)


def vhost_directories(
    given: tuple[str, ...], directory: Path, found: Mapping[str, Path]
) -> dict[str, Path]:
    """As the command line has them, and those found in the folder.  ValueError: no NAME=DIRECTORY,
    or one of them twice."""
    places: dict[str, Path] = {}
    taken = {directory.resolve(): "/"}
    pairs = [(name, str(path)) for name, path in found.items()]
    for name, place in [*map(_pair, given), *pairs]:
        if name == "/" or name in places:
            raise ValueError(f"vhost {name!r} is there twice")
        path = Path(place)
        if (other := taken.setdefault(path.resolve(), name)) != name:
            raise ValueError(f"vhosts {other!r} and {name!r} have the same directory {place}")
        places[name] = path
    return places


def _pair(text: str) -> tuple[str, str]:
    name, equals, place = text.partition("=")
    if not (name and equals and place):
        raise ValueError(f"vhost {text!r}: expected NAME=DIRECTORY")
    return name, place


@contextlib.contextmanager
def opened(
    directory: Path,
    places: Mapping[str, Path],
    options: StoreOptions,
    folder: VhostFolder | None = None,
) -> Iterator[Stores]:
    """Closes them all, whatever comes of each."""
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(_store.open(directory, **options))
        vhosts: dict[str, _store.Store] = {}
        stack.callback(_close_all, vhosts)
        for name, place in places.items():
            vhosts[name] = _store.open(place, **options)
        yield Stores(store, vhosts, folder, options)


def _close_all(vhosts: Mapping[str, _store.Store]) -> None:
    with contextlib.ExitStack() as stack:
        for store in vhosts.values():
            stack.push(store)
