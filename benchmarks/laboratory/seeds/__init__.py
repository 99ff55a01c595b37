"""What the documents say that this was built from, each claim with a table and a picture.

Transactions and confirms, the wait for a sync, embedding, segments, lazy queues, persistence,
requeueing, prefetch over a slow network, fair dispatch, acknowledgements, push and pull, fan-out,
consumers that die; RabbitMQ beside us where it is installed and can show the same.
"""

from .work import OPTIONS, PLOTS, QUICK_ROUNDS, ROUNDS, TITLE, begun

__all__ = ["OPTIONS", "PLOTS", "QUICK_ROUNDS", "ROUNDS", "TITLE", "begun"]
