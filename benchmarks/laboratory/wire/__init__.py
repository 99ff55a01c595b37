"""AMQP 0-9-1, `pyqstore serve` beside RabbitMQ: the same clients, frames and rounds.

One connection of a client in C: a message and its confirm, messages with 1,000 unconfirmed, and all
of them received; the same loop without a wire, in C in its own process.  PerfTest, RabbitMQ's own
load generator.  Connections opened, queues declared by 100 connections, 10,000 connections that do
nothing, heartbeats of a server that is busy.  Needs the C benchmarks, which the repository builds:
`cmake --preset release && cmake --build --preset release`.
"""

from .work import OPTIONS, PLOTS, TITLE, begun

__all__ = ["OPTIONS", "PLOTS", "TITLE", "begun"]
