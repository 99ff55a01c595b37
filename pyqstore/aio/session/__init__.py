"""Sessions for asyncio: the names of :mod:`pyqstore.session`, with ``await``.

::

    async with aio.session.connect(store) as connection, await connection.session() as s:
        await (await s.producer(s.queue("orders"))).send(b"hello")
        consumer = await s.consumer(s.queue("orders"))
        message = await consumer.receive(timeout=5)

Listeners are functions or coroutine functions; they are called in the loop, in a task of the
session.
"""

from .connection import Connecting, Connection, connect
from .consumer import Consumer, Listener
from .message import Message
from .producer import Producer
from .session import Session

__all__ = [
    "Connecting",
    "Connection",
    "Consumer",
    "Listener",
    "Message",
    "Producer",
    "Session",
    "connect",
]
