"""Channels: the verbs of AMQP 0-9-1.

``_core.Channel`` has the verbs that are one call into the engine; here are those that encode
arguments, run listeners or wait.
"""

from __future__ import annotations

from ..transaction import Transaction
from .arguments import Arguments, warn_of_unknown
from .declaring import Declaring
from .handle import ConfirmCallback, MessageCallback, ReturnCallback
from .publishing import Publishing
from .receiving import Receiving

__all__ = [
    "Arguments",
    "Channel",
    "ConfirmCallback",
    "MessageCallback",
    "ReturnCallback",
    "warn_of_unknown",
]


class Channel(Declaring, Publishing, Receiving):
    """A conversation with a store, from ``Store.channel()`` or ``Connection.channel()``.  One
    thread at a time may use it; open one for each thread.

    An AMQP error (a :class:`~pyqstore.ChannelError`) closes the channel on which it happened, as a
    broker would.  Every verb can raise it, and ChannelClosed after that, StoreClosed, StoreFailed,
    ForkedStore, RuntimeError when another thread is inside a call on this channel, and TypeError or
    ValueError for wrong arguments.

    Names of queues, exchanges and consumers are str of at most 255 bytes of UTF-8, without NUL, and
    so are routing keys, which may contain NUL.  Counts are numbers of messages; timeouts are
    seconds or timedeltas, and None waits for ever.
    """

    def transaction(self, key: str | None = None) -> Transaction:
        """A transaction for a ``with`` block: its publishes and acknowledgements are committed
        together, durably, at the end of the block, or not at all if the block raises::

            with channel.transaction(key="b-17") as tx:
                tx.publish_batch(result, "", "out")
                tx.ack(message)

        It includes everything that the channel publishes and settles until then, in confirm mode
        too, where such a publish has no number.  ``key``: as of ``tx_commit``; ``tx.committed`` is
        False after the block if a transaction with that key had been committed before.
        """
        return Transaction(self, key)
