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
    """A conversation with a store, from ``Store.channel()`` or ``Connection.channel()``.  It
    belongs to the event loop it was made in.

    Verbs, errors and arguments are those of :class:`pyqstore.Channel`; what differs stands here.
    RuntimeError in another loop; ChannelClosed for whoever waits when the channel is closed.  Tasks
    may share a channel: their calls are made one after another, in the order in which they began.

    What need not wait runs in the loop: publishing a message that goes to the journal,
    ``basic_get`` and deliveries of messages in memory, acknowledgements.  Such a call waits for the
    store's lock at most, which is never held during input or output.  Where it would have to wait
    for the disk or for room it runs in a thread of the store, as declarations, batches,
    ``tx_commit`` and ``close`` always do.

    Cancelling ``basic_publish`` leaves the message published or not; cancelling what receives loses
    no message: what was taken and not handed out goes back to its place, redelivered.  Therefore
    ``auto_ack`` acknowledges here when a message is handed out, not when it is taken.
    """

    def transaction(self, key: str | None = None) -> Transaction:
        """As :meth:`pyqstore.Channel.transaction`: ``async with channel.transaction() as tx``."""
        return Transaction(self, key)
