"""What clients are told about rows that wait for a commit."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Staged", "StagedCommit", "TransactionState"]


class Staged(NamedTuple):
    """One attempt's rows, durable at the server, as a commit names them: ``Client.stage``."""

    partition: int
    attempt: str
    rows: int
    bytes: int
    crc32: int
    route: int | None = None
    """Of the rows of a file that the commit adopts as it is: what ``stage`` was told of their
    exchange, routing key and properties, as one number."""


class StagedCommit(NamedTuple):
    """What ``Client.commit_staged`` did."""

    committed: bool
    """False: the key had been committed before, and nothing was published now."""
    rows: int
    """Messages published."""
    unroutable: int
    """Those of them that no queue took, which are gone."""


class TransactionState(NamedTuple):
    """What a server has under a transaction's key: ``Client.transaction_state``."""

    committed: bool
    """The key is known, and nothing is left to do."""
    run: str | None
    """What is prepared was prepared by this run; None: nothing is prepared."""
    shards: int
    """Over so many servers; 0: nothing is prepared."""
