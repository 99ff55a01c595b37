"""Requests of readers, such as Spark's tasks: verbs of ``flight``, and rows.

pyarrow is imported at the first request.
"""

from __future__ import annotations

from ..store import Store
from .talk import Talk
from .wire import Report

__all__ = ["ask", "rows"]


def ask(store: Store, arguments: Report, _talk: Talk) -> Report:
    """Returns the answer to a verb.  ValueError: there is none of that name."""
    from ..flight.asking import Asking

    verbs = Asking(store).verbs
    do = arguments["do"]
    if do not in verbs:
        raise ValueError(f"no such verb: {do!r}; there are {', '.join(verbs)}")
    return {"answer": verbs[do](**arguments["arguments"])}


def rows(store: Store, arguments: Report, talk: Talk) -> Report:
    """Sends the rows of a ticket: the schema, and then each batch as a stream of its own."""
    from ..flight.rows import READS, packed
    from ..flight.wire import unpack

    do, given = unpack(arguments["ticket"])
    if do not in READS:
        raise ValueError(f"no such ticket: {do!r}; there are {', '.join(READS)}")

    def is_gone() -> bool:
        talk.check()  # raises
        return False

    schema, batches = READS[do](store, is_gone, **given)
    talk.tell({}, schema.serialize().to_pybytes())
    for batch in batches:
        talk.tell({}, packed(batch))
    return {}
