"""A copy of a store that is open: another store, as a crash at one moment would have left this one.

The engine copies (``qs_store_copy``), to a name beside the snapshot's.  What has the snapshot's own
name is whole, whatever ends the process.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import threading
from concurrent.futures import Future, wait
from typing import NamedTuple

from . import _core
from .disk import sync

__all__ = ["Copied", "snapshot"]

_USERS = "users.json"


class Copied(NamedTuple):
    """What a snapshot is made of."""

    files: int
    """How many files there are, those that are linked among them."""
    linked: int
    """Hard links: files of this store that never change."""
    bytes: int
    """That were copied, holes left out."""


def snapshot(store: _core.Store, directory: str, path: str | os.PathLike[str]) -> Copied:
    """See ``Store.snapshot``; ``directory`` is the store's."""
    place = os.path.abspath(os.fspath(path))
    _check_place(place, directory)
    parent = os.path.dirname(place)
    making = os.path.join(parent, f".snapshot-{secrets.token_hex(8)}.making")
    try:
        os.mkdir(making, 0o700)
        copied = _copy(store, making)
        if _copy_users(directory, making):
            copied = copied._replace(files=copied.files + 1)
        os.rename(making, place)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    sync(parent)
    return copied


def _check_place(place: str, directory: str) -> None:
    """Before a long copy, all that its end would stumble over."""
    if os.path.lexists(place) and (os.path.islink(place) or not os.path.isdir(place)):
        raise FileExistsError(errno.EEXIST, "a snapshot is a new directory; this is there", place)
    if os.path.isdir(place):
        if os.listdir(place):
            raise FileExistsError(errno.EEXIST, "a snapshot needs an empty directory", place)
        if os.path.ismount(place):
            raise FileExistsError(
                errno.EEXIST,
                "a snapshot cannot replace a mount point; name a directory in it",
                place,
            )
    parent = os.path.dirname(place)
    if not os.path.isdir(parent):
        raise FileNotFoundError(errno.ENOENT, "there is no such directory", parent)
    home = os.path.realpath(directory)
    if os.path.commonpath((home, os.path.realpath(parent))) == home:
        raise ValueError(f"a snapshot cannot lie in the store that it is made of: {place}")


def _copy(store: _core.Store, making: str) -> Copied:
    """In a thread of its own: a handler of signals, which Python runs in the main thread, may call
    the store, and may wait there for the copy.  What the handler raises gives the copy up."""
    copying = _core.Copying()
    done: Future[Copied] = Future()

    def copy() -> None:
        if done.set_running_or_notify_cancel():
            try:
                done.set_result(Copied(*store._copy(os.fsencode(making), copying)))
            except BaseException as error:
                done.set_exception(error)

    try:
        threading.Thread(target=copy, name="pyqstore-snapshot").start()
        return done.result()
    except BaseException:
        copying.give_up()
        if not done.cancel():  # it began
            wait((done,))
        raise


def _copy_users(directory: str, making: str) -> bool:
    """Those of its listeners are a store's own; their file is only ever replaced."""
    try:
        with open(os.path.join(directory, _USERS), "rb") as file:
            users = file.read()
    except FileNotFoundError:
        return False
    copy = os.path.join(making, _USERS)
    with open(copy, "xb", opener=_private) as file:
        file.write(users)
    sync(copy)
    sync(making)
    return True


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
