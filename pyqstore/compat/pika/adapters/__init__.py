"""pika's adapters: only the blocking connection."""

from . import remote
from .blocking_connection import BlockingConnection

__all__ = ["BlockingConnection", "remote"]
