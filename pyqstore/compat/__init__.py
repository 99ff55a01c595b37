"""Programs for RabbitMQ's clients, on a store instead of a broker (docs/COMPAT.md).

- :mod:`pyqstore.compat.pika` has pika's names: ``import pyqstore.compat.pika as pika``.
- :mod:`pyqstore.compat.kombu` is a transport of kombu, and so of Celery: ``pyqstore:///PATH``.

Both open the store that they are pointed to, share it within the process, and let other processes
in that come for the same store.
"""

from .sharing import Address, Attachment, attach, default_path, share

__all__ = ["Address", "Attachment", "attach", "default_path", "share"]
