"""Certificates in TLS: those of clients, and the server's own."""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Any

__all__ = ["common_name", "expires_at", "verifies_clients"]

_NAME_BYTES_MAX = 255
_FLIGHTS_MAX = 8  # of a handshake
_NO_CHECK_TIME = 0x200000  # OpenSSL's X509_V_FLAG_NO_CHECK_TIME


def common_name(certificate: Any) -> str:
    """The common name of a peer's certificate; "": it has none, or several."""
    subject = (certificate or {}).get("subject", ())
    names = [value for part in subject for kind, value in part if kind == "commonName"]
    name = names[0] if len(names) == 1 else ""
    return name if "\0" not in name and len(name.encode()) <= _NAME_BYTES_MAX else ""


def verifies_clients(tls: ssl.SSLContext) -> bool:
    """Whether the server asks for certificates.  ValueError: it is not a server's context;
    TypeError."""
    if not isinstance(tls, ssl.SSLContext):
        raise TypeError(f"tls must be an ssl.SSLContext, not {type(tls).__name__}")
    try:
        tls.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)
    except ssl.SSLError:
        raise ValueError(
            "tls is a context of clients: make it with ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)"
        ) from None
    return tls.verify_mode != ssl.CERT_NONE


def expires_at(tls: ssl.SSLContext) -> float:
    """The expiry of the certificate that clients receive, in seconds since 1970.

    ``ssl`` shows the content only of a peer's verified certificate.  So there are two handshakes in
    memory: one to get the certificate, and one that trusts it.  ssl.SSLError.
    """
    shown = _handshake(tls, _client())
    trusting = _client()
    trusting.load_verify_locations(cadata=ssl.DER_cert_to_PEM_cert(shown.getpeercert(True) or b""))
    trusting.verify_mode = ssl.CERT_REQUIRED
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trusting.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
    told: Any = _handshake(tls, trusting).getpeercert()
    return float(ssl.cert_time_to_seconds(told["notAfter"]))


def _client() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _handshake(tls: ssl.SSLContext, trusting: ssl.SSLContext) -> ssl.SSLObject:
    """The client's end.  The server's verdict about the client does not matter."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = tls.wrap_bio(to_server, to_client, server_side=True)
    client = trusting.wrap_bio(to_client, to_server)
    for _ in range(_FLIGHTS_MAX):
        try:
            client.do_handshake()
            break
        except ssl.SSLWantReadError:
            with suppress(ssl.SSLError):
                server.do_handshake()
    return client
