"""The delivery modes by name."""

from enum import Enum

__all__ = ["DeliveryMode"]


class DeliveryMode(Enum):
    """``Persistent`` messages of durable queues survive a restart."""

    Transient = 1
    Persistent = 2
