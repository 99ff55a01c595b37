"""Salvaging: what is whole of a damaged store becomes a new one.

The original, which may be the only copy, is read and nothing else.  A copy of its files is mended
in an unfinished directory beside the new store, verified, and gets its name last.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..disk import sync
from ..errors import SALVAGE_HINT, StoreCorrupt, StoreFull, StoreNotFound
from ..findings import Verification, verify
from .copying import copy_store, held, sync_directories
from .mending import Progress, mend
from .report import Report

__all__ = ["Progress", "Report", "leftovers", "salvage"]

_FULL = (errno.ENOSPC, errno.EDQUOT)
_UNFINISHED = ".salvaging."
_MARKS = ("MANIFEST", "journal", "checkpoint", "index", "messages", "streams")
_LEFT_IN_STREAMS = "streams/"


def salvage(directory: Path, out: Path, progress: Progress) -> Report:
    """Make the store ``out`` of what is whole in the store ``directory``.

    ``progress`` is called with what is being done, and how many bytes or messages of how many.
    A whole store is copied as it is.

    Raises FileExistsError (``out`` is there), StoreNotFound, StoreLocked (the store is open),
    StoreFull, StoreCorrupt (nothing can be made of it), StoreError, OSError.  Then there is no
    ``out``.
    """
    directory, out = directory.absolute(), out.absolute()
    _check_places(directory, out)
    with held(directory), _unfinished(out) as store, _space_told(out):
        copied = copy_store(directory, store, lambda done, total: progress("copying", done, total))
        found = _verified(store, progress)
        report = Report(
            directory=str(out),
            damages=found.damages,
            damage=found.damage,
            unread=copied.unread,
            passed_over=copied.passed_over,
        )
        if found.damages:
            with _beyond_help_told():
                mend(store, report, progress)
            _check_mended(_verified(store, progress))
        owner = directory.stat()
        _finish(store, out, owner)
    return report


def leftovers(out: Path) -> list[Path]:
    """What salvages to ``out`` left that were killed."""
    out = out.absolute()
    return sorted(
        path
        for path in out.parent.glob(f"{glob.escape(out.name)}{_UNFINISHED}*")
        if not _is_running(path.name.rpartition(".")[2].partition("-")[0])
    )


def _is_running(pid: str) -> bool:
    return pid.isdecimal() and Path("/proc", pid).exists()


def _check_places(directory: Path, out: Path) -> None:
    if not directory.is_dir():
        raise StoreNotFound(f"{directory}: no such directory")
    if not any((directory / name).exists() for name in _MARKS):
        raise StoreNotFound(f"{directory}: there is no store, nor anything of one")
    if os.path.lexists(out):
        raise FileExistsError(f"{out} is there already; name another place")
    if directory.resolve() in out.resolve().parents:
        raise ValueError(f"{out} lies in the store that is to be salvaged; name another place")


@contextlib.contextmanager
def _unfinished(out: Path) -> Iterator[Path]:
    """A directory beside ``out``, removed unless it got that name."""
    token = secrets.token_hex(4)  # a number comes again, in containers soon
    store = out.with_name(f"{out.name}{_UNFINISHED}{os.getpid()}-{token}")
    store.mkdir(mode=0o700)
    try:
        yield store
    finally:
        if store.exists():
            shutil.rmtree(store)


@contextlib.contextmanager
def _space_told(out: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, StoreFull) as error:
        is_told = isinstance(error, StoreFull) and error.status is None
        if is_told or (isinstance(error, OSError) and error.errno not in _FULL):
            raise
        raise StoreFull(
            f"{out.parent}: the disk became full; nothing is left there: make room, or name a place"
            " on another disk"
        ) from error


@contextlib.contextmanager
def _beyond_help_told() -> Iterator[None]:
    try:
        yield
    except StoreCorrupt as error:
        text = str(error).removesuffix(SALVAGE_HINT)
        raise _corrupt(f"nothing can be made of it: {text}", error.path, error.offset) from error


def _corrupt(text: str, path: str | None, offset: int | None) -> StoreCorrupt:
    error = StoreCorrupt(text)
    error.path, error.offset = path, offset
    return error


def _verified(store: Path, progress: Progress) -> Verification:
    return verify(store, progress=lambda done, total: progress("checking", done, total))


def _check_mended(found: Verification) -> None:
    """Blocks of streams that are damaged stay where they are, and their offsets with them."""
    for place in found.damage:
        if not place.path.startswith(_LEFT_IN_STREAMS):
            text = f"what is left cannot be made whole: {place.text}"
            raise _corrupt(text, place.path, place.offset)


def _finish(store: Path, out: Path, owner: os.stat_result) -> None:
    """The last step is the one that makes it: a name."""
    if os.geteuid() == 0 and owner.st_uid != 0:  # else its user could not open it
        for folder, _, files in os.walk(store):
            for name in (folder, *(os.path.join(folder, file) for file in files)):
                os.chown(name, owner.st_uid, owner.st_gid, follow_symlinks=False)
    sync_directories(store)
    if os.path.lexists(out):  # a rename would take the place of an empty directory
        raise FileExistsError(f"{out} came meanwhile; name another place")
    store.rename(out)
    sync(out.parent)
