"""Accepting connections, and ending."""

from __future__ import annotations

import os
import threading
import weakref
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
from pyarrow import flight  # type: ignore[import-untyped, unused-ignore]

from ..closing import Closing
from ..serve.listeners import Entrance
from ..store import Store
from ..waiting import Seconds, check_timeout
from .guard import Guard, NoHandshake
from .places import Place
from .service import Service

__all__ = ["FlightListener"]

_HOLDERS_MAX = 1000
_BATCH_BYTES_MAX = 256 << 20


class FlightListener(Closing):
    """Serves an open store by Arrow Flight until it is closed; the store stays open."""

    protocol: str = "flight"

    def __init__(
        self,
        store: Store,
        address: str,
        entrance: Entrance,
        *,
        holders_max: int = _HOLDERS_MAX,
        batch_bytes_max: int = _BATCH_BYTES_MAX,
    ) -> None:
        """``address``: HOST:PORT, with port 0 any free port, or unix:PATH.

        ``holders_max``: the number of clients that may hold deliveries at once;
        ``batch_bytes_max``: the largest batch that a client may send.  ValueError: an invalid
        address, or one that other machines can reach while there are no users; OSError: the address
        is not available.
        """
        place = Place.of(address, entrance)
        place.clear()
        self._path: Path | None = place.path
        self._service = _started(
            store,
            place,
            {
                **place.options,
                "auth_handler": NoHandshake(),
                "middleware": {"guard": Guard(entrance.users, entrance.tokens)},
                "holders_max": holders_max,
                "batch_bytes_max": batch_bytes_max,
            },
        )
        self.address: str = place.told(self._service.port)
        # At exit pyarrow waits for the calls under way, and some last until they are told.
        weakref.finalize(self._service, self._service.closing.set)

    def close(self, timeout: Seconds = 10.0) -> bool:
        """Accept no more calls and end running calls; return whether all ended in time.  A second
        call does nothing."""
        if self._service.closing.is_set():
            return True
        self._service.closing.set()
        # It waits for calls without end, and only for the time of a client that sends nothing.
        ending = threading.Thread(target=self._end, name="flight end", daemon=True)
        ending.start()
        ending.join(min(check_timeout(timeout), threading.TIMEOUT_MAX))
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        return not ending.is_alive()

    def _end(self) -> None:
        self._service.__exit__(None, None, None)
        self._service.staging.close()


def _started(store: Store, place: Place, options: dict[str, Any]) -> Service:
    # A socket in the file system is for its owner alone.
    mask = os.umask(0o077) if place.path is not None else None
    try:
        return Service(store, place.location, **options)
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        raise OSError(f"cannot accept at {place.address}: {error}") from error
    finally:
        if mask is not None:
            os.umask(mask)
