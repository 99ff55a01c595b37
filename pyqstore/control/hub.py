"""The owner's side: one thread for all stores of a process that may be reached.

It accepts, and reads the first frame of each connection without waiting for any.  A call that is
whole gets a thread of its own for as long as it runs.  A client that says nothing, or nothing
sensible, is closed and costs no thread.  The thread starts with the first store and ends with the
last; it holds on to none.
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
_WAITING_MAX = 32  # connections that have not said what they want
_CALLS_MAX = 32  # at once, of one process;
_READERS_MAX = 24  # if there are so many, none begins that takes rows, and may take its time
_SAY_S = 5.0  # within which a client says what it wants
_RECEIVE_BYTES = 1 << 16
_TRY_AGAIN_S = 0.05  # after an accept without descriptors or memory
_JOIN_S = 10.0


class Door:
    """The socket of one store."""

    def __init__(self, store: Any, directory: str) -> None:
        self._store = weakref.ref(store)
        self._name = names_of(directory)[0]
        self._socket = _listen(directory)
        self._calls: dict[threading.Thread, socket.socket] = {}

    def store(self) -> Any:
        """The store; None: it is gone."""
        return self._store()

    @property
    def name(self) -> bytes:
        """What the store's directory is, whatever its path."""
        return self._name

    def drain(self, seconds: float) -> None:
        """No tool comes in any more, and calls under way have so long to end."""
        _hub.shut(self)
        _hub.join(self, seconds)

    def close(self) -> None:
        """No tool comes in any more, and calls under way find theirs gone."""
        _hub.remove(self)

    def join(self) -> None:
        """Return when its calls have ended: after the store was closed."""
        _hub.join(self, _JOIN_S)


def open_door(store: Any, directory: str) -> Door | None:
    """Let tools come in; None: it cannot be done, and the store goes on without."""
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
    """The store in a directory, if this process has it open and lets tools into it; else None."""
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
    """A connection that has not said what it wants."""

    def __init__(self, door: Door, end: socket.socket) -> None:
        self.door = door
        self.end = end
        self.data = bytearray()
        self.until = time.monotonic() + _SAY_S


class _Thread:
    """A thread that is not waited for when it is started: opening a store is not to depend on when
    it first runs.  RuntimeError: there can be none."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        self._ended = threading.Lock()
        self._ended.acquire()
        self._ident = _thread.start_new_thread(self._run_to_end, ())

    def join(self) -> None:
        """Return when it has ended; it does not wait for itself."""
        if self._ident != threading.get_ident():
            self._ended.acquire()

    def _run_to_end(self) -> None:
        try:
            self._run()
        finally:
            self._ended.release()


class _Hub:
    """The thread, and what it waits for."""

    def __init__(self) -> None:
        # Taken again by a store that the collector closes while its thread has the lock: so what
        # is walked is copied first, and what is looked up may be gone.
        self._lock = threading.RLock()
        self._doors: set[Door] = set()
        self._waiting: dict[socket.socket, _Waiting] = {}
        self._selector: selectors.BaseSelector | None = None
        self._wake = -1  # an eventfd
        self._thread: _Thread | None = None

    # Of any thread.

    def add(self, door: Door) -> None:
        """RuntimeError, OSError: no thread or no descriptor is to be had."""
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
        """Nobody new comes in, and who has not said what it wants looks for another owner."""
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
        """In a child of fork(): the sockets are the parent's, which the child must not keep."""
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
        """The thread closes what it waits with."""
        thread = self._thread
        os.eventfd_write(self._wake, 1)
        self._selector, self._wake, self._thread = None, -1, None
        return thread

    # Of the hub's thread.

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
        except OSError:  # no descriptor is free: it is still there at the next look
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

    # Of a call's thread.

    def _call(self, door: Door, end: socket.socket, request: Report) -> None:
        from .answering import answer  # what it needs is of no use without a call

        try:
            end.setblocking(True)
            store = door.store()
            if store is not None:
                answer(store, end, request)
            del store
        except OSError:
            pass  # the tool went
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
