"""The verbs that declare: exchanges, queues and bindings: awaited."""

from __future__ import annotations

from functools import partial
from typing import Final

from ...channel import Arguments, warn_of_unknown
from ...channel import Channel as SynchronousChannel
from ...message import DeclareOk
from ..twin import awaited
from .handle import Handle

__all__ = ["Declaring"]


class Declaring(Handle):
    """Exchanges, queues and bindings: each call in a thread."""

    exchange_declare: Final = awaited(SynchronousChannel.exchange_declare)
    exchange_delete: Final = awaited(SynchronousChannel.exchange_delete)
    exchange_bind: Final = awaited(SynchronousChannel.exchange_bind)
    exchange_unbind: Final = awaited(SynchronousChannel.exchange_unbind)

    async def queue_declare(
        self,
        queue: str = "",
        *,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Arguments | None = None,
        nowait: bool = False,
    ) -> DeclareOk:
        """Like :meth:`pyqstore.Channel.queue_declare`."""
        answer: DeclareOk = await self._threaded(
            partial(
                self._twin._declare_queue,
                queue,
                passive,
                durable,
                exclusive,
                auto_delete,
                arguments,
                nowait,
            )
        )
        warn_of_unknown(answer.queue, arguments, stacklevel=2)
        return answer

    queue_bind: Final = awaited(SynchronousChannel.queue_bind)
    queue_unbind: Final = awaited(SynchronousChannel.queue_unbind)
    queue_purge: Final = awaited(SynchronousChannel.queue_purge)
    queue_delete: Final = awaited(SynchronousChannel.queue_delete)
