"""Transactions that a server has promised to commit: transactions over several servers, each of
which prepares its rows before the first commits.

Layout, inside the store's directory::

    staging/flight-<transaction>/prepared   what is to be committed, as JSON, before it is promised
    staging/prepared-<key>/                 promised: the folder, with its record and its files,
                                            under another name

One rename makes the promise, and one takes it back.  No sweep of staged files looks into such a
folder, no stage writes to it, and a key has one at most.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import StoreCorrupt
from .results import Staged
from .routes import Route
from .staging import PREFIX, corrupt, sync_directory, told

__all__ = ["Prepared", "PreparedFolders"]

_PREFIX = "prepared-"
_RECORD = "prepared"
_VERSION = 1


@dataclass(frozen=True)
class Prepared:
    """What one server commits.

    ``run``: names one try at the whole transaction, at all of its ``shards``; ``transaction``: the
    name under which its rows were staged.
    """

    key: str
    run: str
    shards: int
    transaction: str
    staged: tuple[Staged, ...]
    route: Route
    mandatory: bool

    def encoded(self) -> bytes:
        """In the form of the file."""
        return json.dumps({"version": _VERSION, **asdict(self)}).encode()

    @classmethod
    def decoded(cls, data: bytes) -> Prepared:
        """From the file.  ValueError, TypeError, KeyError: it is not valid."""
        found = json.loads(data)
        if found.pop("version") != _VERSION:
            raise ValueError("it is of another version")
        staged = tuple(Staged(*one) for one in found.pop("staged"))
        return cls(staged=staged, route=Route(**found.pop("route")), **found)


class PreparedFolders:
    """The prepared folders of a store."""

    def __init__(self, root: Path) -> None:
        """Syncs what a killed server left, as far as it can be found."""
        self._root = root
        if root.is_dir():
            sync_directory(root)

    def folder(self, key: str) -> Path:
        """The folder of a key, if it exists."""
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
        return self._root / f"{_PREFIX}{digest[:32]}"

    def find(self, key: str) -> Prepared | None:
        """What is promised under a key.  StoreCorrupt: it cannot be read."""
        folder = self.folder(key)
        found = _read(folder)
        if found is not None and found.key != key:
            raise corrupt(folder / _RECORD, "is of another transaction")
        return found

    def every(self) -> Iterator[Prepared]:
        """All that can be read."""
        for folder in sorted(self._root.glob(f"{_PREFIX}*")):
            try:
                found = _read(folder)
            except StoreCorrupt:
                continue  # who asks for its key is told
            if found is not None:
                yield found

    def keep(self, prepared: Prepared, staged: Path) -> None:
        """Promise the contents of the folder ``staged``, durably.  StoreError: nothing is
        promised."""
        folder = self.folder(prepared.key)
        with told(staged / _RECORD):
            staged.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(staged, prepared.encoded())
            sync_directory(self._root.parent)  # which may have its folder since now
            os.rename(staged, folder)
            try:
                sync_directory(self._root)
            except OSError:
                os.rename(folder, staged)  # what is not durable is found by nobody
                raise

    def drop(self, key: str) -> None:
        """Remove the folder with its rows, if it exists.  ``find`` does not find it after this
        returns."""
        folder = self.folder(key)
        left = self._root / f"{PREFIX}{secrets.token_hex(16)}"
        with told(folder / _RECORD):
            if not folder.exists():
                return
            os.rename(folder, left)
            sync_directory(self._root)
        shutil.rmtree(left, ignore_errors=True)  # what stays is swept when it is old


def _read(folder: Path) -> Prepared | None:
    if not folder.is_dir():
        return None
    try:
        return Prepared.decoded((folder / _RECORD).read_bytes())
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise corrupt(folder / _RECORD, f"cannot be read: {error}") from error


def _write(folder: Path, data: bytes) -> None:
    """Write a record, durable under its name."""
    temporary = folder / f"{_RECORD}.{os.getpid()}.{secrets.token_hex(8)}.tmp"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, folder / _RECORD)
        sync_directory(folder)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
