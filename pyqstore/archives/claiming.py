"""Which archive writes to a target: the last one that claimed it.

A store has one process at a time, but a copy of the store has another process, and the same
identity.
"""

from __future__ import annotations

import json
import logging
import secrets
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from ..backups.target import Target
from .keeping import bases, read_base

__all__ = ["Claim", "Claimed", "check_uuids"]

_log = logging.getLogger("pyqstore")
_PLACE = "archive-claim.json"
_FORMAT = 1
_AT_ONCE = 8  # documents that are read


class Claimed(FileExistsError):
    """Another archive has claimed the target since."""


class Claim:
    """The claim of one archive, from its beginning to its end."""

    def __init__(self, target: Target, uuid: str) -> None:
        self._target = target
        self._uuid = uuid
        self._instance = secrets.token_hex(16)
        self._is_made = False

    def make(self) -> None:
        """Claim the target, once: archives that claimed it before then end.  OSError."""
        if not self._is_made:
            self._put()
            self._is_made = True

    def check(self) -> None:
        """Raises Claimed if another archive claimed the target since; OSError.  A claim that is
        missing, or damaged, is written again."""
        if not self._is_made:
            return
        try:
            told = json.loads(bytes(self._target.content(_PLACE)))
            instance, uuid, since = (str(told[name]) for name in ("instance", "uuid", "since"))
        except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
            self._put()
            return
        if instance != self._instance:
            raise Claimed(
                f"another archive of store {uuid} writes to {self._target.place} since {since}:"
                " each store, and each copy of one, has a target of its own"
            )

    def _put(self) -> None:
        told: dict[str, Any] = {
            "format": _FORMAT,
            "uuid": self._uuid,
            "instance": self._instance,
            "since": datetime.now(UTC).isoformat(),
        }
        self._target.put(_PLACE, [json.dumps(told).encode()])


def check_uuids(target: Target, uuid: str) -> None:
    """FileExistsError: the target has a base of another store; OSError."""

    def uuid_of(name: str) -> str:
        try:
            return read_base(target, name).uuid
        except FileNotFoundError:  # it went meanwhile
            return uuid
        except ValueError as error:
            _log.warning("archive: a base is of no use: %s", error)
            return uuid

    with ThreadPoolExecutor(_AT_ONCE, "pyqstore-archive") as pool:
        for other in pool.map(uuid_of, bases(target)):
            if other != uuid:
                raise FileExistsError(
                    f"{target.place} has the archive of another store, {other}: each store has a"
                    " target of its own"
                )
