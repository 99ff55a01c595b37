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

        ``passive`` only asks (NotFound).  A ``durable`` one survives a restart and is durable when
        this returns, ``auto_delete`` goes with the last binding that leads from it, ``internal``
        takes no publishes, only what other exchanges pass on.  ``arguments``: what no binding of
        this exchange matches goes to the one named by "alternate-exchange", if that is there.
        ``nowait``: as of ``queue_declare``.

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
        """Make a queue unless there is one like it; "" has the store make up a name.

        ``passive`` only asks (NotFound).  A ``durable`` one survives a restart, with its persistent
        messages, and is durable when this returns, ``exclusive`` belongs to this connection and
        goes with it (with the channel, if that is a connection of its own), ``auto_delete`` goes
        with its last consumer.  ``arguments`` are those of RabbitMQ's classic queues; with
        "x-persistent" all messages are persistent, whatever their delivery mode says.

        With ``nowait`` it is not durable yet when this returns: calls that come together share a
        sync.  It is when ``Store.sync`` returns, when a later call that makes something durable
        does, and when a persistent message that was published behind it is confirmed.

        PreconditionFailed when it exists and differs, for an argument with a value that it cannot
        have, and for arguments that ask for copies on other machines: an "x-queue-type" other than
        "classic", "x-ha-policy", "x-quorum-..." and the like; ResourceLocked for another
        connection's exclusive queue, and for ``exclusive`` other than before.

        Warns of :class:`~pyqstore.UnknownArgument`: an argument that begins with "x-" and means
        nothing.
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
        """Lead messages of ``exchange`` with ``routing_key`` to ``queue``.  Binding twice is
        binding once.  ``nowait``: as of ``queue_declare``.

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
        """Take back ``queue_bind`` with the same arguments; nothing happens if there was none.
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
        """Lead messages of the exchange ``source`` with ``routing_key`` to the exchange
        ``destination``, which passes them on by its own bindings.

        A queue gets a message once, whatever the ways to it; circles end.  Arguments and errors
        are those of ``queue_bind``.
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
        """Take back ``exchange_bind`` with the same arguments; nothing happens if there was none.
        ``nowait``: as of ``queue_declare``."""
        flags = _core.TO_EXCHANGE | _core.UNBIND | (_core.NO_SYNC if flag("nowait", nowait) else 0)
        self._change_binding(destination, source, routing_key, flags, encoded(arguments))
