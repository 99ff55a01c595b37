"""``DIR/users.json``: reading it, and changing it atomically, also with a power cut."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..disk import sync
from ..errors import StoreNotFound
from .user_list import User, parse_users, users_as_json

__all__ = ["NAME", "changed_users", "read_json", "read_users", "write_json"]

NAME = "users.json"
_TEMPORARY = f"{NAME}.tmp"
_LOCK = "users.json.lock"
_OURS = {NAME, _TEMPORARY, _LOCK}
_BYTES_MAX = 64 << 20


def read_users(path: Path) -> dict[str, User]:
    """ValueError: the content is invalid, and where; FileNotFoundError, OSError."""
    return _read(path)[0]


def _read(path: Path) -> tuple[dict[str, User], dict[str, Any]]:
    """The users, and the document with them."""
    try:
        document = read_json(path)
        return parse_users(document), document
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_json(path: Path) -> Any:
    """ValueError: it is not JSON, or has a key twice; OSError."""
    with open(path, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no regular file")
        data = file.read(_BYTES_MAX + 1)
    if len(data) > _BYTES_MAX:
        raise ValueError(f"it has more than {_BYTES_MAX >> 20} MiB")
    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuses equal keys: otherwise one would be dropped silently."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
        raise ValueError(f"the key {twice!r} is there twice in one object")
    return found


@contextmanager
def changed_users(directory: Path, *, create: bool = False) -> Iterator[dict[str, User]]:
    """The users, to be changed.  They are written at the end, unless the block raises; other
    content of the file stays.  One process at a time.  ``create``: the file, and the directory, may
    be missing.

    ValueError: the file is broken; StoreNotFound: there is no file, or the directory belongs to
    another program; OSError."""
    if create:
        _make_directory(directory)
    elif not (directory / NAME).exists():
        raise StoreNotFound(f"no users in {directory}: there is no {NAME}; add one: user add")
    with _lock(directory):
        path = directory / NAME
        users, document = ({}, {}) if create and not path.exists() else _read(path)
        before = dict(users)
        yield users
        if users != before or not path.exists():
            write_json(directory, NAME, {**document, **users_as_json(users)})


def _open_lock(directory: Path) -> int:
    """Does not change the owner of an existing file: it may be another file with a second name."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(directory / _LOCK, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(directory / _LOCK, flags)
    try:
        _give(fd, directory)
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """Locks a file of its own, since each change replaces the users' file."""
    fd = _open_lock(directory)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _make_directory(directory: Path) -> None:
    """Allows users to be added before there is a store, which guest could use otherwise."""
    try:
        directory.mkdir(mode=0o700)
        sync(directory.absolute().parent)
    except FileExistsError:
        names = set(os.listdir(directory))
        if "MANIFEST" not in names and (others := names - _OURS - {"lost+found"}):
            raise StoreNotFound(
                f"no store in {directory}, and it has other things in it, such as"
                f" {min(others)!r}: users are of a store, or of an empty directory for one"
            ) from None


def write_json(directory: Path, name: str, document: Mapping[str, Any]) -> None:
    """Writes atomically and durably.  The next change overwrites a temporary file that a power cut
    left."""
    temporary = directory / f"{name}.tmp"
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    temporary.unlink(missing_ok=True)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        _give(fd, directory)
        file.write(text.encode())
        file.flush()
        os.fsync(fd)
    os.replace(temporary, directory / name)
    sync(directory)


def _give(fd: int, directory: Path) -> None:
    """Gives a file that root made to the directory's owner, who serves the store."""
    owner = os.stat(directory)
    if os.geteuid() == 0 and owner.st_uid != 0:
        os.fchown(fd, owner.st_uid, owner.st_gid)
