"""A durable message queue engine in one directory.

``open`` a store, publish with confirms, consume with acknowledgements::

    with pyqstore.open("orders.qs") as store, store.channel() as channel:
        channel.queue_declare("orders", durable=True)
        channel.confirm_select()
        channel.basic_publish("", "orders", b"hello", pyqstore.Properties(delivery_mode=2))
        channel.wait_for_confirms(timeout=5)          # durable now
        message = channel.basic_get("orders")
        channel.basic_ack(message.delivery_tag)

The logger ``pyqstore`` tells of what no call does: DEBUG each checkpoint; INFO that a store was
opened, recovered, closed, and that a full disk has space again; WARNING what a recovery lost, a
commit that has waited for the disk for 30 s, a clock that was set, a full disk, a checkpoint that
cannot be made; ERROR that a store has failed.  Nothing for each message.
"""

import logging as _logging

# ruff: noqa: E402 - the compiled modules must be found before what imports them
from ._compiled import extend as _extend

_extend(__path__)

from . import json
from .channel import Channel
from .connection import Connection
from .errors import (
    AccessRefused,
    ChannelClosed,
    ChannelError,
    ClockJump,
    ConnectionLost,
    Empty,
    Error,
    ForkedStore,
    MessageReturned,
    NotAllowed,
    NotFound,
    NotImplementedByBroker,
    OffsetOutOfRange,
    PreconditionFailed,
    PublishRefused,
    ResourceLocked,
    ShovelError,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreLocked,
    StoreNotFound,
    StoreReadOnly,
    UnknownArgument,
    Unroutable,
    UnsafeFilesystem,
)
from .fields import FieldTable, FieldValue
from .figures import DetailedStats, Latency, QueueStatus, Stats, StreamStatus
from .flight import connect
from .inbox import adopt_into
from .iteration import Messages
from .listening import Listener
from .listings import Unconfirmed
from .message import DeclareOk, Message, Receipt, ReturnedMessage
from .message_trace import Trace, TraceEvent
from .outcomes import Outcome
from .properties import Properties
from .queue import Codec, Queue
from .shovels import Shovelled, shovel
from .staged import Adoption, StagedFile, StagedWriter, check_staged, read_staged
from .store import (
    Binding,
    Damage,
    ExchangeInfo,
    RecoveryReport,
    Store,
    StoreOptions,
    Verification,
    open,  # noqa: A004 - the one shadowing that is meant
    verify,
)
from .stream import Committed, Stream
from .stream_consumer import StreamConsumer
from .threadsafe import Settler
from .transaction import Transaction

_logging.getLogger("pyqstore").addHandler(_logging.NullHandler())


def __getattr__(name: str) -> str:
    """``__version__``, which is read when somebody asks."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("pyqstore")


__all__ = [
    "AccessRefused",
    "Adoption",
    "Binding",
    "Channel",
    "ChannelClosed",
    "ChannelError",
    "ClockJump",
    "Codec",
    "Committed",
    "Connection",
    "ConnectionLost",
    "Damage",
    "DeclareOk",
    "DetailedStats",
    "Empty",
    "Error",
    "ExchangeInfo",
    "FieldTable",
    "FieldValue",
    "ForkedStore",
    "Latency",
    "Listener",
    "Message",
    "MessageReturned",
    "Messages",
    "NotAllowed",
    "NotFound",
    "NotImplementedByBroker",
    "OffsetOutOfRange",
    "Outcome",
    "PreconditionFailed",
    "Properties",
    "PublishRefused",
    "Queue",
    "QueueStatus",
    "Receipt",
    "RecoveryReport",
    "ResourceLocked",
    "ReturnedMessage",
    "Settler",
    "ShovelError",
    "Shovelled",
    "StagedFile",
    "StagedWriter",
    "Stats",
    "Store",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreFailed",
    "StoreFull",
    "StoreLocked",
    "StoreNotFound",
    "StoreOptions",
    "StoreReadOnly",
    "Stream",
    "StreamConsumer",
    "StreamStatus",
    "Trace",
    "TraceEvent",
    "Transaction",
    "Unconfirmed",
    "UnknownArgument",
    "Unroutable",
    "UnsafeFilesystem",
    "Verification",
    "adopt_into",
    "check_staged",
    "connect",
    "json",
    "open",
    "read_staged",
    "shovel",
    "verify",
]
