"""Hashes of passwords: scrypt for new ones, and RabbitMQ's, which can be imported."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from dataclasses import dataclass

__all__ = ["SCRYPT", "Secret", "hashed", "spend"]

SCRYPT = "scrypt"
_RABBITMQ = {
    "rabbit_password_hashing_sha256": "sha256",
    "rabbit_password_hashing_sha512": "sha512",
}
_SALT_BYTES = 4  # RabbitMQ's
_LN, _R, _P = 15, 8, 1  # 32 MiB, and a tenth of a second
_MEMORY_MAX = 256 << 20
_P_MAX = 16
_FORM = re.compile(
    r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,3}),p=(\d{1,3})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)"
)


@dataclass(frozen=True)
class Secret:
    """The hash of a password, for comparisons."""

    algorithm: str
    text: str
    """``$scrypt$ln=15,r=8,p=1$SALT$HASH``, as other programs write scrypt's, or RabbitMQ's: salt
    and hash in base64."""

    def __post_init__(self) -> None:
        """ValueError: it is invalid, or would need too much memory or time."""
        if self.algorithm == SCRYPT:
            _scrypt_of(self.text)
        else:
            _rabbitmq_of(self.algorithm, self.text)

    def matches(self, password: str) -> bool:
        """Whether this is the password.  With other algorithms, too, a wrong one takes as long as
        scrypt."""
        given = _encoded(password)
        if self.algorithm == SCRYPT:
            work, salt, known = _scrypt_of(self.text)
            return hmac.compare_digest(_scrypt(given, salt, *work, len(known)), known)
        salt, known = _rabbitmq_of(self.algorithm, self.text)
        found = hmac.compare_digest(_digest(self.algorithm, salt + given), known)
        if not found:
            spend(password)
        return found


def hashed(password: str) -> Secret:
    """The hash of a password, with a new salt."""
    salt = os.urandom(16)
    digest = _scrypt(_encoded(password), salt, 1 << _LN, _R, _P, 32)
    return Secret(SCRYPT, f"$scrypt$ln={_LN},r={_R},p={_P}${_base64(salt)}${_base64(digest)}")


def spend(password: str) -> None:
    """Takes the time of a check, so that response times do not reveal which names exist."""
    _scrypt(_encoded(password), b"\0" * 16, 1 << _LN, _R, _P, 32)


def _encoded(password: str) -> bytes:
    return password.encode("utf-8", "surrogateescape")


def _scrypt(password: bytes, salt: bytes, n: int, r: int, p: int, length: int) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=n, r=r, p=p, maxmem=_MEMORY_MAX * 2, dklen=length)


def _scrypt_of(text: str) -> tuple[tuple[int, int, int], bytes, bytes]:
    """Parameters, salt and hash."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError("no hash of scrypt, as $scrypt$ln=15,r=8,p=1$SALT$HASH")
    ln, r, p = (int(number) for number in found.group(1, 2, 3))
    if not (1 <= ln <= 30 and r >= 1 and 1 <= p <= _P_MAX) or (128 * r << ln) > _MEMORY_MAX:
        raise ValueError(
            f"scrypt with ln={ln}, r={r}, p={p}: 128 * r * 2**ln bytes may be"
            f" {_MEMORY_MAX >> 20} MiB at most, and p {_P_MAX}"
        )
    salt, known = (_bytes_of(part + "=" * (-len(part) % 4)) for part in found.group(4, 5))
    if not 16 <= len(known) <= 64:
        raise ValueError(f"a hash of {len(known)} bytes: scrypt's have 16 to 64 here")
    return (1 << ln, r, p), salt, known


def _rabbitmq_of(algorithm: str, text: str) -> tuple[bytes, bytes]:
    """Salt and hash."""
    if algorithm not in _RABBITMQ:
        known = ", ".join((SCRYPT, *_RABBITMQ))
        raise ValueError(f"the hashing algorithm {algorithm!r} is not known; these are: {known}")
    decoded = _bytes_of(text)
    if len(decoded) != _SALT_BYTES + len(_digest(algorithm, b"")):
        raise ValueError(f"no password hash of {algorithm}: base64 of 4 bytes of salt and the hash")
    return decoded[:_SALT_BYTES], decoded[_SALT_BYTES:]


def _digest(algorithm: str, data: bytes) -> bytes:
    return hashlib.new(_RABBITMQ[algorithm], data).digest()


def _bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("a password hash that is no base64") from None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")
