"""The same store for asyncio: the same names, with ``await``.

::

    async with aio.open("orders.qs") as store, await store.channel() as channel:
        await channel.queue_declare("orders", durable=True)
        await channel.confirm_select()
        await channel.basic_publish("", "orders", b"hello", pyqstore.Properties(delivery_mode=2))
        async for message in channel.consume("orders"):      # the publish above is durable
            await message.ack()

Confirms and deliveries come through a descriptor that the loop watches; there is no thread for a
channel.  What may wait for the disk runs in four threads of the store.
"""

from .._core import Confirm
from . import session
from .channel import Channel, Messages
from .connection import Connection
from .message import Message, Receipt
from .message_trace import Trace
from .queue import Queue
from .store import Opening, Store, open  # noqa: A004 - the one shadowing that is meant
from .stream import Stream, StreamConsumer
from .transaction import Transaction

__all__ = [
    "Channel",
    "Confirm",
    "Connection",
    "Message",
    "Messages",
    "Opening",
    "Queue",
    "Receipt",
    "Store",
    "Stream",
    "StreamConsumer",
    "Trace",
    "Transaction",
    "open",
    "session",
]
