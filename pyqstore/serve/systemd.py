"""systemd's service protocols: passed sockets, and status messages.

The protocols are sd_listen_fds(3), sd_notify(3) and sd_watchdog_enabled(3): environment variables,
and lines in datagrams to a socket.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping

__all__ = ["Manager", "passed_sockets"]

_log = logging.getLogger("pyqstore")
_FIRST = 3
_SEND_S = 1.0
_FLIGHT = "flight"

_Environment = MutableMapping[str, str]


def passed_sockets(environment: _Environment) -> list[str]:
    """Addresses, "fd:3" and so on, of the sockets that were passed to this process.  Removes the
    variables, which are not for its children.  ValueError: the sockets cannot be used."""
    for_whom = environment.pop("LISTEN_PID", "")
    count = environment.pop("LISTEN_FDS", "0")
    names = environment.pop("LISTEN_FDNAMES", "").split(":")
    if for_whom != str(os.getpid()):
        return []
    if not count.isdecimal():
        raise ValueError(f"LISTEN_FDS is {count!r}: it must be the number of sockets")
    passed = range(_FIRST, _FIRST + int(count))
    for fd in passed:
        try:
            os.set_inheritable(fd, False)
        except OSError:
            raise ValueError(f"LISTEN_FDS is {count}, and descriptor {fd} is not open") from None
    if _FLIGHT in names[: len(passed)]:
        raise ValueError(
            f"a socket named {_FLIGHT!r} was passed: Arrow Flight takes none, and listens with"
            " --flight"
        )
    return [f"fd:{fd}" for fd in passed]


class Manager:
    """Receives the status of the service; without a socket nothing is sent."""

    def __init__(self, address: str, watchdog_s: float | None = None) -> None:
        """``address``: a path, or "@" and a name of an abstract socket; "": there is none."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.watchdog_s: float | None = watchdog_s if address else None
        self._has_failed = False

    @classmethod
    def of(cls, environment: _Environment) -> Manager:
        """From the environment, whose variables are removed.  ValueError: they are malformed."""
        address = environment.pop("NOTIFY_SOCKET", "")
        period = environment.pop("WATCHDOG_USEC", "")
        for_whom = environment.pop("WATCHDOG_PID", str(os.getpid()))
        if address and address[0] not in "/@":
            raise ValueError(f"NOTIFY_SOCKET is {address!r}: it must be a path, or @ and a name")
        if period and (not period.isdecimal() or int(period) == 0):
            raise ValueError(f"WATCHDOG_USEC is {period!r}: it must be a number of microseconds")
        is_watched = period != "" and for_whom == str(os.getpid())
        return cls(address, int(period) / 1e6 if is_watched else None)

    def wait_s(self, most: float) -> float:
        """The longest time until the next ``keep_alive``."""
        return most if self.watchdog_s is None else min(most, self.watchdog_s / 2)

    def begin(self, doing: str) -> None:
        """Reports that the service is not ready, and why."""
        self._send(f"STATUS={doing}")

    def ready(self, doing: str) -> None:
        """Reports that all listeners accept."""
        self._send(f"READY=1\nSTATUS={doing}")

    def keep_alive(self) -> None:
        """Reports that the service works."""
        if self.watchdog_s is not None:
            self._send("WATCHDOG=1")

    def stop(self, doing: str) -> None:
        """Reports that the service is ending."""
        self._send(f"STOPPING=1\nSTATUS={doing}")

    def _send(self, text: str) -> None:
        """The service continues if its manager does not receive; this is logged once."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
                own.settimeout(_SEND_S)
                own.sendto(text.encode("utf-8", "replace"), self._address)
            self._has_failed = False
        except OSError as error:
            if not self._has_failed:
                _log.warning("NOTIFY_SOCKET %r: %s", self._address, error)
            self._has_failed = True
