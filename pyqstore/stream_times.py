"""When the messages of a stream were published, for those who look at them one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _core
from .errors import OffsetOutOfRange, StoreCorrupt
from .stream import Reader

if TYPE_CHECKING:
    from .store import Store

__all__ = ["Times"]

_ROWS = 4096  # that are read ahead
_COLUMNS = ("offset", "timestamp")


class Times:
    """Of one stream; offsets are asked for in their order."""

    def __init__(self, store: Store, name: str) -> None:
        self._reader = Reader(store, name, (_core.START_FIRST, 0), None, _COLUMNS, None)
        self._known: dict[int, int] = {}

    def of(self, offset: int) -> int | None:
        """In microseconds since 1970; None: the message is dropped, or its block damaged."""
        if offset not in self._known:
            try:
                self._reader.seek(offset)
                batch = self._reader.next(_ROWS, 0)
            except (OffsetOutOfRange, StoreCorrupt):
                batch = None
            self._known = {}
            if batch is not None:
                import pyarrow  # type: ignore[import-untyped, unused-ignore]

                times = batch["timestamp"].cast(pyarrow.int64()).to_pylist()
                self._known = dict(zip(batch["offset"].to_pylist(), times, strict=True))
        return self._known.get(offset)
