"""The verbs that declare: exchanges, queues and bindings: awaited."""

from __future__ import annotations

from functools import partial

from ...channel import Arguments, warn_of_unknown
from ...channel import Channel as SynchronousChannel
from ...message import DeclareOk
from ..twin import awaited
from .handle import Handle

__all__ = ["Declaring"]


class Declaring(Handle):
    """Exchanges, queues and bindings: each call in a thread."""

    @awaited(SynchronousChannel.exchange_declare)
    def exchange_declare(self) -> None: ...

    @awaited(SynchronousChannel.exchange_delete)
    def exchange_delete(self) -> None: ...

    @awaited(SynchronousChannel.exchange_bind)
    def exchange_bind(self) -> None: ...

    @awaited(SynchronousChannel.exchange_unbind)
    def exchange_unbind(self) -> None: ...

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

    @awaited(SynchronousChannel.queue_bind)
    def queue_bind(self) -> None: ...

    @awaited(SynchronousChannel.queue_unbind)
    def queue_unbind(self) -> None: ...

    @awaited(SynchronousChannel.queue_purge)
    def queue_purge(self) -> None: ...

    @awaited(SynchronousChannel.queue_delete)
    def queue_delete(self) -> None: ...
