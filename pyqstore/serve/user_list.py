"""Users with passwords and permissions in the form of RabbitMQ's definitions, and their JSON."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .passwords import Secret

__all__ = [
    "RIGHTS",
    "Permission",
    "User",
    "check_name",
    "entries",
    "located",
    "merge_users",
    "parse_users",
    "users_as_json",
]

RIGHTS = ("configure", "write", "read")
ALL = ".*"
_NAME_BYTES_MAX = 255
_PATTERN_BYTES_MAX = 4096
_SHA256 = "rabbit_password_hashing_sha256"  # RabbitMQ's default algorithm


@dataclass(frozen=True)
class Permission:
    """The names to which a user has each right in a virtual host, as patterns."""

    configure: str = ALL
    write: str = ALL
    read: str = ALL

    def __post_init__(self) -> None:
        """ValueError: a pattern is invalid."""
        for right in RIGHTS:
            check_pattern(right, getattr(self, right))


@dataclass(frozen=True)
class User:
    """A user and its rights."""

    secret: Secret | None = None
    """None: the user has no password, and logs in only with a certificate."""
    tags: tuple[str, ...] = ()
    permissions: Mapping[str, Permission] = field(default_factory=dict)
    """By virtual host.  A user has no access to virtual hosts that are missing here."""


def check_name(name: Any, what: str = "user") -> str:
    """ValueError: it cannot be a name."""
    if not isinstance(name, str) or not name or "\0" in name:
        raise ValueError(f"{what} {name!r}: a name is text, and not empty")
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} {name!r}: the name is no UTF-8") from None
    if length > _NAME_BYTES_MAX:
        raise ValueError(f"{what} {name[:40]!r}...: a name has {_NAME_BYTES_MAX} bytes at most")
    return name


def check_pattern(right: str, pattern: Any) -> None:
    """ValueError: it is no regular expression, or has another meaning in Python."""
    if not isinstance(pattern, str):
        raise ValueError(f"{right} must be a regular expression, not {pattern!r}")
    try:
        encoded = pattern.encode()
        if len(encoded) > _PATTERN_BYTES_MAX:
            raise ValueError(f"longer than {_PATTERN_BYTES_MAX} bytes")
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # [[:alpha:]] is a different set in Python
            re.compile(encoded)
    except (re.error, ValueError, RecursionError, OverflowError, Warning) as error:
        raise ValueError(
            f"{right} {pattern[:80]!r} is no regular expression of Python: {error}"
        ) from None


# ---- JSON ----


def users_as_json(users: Mapping[str, User]) -> dict[str, Any]:
    """The form of RabbitMQ's definitions, with a hashing algorithm of pyqstore."""
    return {
        "users": [
            {
                "name": name,
                "password_hash": user.secret.text if user.secret else "",
                "hashing_algorithm": user.secret.algorithm if user.secret else _SHA256,
                "tags": list(user.tags),
            }
            for name, user in users.items()
        ],
        "permissions": [
            {"user": name, "vhost": vhost} | {right: getattr(permission, right) for right in RIGHTS}
            for name, user in users.items()
            for vhost, permission in user.permissions.items()
        ],
    }


def parse_users(document: Any) -> dict[str, User]:
    """Parses ``users`` and ``permissions``, and ignores the rest.  ValueError: an entry is invalid,
    and where."""
    users: dict[str, User] = {}
    _merge(users, document)
    return users


def merge_users(users: dict[str, User], document: Any) -> tuple[int, int]:
    """Merges the users of a document: an existing user gets the document's password and tags, and
    its permissions in each virtual host of the document.

    Returns: the numbers of users and permissions in the document.  ValueError: as ``parse_users``,
    or it has none."""
    counts = _merge(users, document)
    if counts == (0, 0):
        raise ValueError("it has no users, and no permissions")
    if document.get("topic_permissions"):
        raise ValueError(
            "topic_permissions: there are none here, so users could do more than they may; take"
            " them out of the file if that is all right"
        )
    return counts


def _merge(users: dict[str, User], document: Any) -> tuple[int, int]:
    if not isinstance(document, dict):
        raise ValueError(f"expected a JSON object, not {_kind(document)}")
    seen: set[str] = set()
    for where, entry in entries(document, "users"):
        with located(where):
            name = check_name(entry.get("name"))
            if name in seen:
                raise ValueError(f"user {name!r} is there twice")
            seen.add(name)
            known = users.get(name, User())
            tags = _tags(entry.get("tags", []))
            users[name] = replace(known, secret=_secret(entry), tags=tags)
    permitted: set[tuple[str, str]] = set()
    for where, entry in entries(document, "permissions"):
        with located(where):
            _permit(users, entry, permitted)
    return len(seen), len(permitted)


def _permit(
    users: dict[str, User], entry: Mapping[str, Any], permitted: set[tuple[str, str]]
) -> None:
    name = check_name(entry.get("user"))
    vhost = check_name(entry.get("vhost"), "vhost")
    if name not in users:
        raise ValueError(f"user {name!r} is not among the users")
    if (name, vhost) in permitted:
        raise ValueError(f"user {name!r} has permissions in vhost {vhost!r} twice")
    permitted.add((name, vhost))
    given = Permission(*(entry.get(right) for right in RIGHTS))  # type: ignore[arg-type]
    users[name] = replace(users[name], permissions={**users[name].permissions, vhost: given})


def _secret(entry: Mapping[str, Any]) -> Secret | None:
    if "password" in entry:
        raise ValueError("it has a password as it is: only a password_hash is taken")
    text = entry.get("password_hash", "")
    algorithm = entry.get("hashing_algorithm", _SHA256)
    if not isinstance(text, str) or not isinstance(algorithm, str):
        raise ValueError("password_hash and hashing_algorithm must be text")
    return Secret(algorithm, text) if text else None


def _tags(given: Any) -> tuple[str, ...]:
    """A list, or in older definitions a text with commas."""
    tags = given.split(",") if isinstance(given, str) else given
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise ValueError("tags must be a list of text")
    return tuple(tag for tag in (tag.strip() for tag in tags) if tag)


# ---- places in a document ----


class located:  # noqa: N801  # a context manager
    """Adds the place to errors inside the block."""

    def __init__(self, where: str) -> None:
        """``where``: such as ``users[3]``."""
        self._where = where

    def __enter__(self) -> None:
        """Does nothing."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """ValueError: the same with the place in front."""
        if isinstance(error, ValueError):
            raise ValueError(f"{self._where}: {error}") from None


def entries(document: Mapping[str, Any], key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a list, and the place of each.  ValueError: it is no such list."""
    listed = document.get(key, [])
    if not isinstance(listed, list):
        raise ValueError(f"{key}: expected a list, not {_kind(listed)}")
    for number, entry in enumerate(listed):
        if not isinstance(entry, dict):
            raise ValueError(f"{key}[{number}]: expected an object, not {_kind(entry)}")
        yield f"{key}[{number}]", entry


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", type(None): "null", bool: "a boolean"}
    return names.get(type(value), "a number")
