"""State shared by all connections to a store in the process that owns it."""

from __future__ import annotations

import os
import threading
import weakref

from ..store import Store
from ..store import open as open_store
from .errors import IllegalState

__all__ = ["Opened", "Registry"]

_registries_lock = threading.Lock()
_stores_lock = threading.Lock()


class Registry:
    """For one store: client ids in use, and a lock for steps that check and then act."""

    def __init__(self) -> None:
        self.lock: threading.RLock = threading.RLock()
        self._client_ids: set[str] = set()

    @classmethod
    def of(cls, store: Store) -> Registry:
        """The registry of this store."""
        with _registries_lock:
            found = _registries.get(store)
            if found is None:
                found = _registries[store] = cls()
            return found

    def enter(self, client_id: str) -> None:
        """IllegalState: another connection has the client id."""
        with self.lock:
            if client_id in self._client_ids:
                raise IllegalState(f"client id {client_id!r} is in use")
            self._client_ids.add(client_id)

    def leave(self, client_id: str) -> None:
        """Releases the client id."""
        with self.lock:
            self._client_ids.discard(client_id)


class Opened:
    """Stores opened by URI: the last connection closes the store."""

    @staticmethod
    def open(path: str) -> Store:
        """Opens the store, unless another connection has."""
        key = os.path.realpath(path)
        with _stores_lock:
            store, users = _stores.get(key, (None, 0))
            if store is None or store.closed:
                store, users = open_store(path), 0
            _stores[key] = store, users + 1
            return store

    @staticmethod
    def close(path: str, store: Store) -> None:
        """Called when a connection is closed."""
        key = os.path.realpath(path)
        with _stores_lock:
            found, users = _stores.get(key, (None, 0))
            if found is store and users > 1:
                _stores[key] = store, users - 1
                return
            if found is store:
                del _stores[key]
            store.close()  # a concurrent open waits for this


_registries: weakref.WeakKeyDictionary[Store, Registry] = weakref.WeakKeyDictionary()
_stores: dict[str, tuple[Store, int]] = {}


def _after_fork_in_child() -> None:
    """Makes new locks, since another thread of the parent may have held one.  The stores are closed
    here."""
    global _registries_lock, _stores_lock
    _registries_lock, _stores_lock = threading.Lock(), threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
