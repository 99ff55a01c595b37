"""pika's API over a store: ``import pyqstore.compat.pika as pika``.

A program of ``pika.BlockingConnection`` runs on a store in a directory, without a broker
(docs/COMPAT.md).  Where pika reports an error with the broker's next answer, here the call that
caused the error raises it.
"""

from . import (
    adapters,
    channel,
    connection,
    credentials,
    delivery_mode,
    exceptions,
    exchange_type,
    frame,
    spec,
)
from .adapters import BlockingConnection
from .connection import ConnectionParameters, SSLOptions, URLParameters
from .credentials import PlainCredentials
from .delivery_mode import DeliveryMode
from .spec import BasicProperties

__all__ = [
    "BasicProperties",
    "BlockingConnection",
    "ConnectionParameters",
    "DeliveryMode",
    "PlainCredentials",
    "SSLOptions",
    "URLParameters",
    "adapters",
    "channel",
    "connection",
    "credentials",
    "delivery_mode",
    "exceptions",
    "exchange_type",
    "frame",
    "spec",
]
