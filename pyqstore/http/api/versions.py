"""Which RabbitMQ's ways these are."""

from __future__ import annotations

__all__ = ["EXCHANGE_TYPES", "RABBITMQ"]

RABBITMQ = "3.10.8"
EXCHANGE_TYPES = ("direct", "fanout", "headers", "topic")
