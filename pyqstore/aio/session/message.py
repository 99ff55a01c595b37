"""Messages as the sessions of asyncio hand them out."""

from __future__ import annotations

import asyncio

from ... import session as synchronous

__all__ = ["Message"]


class Message(synchronous.Message):
    """One delivery of a message: see :class:`pyqstore.session.Message`."""

    __slots__ = ()

    async def acknowledge(self) -> None:  # type: ignore[override]
        """Like :meth:`pyqstore.session.Message.acknowledge`."""
        owner = self._owner
        if owner is not None:
            await asyncio.shield(asyncio.to_thread(owner._acknowledge, self))
