"""Stores that others own, reached through Arrow Flight: the option ``url``.

Several URLs are shards: rows that are written are divided among them by partition or by a key,
and each of them is read.  Every process opens clients of its own and closes them; what travels with
a job is where the servers are and what they are shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .options import OptionError, ReadOptions, WriteOptions

if TYPE_CHECKING:
    from pyqstore.flight.client import Client
    from pyqstore.flight.dialing import Dial
    from pyqstore.flight.remote_stream import RemoteStream

_DIALING = ("user", "password", "token", "token_file", "tls_ca", "tls_cert", "tls_key")
_OF_PATHS = ("path", "create", "lock_timeout")
# As a client's URL is written; a directory may be named HOST:PORT, too.
_SERVER = re.compile(r"grpc(\+\w+)?:|(?!file:)\w[\w+]*://|[^/,]+:\d+(,|$)")
_ANSWER_S = 5.0  # Spark tries a task again
_NOWHERE = "/"  # stands for a path while options are read


@dataclass(frozen=True)
class Remote:
    """Where the servers are.  Can be pickled: certificates and keys travel as what is in them."""

    dials: tuple[Dial, ...]

    @property
    def count(self) -> int:
        """How many shards there are."""
        return len(self.dials)

    @contextmanager
    def client(self, shard: int, timeout: float = _ANSWER_S) -> Iterator[Client]:
        """A client of one of them.  Raises as ``pyqstore.connect``."""
        from pyqstore.flight.client import Client

        with Client(self.dials[shard], timeout) as client:
            yield client

    def url(self, shard: int) -> str:
        """Of one of them, for messages."""
        return self.dials[shard].url


class Clients:
    """Kept open by a query, which asks often; gRPC connects again by itself.  None is pickled."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._open: dict[int, Client] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}

    def get(self, shard: int) -> Client:
        """That of one server."""
        from pyqstore.flight.client import Client

        if shard not in self._open:
            self._open[shard] = Client(self._remote.dials[shard])
        return self._open[shard]

    def close(self) -> None:
        """All of them."""
        for client in self._open.values():
            client.close()
        self._open.clear()


def remote_stream(client: Client, name: str) -> RemoteStream:
    """A stream as it is; it is not declared."""
    from pyqstore.flight.remote_stream import RemoteStream

    return RemoteStream(client._link, name)


def write_options(options: Mapping[str, str]) -> tuple[WriteOptions, Remote | None]:
    """Spark's options; without ``url`` there is no remote.  OptionError."""
    rest, remote = _split(options)
    parsed = WriteOptions.parse(rest)
    if parsed.shard_by and remote is None:
        raise OptionError("option 'shard_by' goes with 'url'")
    return (parsed if remote is None else replace(parsed, path=_named(options))), remote


def read_options(
    options: Mapping[str, str], *, streaming: bool
) -> tuple[ReadOptions, Remote | None]:
    """The same of a read."""
    rest, remote = _split(options)
    parsed = ReadOptions.parse(rest, streaming=streaming)
    if remote is None:
        return parsed, None
    if parsed.ack == "take":
        raise OptionError("option 'ack=take' goes with 'path': through 'url' messages are claimed")
    return replace(parsed, path=_named(options)), remote


def dialed(url: str, **dialing: str) -> Remote:
    """The servers of an option ``url``.  OptionError."""
    from pyqstore.flight.dialing import Dial

    urls = [one.strip() for one in url.split(",")]
    if len(set(urls)) != len(urls):
        raise OptionError("option 'url' names a server twice")
    try:
        return Remote(tuple(Dial.of(one, **dialing) for one in urls))
    except (ValueError, OSError) as error:
        raise OptionError(f"option 'url': {error}") from error


def remote_of(path: str | os.PathLike[str], connecting: Mapping[str, str]) -> Remote | None:
    """The servers, if it is no path but what an option ``url`` has.  TypeError: ``connecting`` has
    what no client is shown, or goes with a path."""
    if isinstance(path, str) and _SERVER.match(path) and not os.path.exists(path):
        return dialed(path, **connecting)
    if connecting:
        raise TypeError(f"{', '.join(connecting)}: for servers, not for the path {path!r}")
    return None


def _split(options: Mapping[str, str]) -> tuple[Mapping[str, str], Remote | None]:
    given = {name.lower(): value for name, value in dict(options).items()}
    if "url" not in given:
        for name in _DIALING:
            if name in given:
                raise OptionError(f"option '{name}' goes with 'url'")
        return options, None
    for name in _OF_PATHS:
        if name in given:
            raise OptionError(f"option '{name}' does not go with 'url'")
    dialing = {name: given.pop(name) for name in _DIALING if name in given}
    remote = dialed(given.pop("url"), **dialing)
    return {**given, "path": _NOWHERE}, remote


def _named(options: Mapping[str, str]) -> str:
    """What stands for the path in messages."""
    return next(value for name, value in dict(options).items() if name.lower() == "url")
