"""The operations for tools, by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from ..store import Store
from . import asking, changing, defining, looking
from .archiving import archive
from .shovelling import shovel
from .talk import Talk
from .verifying import verify_closed, verify_open
from .wire import Report

__all__ = ["OPERATIONS", "Operation"]


@dataclass(frozen=True)
class Operation:
    """An operation."""

    run: Callable[[Store, Report, Talk], Report]
    """Runs the operation in the process that has the store open."""
    changes: bool = False
    """Whether a tool that opens the store itself opens it for writing."""
    creates: bool = False
    """Whether that tool creates a missing store."""
    closed: Callable[[str | os.PathLike[str], Report, Talk], Report] | None = None
    """Runs instead of ``run`` if no process has the store open."""


OPERATIONS = {
    "inspect": Operation(looking.inspect),
    "stats": Operation(looking.stats),
    "queues": Operation(looking.queues),
    "overview": Operation(looking.overview),
    "dump": Operation(looking.dump),
    "ask": Operation(asking.ask, changes=True),
    "rows": Operation(asking.rows),
    "definitions": Operation(defining.definitions),
    "verify": Operation(verify_open, closed=verify_closed),
    "declare": Operation(changing.declare, changes=True, creates=True),
    "delete": Operation(changing.delete, changes=True),
    "bind": Operation(changing.bind, changes=True),
    "purge": Operation(changing.purge, changes=True),
    "publish": Operation(changing.publish, changes=True),
    "consume": Operation(changing.consume, changes=True),
    "move": Operation(changing.move, changes=True),
    "define": Operation(defining.define, changes=True, creates=True),
    "checkpoint": Operation(changing.checkpoint, changes=True),
    "shovel": Operation(shovel, changes=True),
    "archive": Operation(archive, changes=True),
    "snapshot": Operation(changing.snapshot, changes=True),
}
