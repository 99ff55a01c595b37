"""The stores of a process with several virtual hosts: one for each."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from .. import store as _store
from ..errors import Error
from ..options import StoreOptions
from .vhost_folder import VhostFolder, VhostNote

__all__ = ["Follower", "Stores", "opened", "vhost_directories"]

_log = logging.getLogger("pyqstore")

Follower = Callable[[str, _store.Store], object]


class Stores:
    """All open stores; those in the directory can be added and removed.  Any thread may use it."""

    store: _store.Store
    """The store of the virtual host "/", which protocols without virtual hosts use."""
    vhosts: dict[str, _store.Store]
    """The other stores by name."""

    def __init__(
        self,
        store: _store.Store,
        vhosts: dict[str, _store.Store],
        folder: VhostFolder | None = None,
        options: StoreOptions | None = None,
        *,
        given: Collection[str] = (),
    ) -> None:
        """``folder``: the directory for new stores, with these options; None: no store can be
        added.  ``given``: the names at the start of the server, those in the directory included."""
        self.store = store
        self.vhosts = vhosts
        self._folder = folder
        self._options: StoreOptions = {} if options is None else options
        self._own = set() if folder is None else set(folder.places())
        """The stores in the directory that were served since the start, even if they have
        failed."""
        self._given = {"/", *given} - self._own  # even after they have failed
        self._followers: list[Follower] = []
        self._lock = Lock()
        self._is_closed = False

    def follow(self, follower: Follower) -> None:
        """Registers a function that is called with each new virtual host before it exists for
        clients."""
        self._followers.append(follower)

    def note(self, name: str) -> VhostNote:
        """The note of a virtual host."""
        return VhostNote() if self._folder is None else self._folder.note(name)

    def add(self, name: str, said: Any) -> bool:
        """Adds a virtual host, durably, and returns True.  False: it exists, and at most its note
        was changed.  ``said``: its description and tags.  ValueError: that is impossible, and why;
        Error, OSError."""
        with self._lock:
            note = VhostNote.of(said, self.note(name))
            if name in (*self.vhosts, "/"):
                if note != self.note(name):
                    self._changeable(name).keep_note(name, note)
                return False
            self._make(self._changeable(name), name, note)
            return True

    def remove(self, name: str, begins: Callable[[], object]) -> None:
        """Closes its clients' connections and deletes its store; ``begins`` is called before.
        KeyError: there is none; ValueError: it must not be deleted, and why; OSError."""
        with self._lock:
            if name not in (*self.vhosts, *self._own, "/"):
                raise KeyError(name)
            folder = self._changeable(name)
            store = self.vhosts.get(name)
            with contextlib.nullcontext() if store is not None else folder.held(name):
                begins()
                if store is not None:
                    self._end(name, store)
                left = folder.take_away(name)
            self._own.discard(name)
        shutil.rmtree(left, ignore_errors=True)

    def _end(self, name: str, store: _store.Store) -> None:
        """Closes a store that is being deleted; errors are logged."""
        del self.vhosts[name]
        try:
            store.close()
        except Error as error:
            _log.error("vhost %r is deleted; its store ended with: %s", name, error)

    def _changeable(self, name: str) -> VhostFolder:
        if self._folder is None:
            raise ValueError("virtual hosts are made and deleted in the folder of --vhosts alone")
        if name in self._given:
            raise ValueError(f"vhost {name!r} was given when the server was started")
        if self._is_closed:
            raise ValueError("the server ends")
        return self._folder

    def _make(self, folder: VhostFolder, name: str, note: VhostNote) -> None:
        """Makes all of it, or nothing."""
        place = folder.place(name)
        if name in self._own:
            raise ValueError(
                f"vhost {name!r} has failed, and its store is in {place}: delete the vhost, or"
                " start the server again"
            )
        if place.exists():
            raise ValueError(f"{place} is there already: start the server again to serve it")
        try:
            folder.keep_note(name, note)
            self.vhosts[name] = self._opened(name, place)
            self._own.add(name)
        except BaseException:
            shutil.rmtree(folder.take_away(name), ignore_errors=True)
            raise

    def _opened(self, name: str, place: Path) -> _store.Store:
        store = _store.open(place, **self._options)
        try:
            for follower in self._followers:
                follower(name, store)
        except BaseException:
            store.close()
            raise
        return store

    def end_failed_vhosts(self) -> None:
        """Closes the stores that have failed: only their clients are disconnected.  Does nothing
        while a store is being added or deleted."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            for name in [name for name, each in self.vhosts.items() if each.stats().failed]:
                failed = self.vhosts.pop(name)
                try:
                    failed.close()
                except Error as error:
                    _log.error("vhost %r has ended, and others are served: %s", name, error)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Closes all stores except that of "/", even after errors; none can be added any more."""
        with self._lock, contextlib.ExitStack() as stack:
            self._is_closed = True
            for store in self.vhosts.values():
                stack.push(store)


def vhost_directories(
    given: tuple[str, ...], directory: Path, found: Mapping[str, Path]
) -> dict[str, Path]:
    """The directories of the command line, and those found in the folder.  ValueError: one is not
    NAME=DIRECTORY, or a name occurs twice."""
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
    """Closes all of them at the end, even after errors."""
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(_store.open(directory, **options))
        vhosts: dict[str, _store.Store] = {}
        own = Stores(store, vhosts, folder, options, given=places.keys())
        stack.callback(own.close)
        for name, place in places.items():
            vhosts[name] = _store.open(place, **options)
        yield own
