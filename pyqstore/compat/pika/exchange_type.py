"""The types of exchanges by name."""

from enum import Enum

__all__ = ["ExchangeType"]


class ExchangeType(str, Enum):  # noqa: UP042 - str() of one is as in pika
    """Each is a str as well."""

    direct = "direct"
    fanout = "fanout"
    headers = "headers"
    topic = "topic"
