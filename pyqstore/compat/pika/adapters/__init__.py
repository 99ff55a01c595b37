"""The one way of connecting that there is here: pika's blocking one."""

from . import remote
from .blocking_connection import BlockingConnection

__all__ = ["BlockingConnection", "remote"]
