"""Asynchronous channels: the verbs of AMQP 0-9-1, awaited."""

from __future__ import annotations

from ..receiving import Messages
from ..transaction import Transaction
from .declaring import Declaring
from .publishing import Publishing
from .receiving import Receiving
from .settling import Settling

__all__ = ["Channel", "Messages"]


class Channel(Declaring, Publishing, Receiving, Settling):
    """A conversation with a store, from ``Store.channel()`` or ``Connection.channel()``.  Only the
    event loop in which it was made may use it.

    Methods, errors and arguments are those of :class:`pyqstore.Channel`; the differences are
    described here.  In another loop calls raise RuntimeError; when the channel is closed, waiting
    tasks get ChannelClosed.  Tasks may share a channel: their calls are made one after another, in
    the order in which they began.

    Calls that need not wait run in the loop: publishing a message that goes to the journal,
    ``basic_get`` and deliveries of messages in memory, acknowledgements.  Such a call waits at most
    for the store's lock, which is never held during input or output.  A call that would wait for
    the disk or for room runs in a thread of the store.  Declarations, batches, ``tx_commit`` and
    ``close`` always run there.

    If ``basic_publish`` is cancelled, the message may or may not be published.  If a receiving call
    is cancelled, no message is lost: a message that was taken and not handed out returns to its
    place, redelivered.  Therefore ``auto_ack`` acknowledges here when a message is handed out, not
    when it is taken.
    """

    def transaction(self, key: str | None = None) -> Transaction:
        """Like :meth:`pyqstore.Channel.transaction`: ``async with channel.transaction() as tx``."""
        return Transaction(self, key)
