"""Addresses for AMQP clients, and whether they use TLS."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from .users import is_loopback

__all__ = ["Endpoint", "endpoints", "is_of_this_machine", "place_of"]

_PLAIN, _TLS = "amqp://", "amqps://"


@dataclass(frozen=True)
class Endpoint:
    """One of the addresses of ``pyqstore serve --listen``."""

    address: str
    """HOST:PORT, unix:PATH or fd:NUMBER."""
    speaks_tls: bool


def endpoints(texts: Sequence[str], *, has_tls: bool) -> list[Endpoint]:
    """Parses the addresses of the command line, each with or without ``amqp://`` or ``amqps://``.
    Without either, an address uses TLS if there is a certificate (``has_tls``), unless it is a Unix
    socket, which never does.  ValueError: an address needs TLS, and there is no certificate."""
    return [_endpoint(text, has_tls) for text in texts]


def _endpoint(text: str, has_tls: bool) -> Endpoint:
    if text.startswith(_PLAIN):
        return Endpoint(text.removeprefix(_PLAIN), speaks_tls=False)
    if not text.startswith(_TLS):
        return Endpoint(text, has_tls and not place_of(text).startswith("unix:"))
    if not has_tls:
        raise ValueError(
            f"--listen {text!r}: TLS needs the server's certificate; give --tls-cert and --tls-key"
        )
    return Endpoint(text.removeprefix(_TLS), speaks_tls=True)


def place_of(address: str) -> str:
    """The place of an address; for a descriptor the address of its socket.  An invalid address is
    refused elsewhere."""
    if not address.startswith("fd:"):
        return address
    try:
        with socket.socket(fileno=os.dup(int(address[3:]))) as same:
            if same.family == socket.AF_UNIX:
                return "unix:"
            name = same.getsockname()
            is_internet = same.family in (socket.AF_INET, socket.AF_INET6)
    except (ValueError, OverflowError, OSError):
        return ""
    return f"[{name[0]}]:{name[1]}" if is_internet else ""


def is_of_this_machine(address: str) -> bool:
    """An invalid address is refused elsewhere."""
    host, colon, _ = address.rpartition(":")
    return not colon or address.startswith("unix:") or is_loopback(host)
