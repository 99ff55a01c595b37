"""Pushing messages to a session's consumers ahead of calls: the thread that fetches them, and the
descriptors at which it, or a receiver, waits for more."""

from __future__ import annotations

import itertools
import os
import select
import threading
import weakref
from contextlib import suppress
from typing import Protocol

__all__ = ["Watch", "begin_pushing"]

_SLICE_S = 0.1
_SOON_S = 0.01

_numbers = itertools.count(1)


class Watch:
    """The descriptors of a session, and their waiter.  Either the thread that pushes waits, while
    no call receives, or else only the receiver, so that one thread is woken.

    The thread waits for ``_SOON_S`` before it looks, so that several messages are fetched at once,
    and further signals in that time cost nothing.  Any thread may call any method; no lock is
    needed, because each party first publishes its own state and then reads the other's.
    """

    # Closed only with this object, because a thread, or a loop, may be waiting at them.
    _wake: int = -1
    _turn: int = -1
    _channel: int = -1

    def __init__(self) -> None:
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._turn = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.waiting: set[object] = set()
        """The receivers that wait.  They fetch messages themselves."""
        self.pushes: int = 0
        """The number of pushes that no receiver requested."""
        self.is_coming: bool = True
        """Whether the thread needs no signal: it will look soon, or there is no thread."""
        self.is_away: bool = False
        """Whether the thread leaves the descriptors to waiting receivers."""
        self.is_ended: bool = False
        """Whether the thread must end."""
        self.looks_itself: bool = True
        """Whether the thread checks each 0.1 s if receivers still wait: one that leaves in haste
        does not signal it."""

    def __del__(self) -> None:
        for descriptor in (self._wake, self._turn, self._channel):
            if descriptor >= 0:
                os.close(descriptor)

    def follow(self, descriptor: int) -> None:
        """Watches another channel, from the next wait on."""
        # A duplicate: the store closes the channel's descriptor with the channel, and its number
        # may be reused.
        if self._channel < 0:
            self._channel = os.dup(descriptor)
        else:
            os.dup2(descriptor, self._channel, inheritable=False)

    @property
    def descriptors(self) -> tuple[int, int]:
        """The descriptors of the channel and of ``wake``."""
        return self._channel, self._wake

    # Called by receivers.

    def enter(self, who: object) -> None:
        """``who`` waits from now on, and looks for messages before it does."""
        self.waiting.add(who)
        if not self.is_away:
            self.tell()

    def leave(self, who: object, *, in_haste: bool = False) -> None:
        """``who`` does not wait any more.  ``in_haste``: it has a message, and waking the thread
        would cost as much as the wait, so the thread is left to notice it."""
        self.waiting.discard(who)
        if self.is_away and not in_haste:
            self.tell()

    def wait(self, seconds: float) -> None:
        """Waits until an event may have come, or ``wake`` is called; at most 0.1 s."""
        for descriptor in _readable(self.descriptors, max(0.0, min(seconds, _SLICE_S))):
            _read(descriptor)

    def wake(self) -> None:
        """Ends a wait."""
        os.eventfd_write(self._wake, 1)

    # Called by the thread, and to wake it.

    def tell(self) -> None:
        """Signals that there may be messages to push."""
        if not self.is_coming:
            self.call()

    def call(self) -> None:
        """Makes the thread look, even if it waits at the descriptors of another channel."""
        self.is_coming = True
        os.eventfd_write(self._turn, 1)

    def end(self) -> None:
        """Ends the thread."""
        self.is_ended = True
        self.call()

    def drain(self) -> None:
        """Resets the signals so far, which are handled now."""
        for descriptor in self.descriptors:
            _read(descriptor)

    def sleep(self, is_watching: bool) -> None:
        """Waits until it is called, or, with ``is_watching``, until an event may have come, and
        then a little longer for more; 0.1 s if a receiver waits."""
        seconds = _SLICE_S if self.is_away and self.looks_itself else None
        found = _readable(
            (self._turn, *self.descriptors) if is_watching else (self._turn,), seconds
        )
        self.is_coming = True
        _read(self._turn)
        if found and not self.is_ended:
            _readable((self._turn,), _SOON_S)
            _read(self._turn)


def _readable(descriptors: tuple[int, ...], seconds: float | None = None) -> list[int]:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [found for found, _ in poll.poll(None if seconds is None else seconds * 1000)]


def _read(descriptor: int) -> None:
    with suppress(BlockingIOError):  # there is nothing, or another thread read it
        os.eventfd_read(descriptor)


class Pushed(Protocol):
    """The object that the thread serves."""

    def push_in_turn(self) -> bool:
        """Pushes ready messages.  Whether to look again at the next event; otherwise when
        called."""


def begin_pushing(what: Pushed, watch: Watch) -> threading.Thread:
    """Starts a thread that does not keep ``what`` alive, and ends with it or with the watch."""
    found = weakref.ref(what, lambda _: watch.end())
    name = f"pyqstore-push-{next(_numbers)}"
    thread = threading.Thread(target=_run, args=(found, watch), name=name, daemon=True)
    thread.start()
    return thread


def _run(found: weakref.ref[Pushed], watch: Watch) -> None:
    while not watch.is_ended:
        what = found()
        if what is None:
            break
        is_watching = what.push_in_turn()
        del what
        watch.sleep(is_watching)
