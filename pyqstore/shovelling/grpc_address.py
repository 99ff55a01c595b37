"""Addresses of ends at a server: ``grpc://HOST:PORT#NAME``."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

__all__ = ["SCHEMES", "GrpcPlace", "grpc_place"]

SCHEMES = ("grpc", "grpc+tcp", "grpc+tls", "grpc+unix")
_CONNECTING = ("user", "password", "token", "token_file", "tls_ca", "tls_cert", "tls_key")


@dataclass(frozen=True)
class GrpcPlace:
    """A queue or a stream of a store that a server has open: ``pyqstore serve --flight``."""

    url: str
    """For ``pyqstore.connect``."""
    name: str
    connecting: tuple[tuple[str, str], ...] = ()
    """More arguments of it."""

    @property
    def shown(self) -> str:
        """For people: without what a client is known by."""
        return f"{self.url}#{self.name}"


def grpc_place(text: str) -> GrpcPlace:
    """ValueError: what is wrong."""
    address, _, name = text.partition("#")
    where, _, query = address.partition("?")
    scheme, _, rest = where.partition(":")
    scheme = scheme.lower()
    where = f"{scheme}:{rest}"
    if not name:
        raise ValueError(f"say {where}#NAME: which queue or stream of the store it is")
    given = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in _CONNECTING:
            raise ValueError(f"{key}= is unknown: there are {', '.join(_CONNECTING)}")
        if key in given:
            raise ValueError(f"{key}= is there twice")
        given[key] = value
    login, at, host = rest.removeprefix("//").rpartition("@")
    if at and scheme != "grpc+unix":
        user, colon, password = login.partition(":")
        if not colon or "user" in given:
            raise ValueError("say USER:PASSWORD@HOST:PORT, or user= and password=")
        given |= {"user": unquote(user), "password": unquote(password)}
        where = f"{scheme}://{host}"
    return GrpcPlace(where, unquote(name), tuple(sorted(given.items())))
