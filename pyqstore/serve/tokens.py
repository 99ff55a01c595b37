"""Fixed tokens in a file: secrets shared by the clients of a server."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Tokens", "read_tokens"]


def read_tokens(path: str | os.PathLike[str]) -> list[str]:
    """The tokens of a file, one on each line that is not empty; at least one.

    ValueError: there are none, or one is invalid, which the text does not repeat; OSError.
    """
    try:
        lines = Path(path).read_text(encoding="ascii").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{os.fspath(path)} has bytes that are no ASCII: no token does") from None
    tokens = []
    for number, line in enumerate(lines, 1):
        token = line.strip()
        if not token.isprintable() or " " in token:
            raise ValueError(
                f"{os.fspath(path)}: line {number} is no token: expected printable ASCII without"
                " spaces"
            )
        if token:
            tokens.append(token)
    if not tokens:
        raise ValueError(f"{os.fspath(path)} has no token: expected one on each line")
    return tokens


class Tokens:
    """The tokens that let a client in."""

    def __init__(self, tokens: Sequence[str] = ()) -> None:
        self._digests: list[bytes] = [_digest(token) for token in tokens]

    @classmethod
    def of(cls, path: str | os.PathLike[str] | None) -> Tokens:
        """The tokens of a file, as by ``read_tokens``; None: there are none."""
        return cls(() if path is None else read_tokens(path))

    @property
    def is_empty(self) -> bool:
        """Whether there are no tokens."""
        return not self._digests

    def holds(self, token: str) -> bool:
        """Whether it is one of the tokens.  It takes the same time for each token and for
        others."""
        given = _digest(token)
        return sum(hmac.compare_digest(known, given) for known in self._digests) > 0


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
