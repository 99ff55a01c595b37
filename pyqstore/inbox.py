"""Adopting staged files into a store that, perhaps, another process has open.

That process is left a manifest in the store's directory ``inbox``, and a thread of its engine
adopts the files (docs/STREAMS.md).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from . import _core
from .errors import StoreError, StoreLocked
from .sequences import listed
from .staged import Adoption, staged_paths
from .store import Store, open  # noqa: A004 - the one shadowing that is meant
from .waiting import Seconds, check_timeout

__all__ = ["adopt_into"]

_LOOK_S = (0.0005, 0.02)  # between looks for an answer: at first, and at most
_LOCK_S = 0.25  # between looks whether the store is free
_FREE_S = 10.0  # that a free store is held for the answer of its own engine
_ANSWER_S = 300.0  # after the timeout, that an adoption that has begun is waited for
_JOURNAL_BYTES_KEPT = 16 << 20  # that the next open replays at most


@dataclass(frozen=True)
class _Ask:
    paths: list[bytes]
    key: str
    mandatory: bool
    unless: tuple[str, ...]
    forget: tuple[str, ...]


def adopt_into(
    path: str | os.PathLike[str],
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    key: str,
    *,
    mandatory: bool = True,
    timeout: Seconds = 60.0,
    unless: Collection[str] = (),
    forget: Collection[str] = (),
) -> Adoption:
    """As ``Store.adopt`` of the store in the directory ``path``, which another process of the same
    user may have open.

    If none has, the store is opened for it, and closed again.  Else the owner does it: a manifest
    is left in the store's directory ``inbox``, durably, and a thread of the owner's engine adopts
    the files, in milliseconds, whatever the process does meanwhile.  It opens the files under the
    same paths.

    ``timeout``: seconds to wait until an owner begins with it, or the store is free.  Then
    StoreLocked is raised, and nothing is ever adopted.  An owner that began is waited for longer;
    if it dies, the next owner goes on, which may be this call.  An owner that died between its
    commit and its answer leaves ``committed`` False, as for any key that was committed before.

    ``unless``: keys; where one of them was committed nothing is adopted, and ``excluded`` is True.
    ``forget``: keys that are forgotten (``Store.forget_transaction``) once the files are adopted;
    an owner that dies right then leaves them known.  With ``key`` among them a call that is
    repeated adopts again.

    Raises what ``Store.adopt`` does; StoreNotFound: there is no store; ValueError for a timeout
    that is negative or infinite.  TimeoutError: an owner began with it, and five minutes after
    ``timeout`` there is no answer.  Then it is not known whether the files are adopted, nor after
    StoreFailed, as when the manifest was damaged after an owner had begun with it: repeat the call
    with the same key, which lets them in once.  When the call is
    interrupted, the manifest is taken back if no owner began with it; the key tells otherwise.
    """
    seconds = check_timeout(timeout)
    if seconds == math.inf:
        raise ValueError(f"timeout is {timeout}: a finite number of seconds, 0 or more")
    excluding = tuple(listed("unless", unless, str, ordered=False))
    forgotten = tuple(listed("forget", forget, str, ordered=False))
    ask = _Ask(_absolute(files), key, mandatory, excluding, forgotten)
    return _Adopting(os.path.join(os.getcwd(), path), ask, seconds).result()


def _absolute(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[bytes]:
    try:
        paths = staged_paths(files)
    except FileNotFoundError:
        if not isinstance(files, (str, os.PathLike)):
            raise
        paths = [os.fsencode(files)]  # its key may tell that it was adopted before
    return [os.path.join(os.getcwdb(), path) for path in paths]


class _Adopting:
    """One call of ``adopt_into``."""

    def __init__(self, path: str, ask: _Ask, timeout: float) -> None:
        self._path = path
        self._ask = ask
        self._deadline = time.monotonic() + timeout
        self._request: _core.Request | None = None

    def result(self) -> Adoption:
        try:
            while (adoption := self._step()) is None:
                pass
            return adoption
        except BaseException:
            self._is_taken_back()
            raise

    def _step(self) -> Adoption | None:
        """What fails once an owner has begun is no answer: that comes, and tells."""
        trouble: Exception | None = None
        try:
            adoption = self._try()
            if adoption is not None:
                return adoption
        except Exception as error:
            if self._is_taken_back():
                raise
            trouble = error
            time.sleep(_LOOK_S[1])
        if trouble is None and self._request is not None:
            trouble = self._request.trouble
        if time.monotonic() >= self._deadline + _ANSWER_S:
            raise TimeoutError(
                f"an owner of the store {self._path} began to adopt staged files under the key "
                f"'{self._ask.key}', and does not answer: whether they are adopted is not known. "
                f"Repeat the call with the same key, which lets them in once"
            ) from trouble
        return None

    def _is_taken_back(self) -> bool:
        """Nothing is asked any more; False: an owner began with it, or that cannot be told."""
        with suppress(OSError, MemoryError, StoreError):
            if self._request is None or self._request.take_back():
                self._request = None
                return True
        return False

    def _try(self) -> Adoption | None:
        """One look whether the store is free, and then some at what its owner answers."""
        try:
            store = open(self._path, create=False, checkpoint_bytes=0, checkpoint_interval=0)
        except StoreLocked as locked:
            return self._ask_owner(locked)
        adoption = None
        try:
            with store:
                adoption = self._adopt_with(store)
                stats = store.stats()
                if stats.appended_lsn - stats.checkpoint_lsn >= _JOURNAL_BYTES_KEPT:
                    store.checkpoint()
        except Exception:
            if adoption is None:  # else it is durable, whatever fails behind it
                raise
        return adoption

    def _adopt_with(self, store: Store) -> Adoption:
        adoption = self._answer_of(store)
        if adoption is not None:
            return adoption
        ask = self._ask
        if any(store.transaction_known(key) for key in ask.unless):
            adoption = Adoption(
                committed=False, rows=0, unroutable=0, files=0, linked=0, excluded=True
            )
        else:
            adoption = store.adopt(
                [os.fsdecode(path) for path in ask.paths], ask.key, mandatory=ask.mandatory
            )
        if not adoption.excluded:
            with suppress(OSError, MemoryError, StoreError):  # they are known for longer
                for key in ask.forget:
                    store.forget_transaction(key)
        return adoption

    def _answer_of(self, store: Store) -> Adoption | None:
        """Of an owner that died, or of this store, whose engine was faster.  None: there is none,
        and there will be none."""
        if self._is_taken_back():
            return None
        end = time.monotonic() + _FREE_S
        try:
            while (adoption := self._look_until(time.monotonic() + _LOCK_S)) is None:
                store.sync()  # it may have failed
                now = time.monotonic()
                if now >= end and not self._is_at_work(store, now):
                    raise StoreError("what was asked is not answered yet")  # others may want it
        except TimeoutError:
            return None
        return adoption

    def _is_at_work(self, store: Store, now: float) -> bool:
        """Closed now, the store would leave what it adopts, and the next one begin anew."""
        return now < self._deadline + _ANSWER_S and store.stats().inbox_adopting

    def _ask_owner(self, locked: StoreLocked) -> Adoption | None:
        if self._request is None:
            self._send()
        now = time.monotonic()
        until = min(self._deadline, now + _LOCK_S) if now < self._deadline else now + _LOCK_S
        if self._request is None:
            time.sleep(max(0.0, until - time.monotonic()))
        else:
            try:
                adoption = self._look_until(until)
            except TimeoutError:
                if time.monotonic() < self._deadline:
                    time.sleep(_LOOK_S[1])
                    return None  # the machine's clock was set forward: it is asked again
                raise locked from None
            if adoption is not None:
                return adoption
        if time.monotonic() >= self._deadline and self._is_taken_back():
            raise locked
        return None

    def _send(self) -> None:
        ask = self._ask
        left_s = max(0.0, self._deadline - time.monotonic())
        self._request = _core.Request(
            os.fsencode(self._path),
            ask.paths,
            ask.key,
            ask.unless,
            ask.forget,
            ask.mandatory,
            int(left_s * 1e9),
        )
        try:
            self._request.send()
        except FileNotFoundError:  # no owner has made an inbox
            self._request = None

    def _look_until(self, until: float) -> Adoption | None:
        assert self._request is not None
        wait_s = _LOOK_S[0]
        try:
            while (found := self._request.look()) is None:
                if time.monotonic() >= until:
                    return None
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, _LOOK_S[1])
        except Exception:
            self._request = None  # that was its answer
            raise
        self._request = None
        return Adoption(*found)
