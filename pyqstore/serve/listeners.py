"""Listeners: one class for each protocol, all with the same interface."""

from __future__ import annotations

import contextlib
import json
import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from .stored_users import StoredUsers
from .tokens import Tokens
from .users import Users

__all__ = [
    "Entrance",
    "Listener",
    "Tls",
    "check_authority",
    "check_pair",
    "check_ready_file",
    "remove_ready_file",
    "write_ready_file",
]


@dataclass(frozen=True)
class Tls:
    """The server's certificate and key, and the authority of clients' certificates, as PEM."""

    cert: bytes
    key: bytes
    ca: bytes | None
    context: ssl.SSLContext
    """A server's context with these files."""

    @classmethod
    def of(cls, cert: Path | None, key: Path | None, ca: Path | None) -> Tls | None:
        """The files of the command line.  ValueError: one is missing or invalid; OSError."""
        if cert is None and key is None and ca is None:
            return None
        if cert is None or key is None:
            raise ValueError("TLS needs both a certificate and its key")
        context = check_pair(cert, key)
        if ca is not None:
            check_authority(ca)
            context.load_verify_locations(ca)
            context.verify_mode = ssl.CERT_REQUIRED
        authority = None if ca is None else ca.read_bytes()
        return cls(cert.read_bytes(), key.read_bytes(), authority, context)


def check_pair(cert: Path, key: Path) -> ssl.SSLContext:
    """ValueError: files that gRPC would accept without an error and then refuse every client;
    OSError."""
    for file in (cert, key):
        file.read_bytes()  # OSError with its name
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password="")
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(
            f"{cert} and {key} are no certificate with its key, as PEM and without a password:"
            f" {error}"
        ) from None
    return context


def check_authority(ca: Path) -> None:
    """ValueError: a file without a certificate; OSError."""
    ca.read_bytes()
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(ca)
    except ssl.SSLError as error:
        raise ValueError(f"{ca} has no certificate as PEM: {error}") from None


@dataclass(frozen=True)
class Entrance:
    """The settings shared by all listeners of a process."""

    users: Users | StoredUsers
    tls: Tls | None = None
    tokens: Tokens = field(default_factory=Tokens)
    """The tokens of Arrow Flight clients, which may also log in as users."""
    amqp: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of ``Store.listen`` for AMQP."""


class Listener(Protocol):
    """Accepts connections from its creation on."""

    @property
    def protocol(self) -> str:
        """Its name, and its key in the ready file."""

    @property
    def address(self) -> str:
        """Where it accepts: HOST:PORT, or unix:PATH."""

    def close(self, timeout: float) -> bool:
        """Stops accepting and ends running calls; whether all of them ended within ``timeout``
        seconds."""


def check_ready_file(path: Path) -> None:
    """OSError: it could not be written."""
    folder = path.absolute().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise OSError(
            f"no ready file can be written in {folder}: there is no such directory of ours"
        )


def write_ready_file(path: Path, listeners: Sequence[Listener]) -> tuple[int, ...]:
    """Writes addresses by protocol, as JSON, atomically.  Returns the identity for
    ``remove_ready_file``."""
    addresses: Mapping[str, str] = {each.protocol: each.address for each in listeners}
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(addresses) + "\n", encoding="utf-8")
        known = _identity(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return known


def remove_ready_file(path: Path, known: tuple[int, ...]) -> None:
    """Removes the file, unless another server has replaced it."""
    with contextlib.suppress(FileNotFoundError):
        if _identity(path) == known:
            path.unlink()


def _identity(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_mtime_ns
