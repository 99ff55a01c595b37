"""The version of RabbitMQ whose API this is."""

from __future__ import annotations

__all__ = ["EXCHANGE_TYPES", "RABBITMQ"]

RABBITMQ = "3.10.8"
EXCHANGE_TYPES = ("direct", "fanout", "headers", "topic")
