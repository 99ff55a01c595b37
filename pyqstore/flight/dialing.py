"""The address of a server, the credentials, and the outcome of a call."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyarrow import flight  # type: ignore[import-untyped, unused-ignore]

from ..errors import AccessRefused, ConnectionLost, Error
from ..serve.listeners import check_authority, check_pair
from ..serve.tokens import read_tokens
from .wire import error_of

__all__ = ["Dial"]

_URL = re.compile(r"(?:(?P<scheme>grpc(?:\+tcp|\+tls|\+unix)?):(?://)?)?(?P<rest>.+)", re.S)
_DETAIL = re.compile(r"\. (?:Detail: |gRPC client debug context).*", re.S)
# Servers of gRPC refuse clients that ask for signs of life more often than every five minutes.
_KEEPALIVE_MS = 330_000
_HEADER_MAX = 4096  # gRPC takes about 8 KiB of all headers
_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


@dataclass(frozen=True)
class Dial:
    """A server's URL and the credentials for it.  Can be pickled."""

    url: str
    authorization: str = ""
    tls_ca: bytes | None = None
    tls_cert: bytes | None = None
    tls_key: bytes | None = None

    @classmethod
    def of(
        cls,
        url: str,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
    ) -> Dial:
        """From the arguments of ``pyqstore.connect``; raises ValueError, OSError."""
        if (user is None) != (password is None):
            raise ValueError("a user and a password go together")
        if sum(one is not None for one in (user, token, token_file)) > 1:
            raise ValueError("give either a user and a password or a token, or a file with one")
        if (tls_cert is None) != (tls_key is None):
            raise ValueError("a certificate and its key go together")
        if token_file is not None:
            token = read_tokens(token_file)[0]
        authorization = f"Bearer {token}" if token is not None else ""
        if user is not None:
            authorization = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        _check_header(authorization)
        if tls_ca is not None:
            check_authority(Path(tls_ca))
        if tls_cert is not None and tls_key is not None:
            check_pair(Path(tls_cert), Path(tls_key))
        ca, cert, key = (
            None if each is None else Path(each).read_bytes()
            for each in (tls_ca, tls_cert, tls_key)
        )
        where = _location(url)
        if (ca or cert) and not where.startswith("grpc+tls:"):
            raise ValueError(f"{url}: certificates are for grpc+tls://")
        return cls(where, authorization, ca, cert, key)

    def with_token(self, token: str) -> Dial:
        """The same with a token."""
        _check_header(token)
        return replace(self, authorization=f"Bearer {token}")

    def open(self) -> Any:
        """A client of pyarrow's Flight."""
        options: dict[str, Any] = {"generic_options": list(_OPTIONS)}
        if self.tls_ca is not None:
            options["tls_root_certs"] = self.tls_ca
        if self.tls_cert is not None:
            options["cert_chain"], options["private_key"] = self.tls_cert, self.tls_key
        with self.answers():
            return flight.FlightClient(self.url, **options)

    def options(self, timeout: float | None = None) -> Any:
        """The options of a call."""
        headers = [(b"authorization", self.authorization.encode())] if self.authorization else []
        return flight.FlightCallOptions(timeout=timeout, headers=headers)

    @contextmanager
    def answers(self) -> Iterator[None]:
        """Raise an error of the server as the same exception, and an error of the connection as
        ConnectionLost."""
        try:
            yield
        except flight.FlightError as error:
            raise self._error(error) from error

    def _error(self, error: Any) -> Exception:
        told = error_of(error.extra_info) if getattr(error, "extra_info", b"") else None
        if isinstance(told, ConnectionLost):
            told.args = (f"{self.url}: {told}",)
        if told is not None:
            return told
        text = _DETAIL.sub("", str(error))
        if isinstance(error, flight.FlightUnauthenticatedError):
            return AccessRefused(403, f"ACCESS_REFUSED - {self.url}: {text}")
        if isinstance(error, flight.FlightTimedOutError):
            return ConnectionLost(f"{self.url} did not answer in time")
        if isinstance(error, _LOST):
            return ConnectionLost(f"{self.url}: the server is gone, or was never there: {text}")
        return Error(f"{self.url}: {text}")


_LOST = (
    flight.FlightUnavailableError,
    flight.FlightCancelledError,
    flight.FlightInternalError,
)


def _check_header(authorization: str) -> None:
    """ValueError: the value makes no valid HTTP header; gRPC would say no more.  The value is
    secret, so the text has nothing of it."""
    if not (authorization.isascii() and authorization.isprintable()):
        raise ValueError("a token is printable ASCII, without the end of a line")
    if len(authorization) > _HEADER_MAX:
        raise ValueError(
            f"name and password, or the token, make {len(authorization)} bytes, of"
            f" {_HEADER_MAX} at most"
        )


def _location(url: str) -> str:
    """The URL in pyarrow's form.  ValueError: it is not valid."""
    found = _URL.fullmatch(url)
    if found is None:
        raise ValueError("an empty URL: expected grpc://HOST:PORT or grpc+unix:PATH")
    scheme, rest = found["scheme"], found["rest"]
    if scheme is None and rest.startswith("unix:"):
        scheme, rest = "grpc+unix", rest.removeprefix("unix:")
    if scheme == "grpc+unix":
        return f"grpc+unix://{os.path.abspath(rest)}"
    if "@" in rest:
        raise ValueError("a URL has no name and password: give user and password by themselves")
    host, _, port = rest.rpartition(":")
    if not host or not port.isdecimal() or "/" in rest:
        raise ValueError(
            f"{url!r}: expected grpc://HOST:PORT, grpc+tls://HOST:PORT or grpc+unix:PATH"
        )
    return f"{scheme or 'grpc'}://{rest}"
