"""The address of a server, checked as far as possible before there is a store."""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyarrow import flight  # type: ignore[import-untyped, unused-ignore]

from ..serve.listeners import Entrance
from ..serve.users import is_loopback

__all__ = ["Place"]

_UNIX = "unix:"
_UNIX_BYTES_MAX = 107  # what the system has room for


@dataclass(frozen=True)
class Place:
    """An address that was available when it was checked."""

    address: str
    location: Any
    options: dict[str, Any] = field(default_factory=dict)
    host: str = ""
    path: Path | None = None

    @classmethod
    def of(cls, address: str, entrance: Entrance) -> Place:
        """From an address like that of ``FlightListener``.  Changes nothing."""
        if address.startswith(_UNIX):
            path = _checked_path(address.removeprefix(_UNIX))
            if entrance.tls is not None:
                raise ValueError(
                    f"{address}: TLS is for addresses of a network; who may open the socket's file"
                    " is up to its permissions"
                )
            return cls(address, flight.Location.for_grpc_unix(str(path)), path=path)
        host, port = _host_and_port(address)
        is_open = entrance.users.is_empty and entrance.tokens.is_empty
        if is_open and not is_loopback(host):
            raise ValueError(
                f"{address} is reached from other machines: give users, or listen at 127.0.0.1"
            )
        _check_free(host, port, address)
        scheme = "grpc"
        options: dict[str, Any] = {}
        if entrance.tls is not None:
            scheme = "grpc+tls"
            options["tls_certificates"] = [(entrance.tls.cert, entrance.tls.key)]
            options["verify_client"] = entrance.tls.ca is not None
            options["root_certificates"] = entrance.tls.ca
        location = flight.Location(f"{scheme}://{_bracketed(host)}:{port}")
        return cls(address, location, options, host)

    def told(self, port: int) -> str:
        """The address, once it has a port."""
        return f"{_UNIX}{self.path}" if self.path else f"{_bracketed(self.host)}:{port}"

    def clear(self) -> None:
        """Remove the socket that a killed server left there."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not (port.isdecimal() and port.isascii()) or int(port) > 65535:
        raise ValueError(f"{address!r} is no address: expected HOST:PORT or unix:PATH")
    return host.strip("[]"), int(port)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _check_free(host: str, port: int, address: str) -> None:
    """OSError: the system's error for the address, which gRPC does not report."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as error:
        raise OSError(error.errno, f"cannot accept at {address}: {error.strerror}") from error


def _checked_path(text: str) -> Path:
    """OSError: another file is there, a server accepts there, or the directory does not exist;
    ValueError: the path is too long."""
    path = Path(text).absolute()
    if not text or len(os.fsencode(path)) > _UNIX_BYTES_MAX:
        raise ValueError(f"unix:{text}: expected a path of 1 to {_UNIX_BYTES_MAX} bytes")
    if not path.parent.is_dir():
        raise OSError(f"cannot accept at unix:{text}: there is no directory {path.parent}")
    if path.exists():
        _check_is_left_over(path, text)
    return path


def _check_is_left_over(path: Path, text: str) -> None:
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise OSError(f"cannot accept at unix:{text}: there is a file that is no socket")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return
    raise OSError(f"cannot accept at unix:{text}: a server accepts there already")
