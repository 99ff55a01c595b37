"""Sessions with acknowledgement modes, as JMS has them, over the channels of a store.

::

    with session.connect("qstore:///var/lib/orders.qs", client_id="billing") as connection:
        s = connection.session("individual")
        s.producer(s.queue("orders")).send(b"hello", properties={"side": "buy"})
        consumer = s.consumer(s.queue("orders"), prefetch=100)
        message = consumer.receive(timeout=5)
        message.acknowledge()

docs/SESSIONS.md is the guide, docs/SEMANTICS.md lists the differences from ActiveMQ.
"""

from .buffer import PushBuffer
from .connection import Connection, connect
from .consumer import Consumer, Listener
from .destinations import Destination, Groups, Queue, Topic
from .errors import IllegalState, TransactionRolledBack
from .message import Message
from .modes import Mode
from .options import Options
from .producer import Producer
from .redelivery import RedeliveryPolicy
from .session import Session

__all__ = [
    "Connection",
    "Consumer",
    "Destination",
    "Groups",
    "IllegalState",
    "Listener",
    "Message",
    "Mode",
    "Options",
    "Producer",
    "PushBuffer",
    "Queue",
    "RedeliveryPolicy",
    "Session",
    "Topic",
    "TransactionRolledBack",
    "connect",
]
