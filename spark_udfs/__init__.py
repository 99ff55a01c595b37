"""Spark and Arrow in front of a pyqstore store.

Two ways in, for two places:

- ``df.write.format("pyqstore").option("path", DIR).mode("append").save()``: every executor works,
  the rows of the whole job become visible in one transaction (``spark_udfs.source``);
- ``publish(df, channel)``: a frame is streamed through a channel that this process has open
  (``spark_udfs.publisher``).

And out again: ``spark.read.format("pyqstore")`` and ``spark.readStream``; ``end_drain`` after a job
that drained a queue; ``release_claims`` gives back what queries claimed; ``is_committed`` asks
whether a job need be repeated.  ``to_frame(spark,
batch)`` makes a Spark frame of messages that were received.

``crc32c``, ``shard``, ``route_matches``, ``headers_match`` and ``embeds`` are columns.

``python -m spark_udfs demo`` is a pipeline of these, on the flights out of New York in 2013.

Nothing is imported until it is asked for: executors need neither the engine nor a session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ending import end_drain, release_claims
    from .frames import to_frame
    from .functions import crc32c, embeds, headers_match, route_matches, shard
    from .known import is_committed
    from .publisher import PublishResult, publish
    from .session import local_session
    from .source import QStoreDataSource

__all__ = [
    "PublishResult",
    "QStoreDataSource",
    "crc32c",
    "embeds",
    "end_drain",
    "headers_match",
    "is_committed",
    "local_session",
    "publish",
    "release_claims",
    "route_matches",
    "shard",
    "to_frame",
]

# No module here is named like one of its functions: importing it would put the module in the
# function's place.
_HOMES = {
    "PublishResult": "publisher",
    "QStoreDataSource": "source",
    "crc32c": "functions",
    "embeds": "functions",
    "end_drain": "ending",
    "headers_match": "functions",
    "is_committed": "known",
    "local_session": "session",
    "publish": "publisher",
    "release_claims": "ending",
    "route_matches": "functions",
    "shard": "functions",
    "to_frame": "frames",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
