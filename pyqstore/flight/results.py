"""Answers to clients about rows that wait for a commit."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Staged", "StagedCommit", "TransactionState"]


class Staged(NamedTuple):
    """One attempt's rows, durable at the server, for a commit to name: from ``Client.stage``."""

    partition: int
    attempt: str
    rows: int
    bytes: int
    crc32: int
    route: int | None = None
    """Of the rows of a file that the commit adopts as it is: what ``stage`` was told of their
    exchange, routing key and properties, as one number."""


class StagedCommit(NamedTuple):
    """The result of ``Client.commit_staged``."""

    committed: bool
    """False: the key had been committed before, and nothing was published now."""
    rows: int
    """Messages published."""
    unroutable: int
    """The number of them that no queue took, which are lost."""


class TransactionState(NamedTuple):
    """The state of a transaction's key at a server: from ``Client.transaction_state``."""

    committed: bool
    """The key is known, and nothing is left to do."""
    run: str | None
    """The run that prepared it; None: nothing is prepared."""
    shards: int
    """The number of servers; 0: nothing is prepared."""
