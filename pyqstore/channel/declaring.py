"""The verbs that declare and bind: those with a table to encode."""

from __future__ import annotations

from .. import _core
from ..message import DeclareOk
from .arguments import Arguments, encoded, flag, warn_of_unknown
from .handle import Handle

__all__ = ["Declaring"]


class Declaring(Handle):
    """Exchanges, queues and bindings."""

    def exchange_declare(
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
        """Make an exchange of ``exchange_type`` ("direct", "fanout", "headers", "topic",
        "x-consistent-hash", "x-modulus-hash", "x-jms-topic"), unless there is one like it.

        ``passive`` only checks (NotFound).  A ``durable`` exchange survives a restart and is
        durable when this returns.  An ``auto_delete`` exchange is deleted with the last binding
        that leads from it.  An ``internal`` one takes no publishes, only messages from other
        exchanges.  ``arguments``: messages that no binding matches go to the exchange named by
        "alternate-exchange", if it exists.  ``nowait``: as of ``queue_declare``.

        PreconditionFailed when it exists and differs, or "alternate-exchange" is no str;
        AccessRefused for "" and names from "amq."; ChannelError (503) for another type.
        """
        flags = (
            (_core.PASSIVE if flag("passive", passive) else 0)
            | (_core.DURABLE if flag("durable", durable) else 0)
            | (_core.AUTO_DELETE if flag("auto_delete", auto_delete) else 0)
            | (_core.INTERNAL if flag("internal", internal) else 0)
            | (_core.NO_SYNC if flag("nowait", nowait) else 0)
        )
        self._exchange_declare(exchange, exchange_type, flags, encoded(arguments))

    def queue_declare(
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
        """Make a queue, unless there is one like it; for "" the store makes up a name.

        ``passive`` only checks (NotFound).  A ``durable`` queue survives a restart, with its
        persistent messages, and is durable when this returns.  An ``exclusive`` queue belongs to
        this connection and is deleted with it (with the channel, if that has its own connection).
        An ``auto_delete`` queue is deleted with its last consumer.  ``arguments`` are those of
        RabbitMQ's classic queues; with "x-persistent" all messages are persistent, whatever their
        delivery mode says.

        With ``nowait`` the queue is not durable yet when this returns, so that several calls share
        a sync.  It is durable when ``Store.sync`` returns, when a later durable call returns, or
        when a persistent message published afterwards is confirmed.

        PreconditionFailed if the queue exists and differs, if an argument has an invalid value, and
        for arguments that ask for copies on other machines: an "x-queue-type" other than "classic",
        "x-ha-policy", "x-quorum-..." and the like; ResourceLocked for another connection's
        exclusive queue, and for ``exclusive`` other than before.

        Warns of :class:`~pyqstore.UnknownArgument`: an argument that begins with "x-" and is not
        supported.
        """
        answer = self._declare_queue(
            queue, passive, durable, exclusive, auto_delete, arguments, nowait
        )
        warn_of_unknown(answer.queue, arguments, stacklevel=2)
        return answer

    def _declare_queue(
        self,
        queue: str,
        passive: bool,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Arguments | None,
        nowait: bool = False,
    ) -> DeclareOk:
        flags = (
            (_core.PASSIVE if flag("passive", passive) else 0)
            | (_core.DURABLE if flag("durable", durable) else 0)
            | (_core.EXCLUSIVE if flag("exclusive", exclusive) else 0)
            | (_core.AUTO_DELETE if flag("auto_delete", auto_delete) else 0)
            | (_core.NO_SYNC if flag("nowait", nowait) else 0)
        )
        return DeclareOk(*self._queue_declare(queue, flags, encoded(arguments)))

    def queue_bind(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        *,
        nowait: bool = False,
    ) -> None:
        """Route messages of ``exchange`` with ``routing_key`` to ``queue``.  Binding twice has no
        further effect.  ``nowait``: as of ``queue_declare``.

        A headers exchange compares the messages' headers with ``arguments`` instead: all of them,
        or with ``"x-match": "any"`` any of them; those whose names begin with "x-" only with
        "all-with-x" and "any-with-x".  None asks for a header of any value.  An "x-jms-topic"
        exchange takes a selector beside the key: ``{"x-jms-selector": "side = 'buy'"}``
        (docs/SEMANTICS.md).

        NotFound: no such queue or exchange; AccessRefused: the default exchange;
        PreconditionFailed: another "x-match", a text that is no selector.
        """
        flags = _core.NO_SYNC if flag("nowait", nowait) else 0
        self._change_binding(queue, exchange, routing_key, flags, encoded(arguments))

    def queue_unbind(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        *,
        nowait: bool = False,
    ) -> None:
        """Undo ``queue_bind`` with the same arguments; without such a binding nothing happens.
        ``nowait``: as of ``queue_declare``."""
        flags = _core.UNBIND | (_core.NO_SYNC if flag("nowait", nowait) else 0)
        self._change_binding(queue, exchange, routing_key, flags, encoded(arguments))

    def exchange_bind(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        *,
        nowait: bool = False,
    ) -> None:
        """Route messages of the exchange ``source`` with ``routing_key`` to the exchange
        ``destination``, which routes them by its own bindings.

        A queue gets a message once, on however many ways; cycles end.  Arguments and errors are
        those of ``queue_bind``.
        """
        flags = _core.TO_EXCHANGE | (_core.NO_SYNC if flag("nowait", nowait) else 0)
        self._change_binding(destination, source, routing_key, flags, encoded(arguments))

    def exchange_unbind(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        *,
        nowait: bool = False,
    ) -> None:
        """Undo ``exchange_bind`` with the same arguments; without such a binding nothing happens.
        ``nowait``: as of ``queue_declare``."""
        flags = _core.TO_EXCHANGE | _core.UNBIND | (_core.NO_SYNC if flag("nowait", nowait) else 0)
        self._change_binding(destination, source, routing_key, flags, encoded(arguments))
