"""What TLS knows of clients."""

from __future__ import annotations

import ssl
from typing import Any

__all__ = ["common_name", "verifies_clients"]

_NAME_BYTES_MAX = 255


def common_name(certificate: Any) -> str:
    """Whom a peer's certificate names; "": nobody, or not clearly."""
    subject = (certificate or {}).get("subject", ())
    names = [value for part in subject for kind, value in part if kind == "commonName"]
    name = names[0] if len(names) == 1 else ""
    return name if "\0" not in name and len(name.encode()) <= _NAME_BYTES_MAX else ""


def verifies_clients(tls: ssl.SSLContext) -> bool:
    """Does it ask for certificates?  ValueError: it is not a server's; TypeError."""
    if not isinstance(tls, ssl.SSLContext):
        raise TypeError(f"tls must be an ssl.SSLContext, not {type(tls).__name__}")
    try:
        tls.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)
    except ssl.SSLError:
        raise ValueError(
            "tls is a context of clients: make it with ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)"
        ) from None
    return tls.verify_mode != ssl.CERT_NONE
