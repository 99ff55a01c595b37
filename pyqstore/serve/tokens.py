"""Fixed tokens: secrets that the clients of a server share, in a file."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Tokens", "read_tokens"]


def read_tokens(path: str | os.PathLike[str]) -> list[str]:
    """The tokens of a file, one on each line that is not empty; there is one at least.

    ValueError: it has none, or something that is no token, which is not repeated; OSError.
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
    """Those that let a client in, whoever shows them."""

    def __init__(self, tokens: Sequence[str] = ()) -> None:
        self._digests: list[bytes] = [_digest(token) for token in tokens]

    @classmethod
    def of(cls, path: str | os.PathLike[str] | None) -> Tokens:
        """Of a file, as ``read_tokens`` has it; None: there are none."""
        return cls(() if path is None else read_tokens(path))

    @property
    def is_empty(self) -> bool:
        """Whether nobody comes in by them."""
        return not self._digests

    def holds(self, token: str) -> bool:
        """Whether it is one of them.  It takes as long for each of them, and for none."""
        given = _digest(token)
        return sum(hmac.compare_digest(known, given) for known in self._digests) > 0


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
