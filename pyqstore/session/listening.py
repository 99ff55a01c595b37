"""The thread of a session that calls its listeners."""

from __future__ import annotations

import itertools
import threading
import time

from ..errors import Error
from ..waiting import check_main
from .consumer import Consumer, Peers
from .errors import IllegalState
from .message import Message

__all__ = ["NO_CLOSE", "Listening"]

NO_CLOSE = "a listener cannot close its own session or connection"

_numbers = itertools.count(1)
_WAIT_S = 0.1


class Listening:
    """Calls the listeners of a session with messages, one after another, in a thread that begins
    with the first listener and ends with the session."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._link = peers.link
        self._idle = threading.Condition(peers.link.lock)
        self._current: Consumer | None = None
        self._thread: threading.Thread | None = None
        self._is_ending = False

    @property
    def is_here(self) -> bool:
        """Whether this is its thread, which means that a listener calls."""
        return self._thread is threading.current_thread()

    def begin(self) -> None:
        """Called when there is a listener."""
        with self._link.lock:
            if self._thread is None and not self._is_ending:
                name = f"pyqstore-session-{next(_numbers)}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
        self._link.interrupt()

    def check_elsewhere(self) -> None:
        """IllegalState: this is its thread."""
        if self.is_here:
            raise IllegalState(NO_CLOSE)

    def end(self) -> None:
        """Waits until the running listener has returned."""
        self.check_elsewhere()
        with self._link.lock:
            self._is_ending = True
        self._link.interrupt()
        if self._thread is not None:
            self._thread.join()

    def await_listener(self, consumer: Consumer) -> None:
        """Waits until no listener of this consumer is running."""
        if self.is_here:
            return
        with self._idle:
            while self._current is consumer:
                self._idle.wait(_WAIT_S)

    def _run(self) -> None:
        try:
            while not self._is_ending:
                if not self._serve():
                    check_main()
                    self._link.wait(self._until_due())
        except Error as error:
            if not self._is_ending:
                self._peers.failures.tell(error)
        finally:
            self._link.watch.leave(self)

    def _serve(self) -> bool:
        """Delivers one message of each consumer with a listener.  Whether there was one, or is now:
        a message requested by one consumer may be for an earlier one."""
        watch = self._link.watch
        with self._link.lock:
            watch.waiting.discard(self)
            listening = [each for each in self._peers.consumers if each.listener is not None]
        served = False
        for consumer in listening:
            message = self._take(consumer)
            if message is not None:
                served = True
                self._deliver(consumer, message)
            else:
                self._tell_end(consumer)
            if self._is_ending:
                break
        with self._link.lock:
            if served or self._is_ending or any(each._is_ready for each in listening):
                return True
            watch.enter(self)
            return False

    def _until_due(self) -> float:
        """Seconds until the next redelivery is due."""
        with self._link.lock:
            now = time.monotonic()
            dues = [each._due - now for each in self._peers.consumers if each._due > now]
        return min(dues, default=_WAIT_S)

    def _take(self, consumer: Consumer) -> Message | None:
        with self._link.lock:
            if self._is_ending or consumer._is_closing or consumer.listener is None:
                return None
            message = consumer._take(arm=True)
            if message is not None:
                self._current = consumer
            return message

    def _tell_end(self, consumer: Consumer) -> None:
        with self._link.lock:
            end = consumer._untold()
        if end is not None:
            self._peers.failures.tell(end)

    def _deliver(self, consumer: Consumer, message: Message) -> None:
        self._link.watch.leave(self, in_haste=True)  # messages that come meanwhile are pushed
        listener = consumer.listener
        error: BaseException | None = None
        try:
            if listener is None:  # it was removed just now
                raise IllegalState("there is no listener any more")
            listener(message)
        except BaseException as raised:  # the thread continues for the others, like a broker
            error = raised
        with self._idle:
            try:
                consumer._returned(message, error)
            finally:
                self._current = None
                self._idle.notify_all()
