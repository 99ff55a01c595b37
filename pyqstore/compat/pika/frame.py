"""The answers of pika's calls: a method of AMQP with its channel's number."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from .spec import Shown

__all__ = ["Method"]

M = TypeVar("M")


class Method(Shown, Generic[M]):
    """``method`` has the fields of the answer, as ``queue_declare(...).method.queue``."""

    NAME: ClassVar[str] = "METHOD"

    def __init__(self, channel_number: int, method: M) -> None:
        self.channel_number: int = channel_number
        self.method: M = method
