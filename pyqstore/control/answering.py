"""Answering one call of a tool, in the owner."""

from __future__ import annotations

import logging
import os
import socket

from ..store import Store
from .failing import report_of
from .operations import OPERATIONS
from .talk import RemoteTalk
from .wire import Gone, Report, Wire

__all__ = ["answer"]

_log = logging.getLogger("pyqstore")


def answer(store: Store, end: socket.socket, request: Report) -> None:
    """Runs the operation of ``request``.  Gone: the tool has ended."""
    wire = Wire(end)
    name, arguments = request.get("call"), request.get("arguments")
    operation = OPERATIONS.get(str(name))
    wire.send({"began": os.getpid()})
    try:
        if operation is None or not isinstance(arguments, dict):
            raise ValueError(
                f"the store is open in process {os.getpid()}, whose version of pyqstore does not"
                f" know {name!r}"
            )
        result = operation.run(store, arguments, RemoteTalk(wire))
    except Gone:
        raise
    except Exception as error:
        if not store.closed:
            _log.debug("%s: %s for a tool: %s", store.path, name, error)
        wire.send({"error": report_of(error)})
    else:
        wire.send({"end": result})
