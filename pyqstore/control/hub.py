"""The owner's side: one thread for all stores of a process that tools may reach.

It accepts, and reads the first frame of each connection without blocking.  A complete call gets a
thread of its own while it runs.  A client that sends nothing, or something invalid, is disconnected
and uses no thread.  The thread starts with the first store and ends with the last; it has no
references to stores.
"""

from __future__ import annotations

import _thread
import logging
import os
import selectors
import socket
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from .wire import FIRST_BYTES_MAX, HEAD, Gone, Report, first_report, is_same_user, names_of

__all__ = ["Door", "open_door", "open_here"]

_log = logging.getLogger("pyqstore")
_BACKLOG = 128
_WAITING_MAX = 32  # connections without a complete request
_CALLS_MAX = 32  # at the same time, in one process
# With that many calls, no further one begins that reads rows, since it may take long.
_READERS_MAX = 24
_SAY_S = 5.0  # time for a client to send its request
_RECEIVE_BYTES = 1 << 16
_TRY_AGAIN_S = 0.05  # after a failed accept, for want of descriptors or memory
_JOIN_S = 10.0


class Door:
    """The socket of one store."""

    def __init__(self, store: Any, directory: str) -> None:
        self._store = weakref.ref(store)
        self._name = names_of(directory)[0]
        self._socket = _listen(directory)
        self._calls: dict[threading.Thread, socket.socket] = {}

    def store(self) -> Any:
        """The store; None: the object does not exist any more."""
        return self._store()

    @property
    def name(self) -> bytes:
        """The identity of the store's directory, independent of its path."""
        return self._name

    def drain(self, seconds: float) -> None:
        """Accepts no further calls, and gives running calls that much time to end."""
        _hub.shut(self)
        _hub.join(self, seconds)

    def close(self) -> None:
        """Accepts no further calls, and ends running ones."""
        _hub.remove(self)

    def join(self) -> None:
        """Waits until its calls have ended; call it after the store was closed."""
        _hub.join(self, _JOIN_S)


def open_door(store: Any, directory: str) -> Door | None:
    """Accepts tools; None: that is not possible, and the store works without."""
    door = None
    try:
        door = Door(store, directory)
        _hub.add(door)
    except (OSError, RuntimeError) as error:
        _log.info("%s: open without a socket for tools: %s", directory, error)
        if door is not None:
            door._socket.close()
        return None
    return door


def open_here(directory: str) -> Any:
    """The store in a directory, if this process has it open and accepts tools for it; otherwise
    None."""
    try:
        name = names_of(directory)[0]
    except OSError:
        return None
    return _hub.find(name)


def _listen(directory: str) -> socket.socket:
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        names = names_of(directory)
        while True:
            try:
                end.bind(names.pop(0))
                break
            except OSError:
                if not names:
                    raise
        end.listen(_BACKLOG)
    except BaseException:
        end.close()
        raise
    return end


class _Waiting:
    """A connection without a complete request."""

    def __init__(self, door: Door, end: socket.socket) -> None:
        self.door = door
        self.end = end
        self.data = bytearray()
        self.until = time.monotonic() + _SAY_S


class _Thread:
    """A thread whose start is not awaited, so that opening a store does not depend on when it first
    runs.  RuntimeError: no thread can be started."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        self._ended = threading.Lock()
        self._ended.acquire()
        self._ident = _thread.start_new_thread(self._run_to_end, ())

    def join(self) -> None:
        """Waits until it has ended; in the thread itself it returns at once."""
        if self._ident != threading.get_ident():
            self._ended.acquire()

    def _run_to_end(self) -> None:
        try:
            self._run()
        finally:
            self._ended.release()


class _Hub:
    """The thread, and its sockets."""

    def __init__(self) -> None:
        # Reentrant: the collector may close a store in a thread that has the lock.  So collections
        # are copied before an iteration, and lookups may find nothing.
        self._lock = threading.RLock()
        self._doors: set[Door] = set()
        self._waiting: dict[socket.socket, _Waiting] = {}
        self._selector: selectors.BaseSelector | None = None
        self._wake = -1  # an eventfd
        self._thread: _Thread | None = None

    # Called by any thread.

    def add(self, door: Door) -> None:
        """RuntimeError, OSError: no thread or no descriptor is available."""
        with self._lock:
            if self._thread is None:
                self._start()
            assert self._selector is not None
            self._selector.register(door._socket, selectors.EVENT_READ, door)
            self._doors.add(door)

    def find(self, name: bytes) -> Any:
        with self._lock:
            doors = [door for door in self._doors if door.name == name]
        return doors[0].store() if doors else None

    def shut(self, door: Door) -> None:
        """Accepts no further clients; clients without a complete request look for another owner."""
        with self._lock:
            if door not in self._doors or door._socket.fileno() < 0:
                return
            assert self._selector is not None
            self._selector.unregister(door._socket)
            door._socket.close()
            for waiting in list(self._waiting.values()):
                if waiting.door is door:
                    self._forget(self._selector, waiting)

    def remove(self, door: Door) -> None:
        with self._lock:
            if door not in self._doors:  # a child of fork() has none
                return
            self.shut(door)
            self._doors.discard(door)
            for end in list(door._calls.values()):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            thread = self._stop() if not self._doors else None
        if thread is not None:
            thread.join()

    def join(self, door: Door, seconds: float) -> None:
        with self._lock:
            threads = set(door._calls) - {threading.current_thread()}
        end = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))

    def abandon(self) -> None:
        """In a child of fork(): closes its copies of the parent's sockets."""
        ends = [door._socket for door in self._doors] + list(self._waiting)
        ends += [end for door in self._doors for end in door._calls.values()]
        for end in ends:
            end.close()
        if self._wake >= 0:
            os.close(self._wake)
        if self._selector is not None:
            self._selector.close()

    def _start(self) -> None:
        selector = selectors.DefaultSelector()
        wake = -1
        try:
            wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            selector.register(wake, selectors.EVENT_READ, None)
            thread = _Thread(partial(self._run, selector, wake))
        except BaseException:
            if wake >= 0:
                os.close(wake)
            selector.close()
            raise
        self._selector, self._wake, self._thread = selector, wake, thread

    def _stop(self) -> _Thread | None:
        """The thread closes its own descriptors."""
        thread = self._thread
        os.eventfd_write(self._wake, 1)
        self._selector, self._wake, self._thread = None, -1, None
        return thread

    # In the hub's thread.

    def _run(self, selector: selectors.BaseSelector, wake: int) -> None:
        try:
            while True:
                events = selector.select(self._patience())
                with self._lock:
                    if self._selector is not selector:
                        return
                    for key, _ in events:
                        self._look(selector, key)
                    self._drop_silent(selector)
        finally:
            selector.close()
            os.close(wake)

    def _patience(self) -> float | None:
        with self._lock:
            untils = [each.until for each in list(self._waiting.values())]
        return max(0.0, min(untils) - time.monotonic()) if untils else None

    def _look(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        if isinstance(key.data, Door):
            if key.data in self._doors and key.data._socket.fileno() >= 0:
                self._accept(selector, key.data)
        elif isinstance(key.data, _Waiting) and self._waiting.get(key.data.end) is key.data:
            self._read(selector, key.data)

    def _accept(self, selector: selectors.BaseSelector, door: Door) -> None:
        try:
            end, _ = door._socket.accept()
        except BlockingIOError:
            return
        except OSError:  # no descriptor is free: try again at the next look
            time.sleep(_TRY_AGAIN_S)
            return
        if not is_same_user(end) or len(self._waiting) >= _WAITING_MAX:
            end.close()
            return
        end.setblocking(False)
        waiting = _Waiting(door, end)
        self._waiting[end] = waiting
        selector.register(end, selectors.EVENT_READ, waiting)

    def _read(self, selector: selectors.BaseSelector, waiting: _Waiting) -> None:
        try:
            data = waiting.end.recv(_RECEIVE_BYTES)
            waiting.data += data
            if not data or len(waiting.data) > FIRST_BYTES_MAX + HEAD.size:
                raise Gone
            request = first_report(bytes(waiting.data))
        except BlockingIOError:
            return
        except OSError:
            self._forget(selector, waiting)
            return
        if request is not None:
            self._begin(selector, waiting, request)

    def _begin(self, selector: selectors.BaseSelector, waiting: _Waiting, request: Report) -> None:
        door, end = waiting.door, waiting.end
        most = _READERS_MAX if request.get("call") == "rows" else _CALLS_MAX
        if sum(len(each._calls) for each in list(self._doors)) >= most:
            self._forget(selector, waiting)
            return
        selector.unregister(end)
        del self._waiting[end]
        thread = threading.Thread(
            target=self._call, args=(door, end, request), name="pyqstore call", daemon=True
        )
        door._calls[thread] = end
        try:
            thread.start()
        except RuntimeError:
            del door._calls[thread]
            end.close()

    def _drop_silent(self, selector: selectors.BaseSelector) -> None:
        now = time.monotonic()
        for waiting in list(self._waiting.values()):
            if waiting.until <= now:
                self._forget(selector, waiting)

    def _forget(self, selector: selectors.BaseSelector, waiting: _Waiting) -> None:
        if self._waiting.pop(waiting.end, None) is not None:
            selector.unregister(waiting.end)
            waiting.end.close()

    # In a call's thread.

    def _call(self, door: Door, end: socket.socket, request: Report) -> None:
        from .answering import answer  # needed only for calls

        try:
            end.setblocking(True)
            store = door.store()
            if store is not None:
                answer(store, end, request)
            del store
        except OSError:
            pass  # the tool is gone
        finally:
            with self._lock:
                door._calls.pop(threading.current_thread(), None)
                end.close()


_hub = _Hub()


def _after_fork_in_child() -> None:
    global _hub
    _hub.abandon()
    _hub = _Hub()


os.register_at_fork(after_in_child=_after_fork_in_child)
