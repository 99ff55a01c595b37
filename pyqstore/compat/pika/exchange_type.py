"""The exchange types by name."""

from enum import Enum

__all__ = ["ExchangeType"]


class ExchangeType(str, Enum):  # noqa: UP042 - str() of one is as in pika
    """The members are strings as well."""

    direct = "direct"
    fanout = "fanout"
    headers = "headers"
    topic = "topic"
