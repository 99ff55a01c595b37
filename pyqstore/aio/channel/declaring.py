"""The verbs that declare: exchanges, queues and bindings: awaited."""

from __future__ import annotations

from functools import partial

from ...channel import Arguments, warn_of_unknown
from ...message import DeclareOk
from .handle import Handle

__all__ = ["Declaring"]


class Declaring(Handle):
    """Exchanges, queues and bindings: each call in a thread."""

    async def exchange_declare(
        self,
        exchange: str,
        exchange_type: str = "direct",
        *,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Arguments | None = None,
        nowait: bool = False,
    ) -> None:
        """Like :meth:`pyqstore.Channel.exchange_declare`."""
        await self._threaded(
            partial(
                self._engine.exchange_declare,
                exchange,
                exchange_type,
                passive=passive,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=arguments,
                nowait=nowait,
            )
        )

    async def exchange_delete(
        self, exchange: str, if_unused: bool = False, nowait: bool = False
    ) -> None:
        """Like :meth:`pyqstore.Channel.exchange_delete`."""
        await self._threaded(partial(self._engine.exchange_delete, exchange, if_unused, nowait))

    async def exchange_bind(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        *,
        nowait: bool = False,
    ) -> None:
        """Like :meth:`pyqstore.Channel.exchange_bind`."""
        verb = partial(self._engine.exchange_bind, nowait=nowait)
        await self._threaded(partial(verb, destination, source, routing_key, arguments))

    async def exchange_unbind(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        *,
        nowait: bool = False,
    ) -> None:
        """Like :meth:`pyqstore.Channel.exchange_unbind`."""
        verb = partial(self._engine.exchange_unbind, nowait=nowait)
        await self._threaded(partial(verb, destination, source, routing_key, arguments))

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
                self._engine._declare_queue,
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

    async def queue_bind(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        *,
        nowait: bool = False,
    ) -> None:
        """Like :meth:`pyqstore.Channel.queue_bind`."""
        verb = partial(self._engine.queue_bind, nowait=nowait)
        await self._threaded(partial(verb, queue, exchange, routing_key, arguments))

    async def queue_unbind(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        *,
        nowait: bool = False,
    ) -> None:
        """Like :meth:`pyqstore.Channel.queue_unbind`."""
        verb = partial(self._engine.queue_unbind, nowait=nowait)
        await self._threaded(partial(verb, queue, exchange, routing_key, arguments))

    async def queue_purge(self, queue: str) -> int:
        """Like :meth:`pyqstore.Channel.queue_purge`."""
        count: int = await self._threaded(partial(self._engine.queue_purge, queue))
        return count

    async def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, nowait: bool = False
    ) -> int:
        """Like :meth:`pyqstore.Channel.queue_delete`."""
        count: int = await self._threaded(
            partial(self._engine.queue_delete, queue, if_unused, if_empty, nowait)
        )
        return count
