"""Runs programs of RabbitMQ's clients on a store instead of a broker (docs/COMPAT.md).

- :mod:`pyqstore.compat.pika` is pika's API: ``import pyqstore.compat.pika as pika``.
- :mod:`pyqstore.compat.kombu` is a transport of kombu, and so of Celery: ``pyqstore:///PATH``.

Both open the store that they are given and share it within the process.  Other processes that open
the same store connect to this one.
"""

from .sharing import Address, Attachment, attach, default_path, share

__all__ = ["Address", "Attachment", "attach", "default_path", "share"]
