"""A store at the other end of a connection: Arrow Flight.

``connect`` returns a client; ``serve`` lets clients into a store that this process has open, like
``pyqstore serve DIR --flight HOST:PORT``.  Calling one of them imports gRPC, which is part of
pyarrow's wheel.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..waiting import Seconds
from .results import Staged, StagedCommit, TransactionState

if TYPE_CHECKING:
    from ..store import Store
    from .client import Client
    from .remote_stream import RemoteStream
    from .server import FlightListener
    from .shards import commit_shards, settle_shards

__all__ = [
    "Client",
    "FlightListener",
    "RemoteStream",
    "Staged",
    "StagedCommit",
    "TransactionState",
    "commit_shards",
    "connect",
    "serve",
    "settle_shards",
]
_HOMES = {
    "Client": "client",
    "FlightListener": "server",
    "RemoteStream": "remote_stream",
    "commit_shards": "shards",
    "settle_shards": "shards",
}

_File = str | os.PathLike[str]


def connect(
    url: str,
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    token_file: _File | None = None,
    tls_ca: _File | None = None,
    tls_cert: _File | None = None,
    tls_key: _File | None = None,
    timeout: Seconds = 10.0,
) -> Client:
    """Connect to the store that a server at ``url`` owns: ``pyqstore serve DIR --flight ...``.

    ``url``: ``grpc://HOST:PORT``, ``grpc+tls://HOST:PORT`` or ``grpc+unix:PATH``, or an address
    from the ready file.  ``user`` and ``password``, or a ``token``: one of ``Client.token``, or a
    fixed one of the server; ``token_file``: a file whose first line is a token.  None of them for a
    server without users and tokens.  ``tls_ca``: a file with the certificates that may have signed
    the server's, by default those of the system; ``tls_cert``, ``tls_key``: the client's own, for a
    server that asks for one.  ``timeout``: seconds in which the server must answer.

    Raises ConnectionLost: no server answers; AccessRefused: the server accepts neither name nor
    token; ValueError: an invalid URL, or options that contradict each other.
    """
    from .client import Client
    from .dialing import Dial

    dial = Dial.of(url, user, password, token, token_file, tls_ca, tls_cert, tls_key)
    return Client(dial, timeout)


def serve(
    store: Store,
    address: str = "127.0.0.1:0",
    *,
    users: Mapping[str, str] | None = None,
    token_file: _File | None = None,
    tls_cert: _File | None = None,
    tls_key: _File | None = None,
    tls_ca: _File | None = None,
) -> FlightListener:
    """Let clients into an open store until the listener, or the ``with`` block, is closed.

    ``address``: HOST:PORT, where port 0 is any free port, or unix:PATH; the listener has the
    resulting address.  ``users``: passwords by name; by default the store's users with all
    permissions (``pyqstore user``).  ``token_file``: a file with fixed tokens, one on each line;
    clients with one of them may connect, too.  Without users and tokens only addresses of this
    machine are permitted.  ``tls_cert``, ``tls_key``: accept TLS only; ``tls_ca``: clients need a
    certificate that this one signed.  Close the listener before the store.

    Raises ValueError; OSError: the address is not available, or a file cannot be read.
    """
    from ..serve.listeners import Entrance, Tls
    from ..serve.stored_users import users_of
    from ..serve.tokens import Tokens
    from .server import FlightListener

    cert, key, ca = (None if each is None else Path(each) for each in (tls_cert, tls_key, tls_ca))
    tls = Tls.of(cert, key, ca)
    entrance = Entrance(users_of(store.directory, users), tls, Tokens.of(token_file))
    return FlightListener(store, address, entrance)


def __getattr__(name: str) -> Any:
    """Import a name on its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
