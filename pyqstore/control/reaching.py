"""A tool's side: the owner of a store runs the operation, or this process if there is no owner."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from ..errors import StoreClosed, StoreLocked
from ..store import open  # noqa: A004 - the one shadowing that is meant
from .failing import error_of
from .operations import OPERATIONS, Operation
from .talk import Asked, LocalTalk, Told
from .wire import Gone, Report, Wire, is_same_user, names_of

__all__ = ["is_listened_to", "payloads_of_owner", "reach", "reach_owner"]

_FREE_S = 3.0  # the wait for a store that is being opened or closed
_DRAIN_S = 2.0  # less than that
_LOOK_S = 0.02
_BEGIN_S = 15.0  # time for a listening owner to begin


def reach(
    directory: str | os.PathLike[str],
    name: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    told: Told = lambda _report, _payload: None,
    asked: Asked | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Report:
    """Runs the operation ``name`` on the store in ``directory``, and returns its report.

    The process that has the store open runs it.  If there is none, this process opens the store for
    the operation, and closes it afterwards; it waits for a store that is being opened or closed.
    ``told(report, payload)`` is called for each report during the operation, ``asked(report)`` for
    each question, ``progress`` as by ``open``.

    Raises StoreLocked: the owner has no socket (``control=False``, another version, another user);
    and the operation's errors.
    """
    operation = OPERATIONS[name]
    given = dict(arguments or {})
    until = time.monotonic() + _FREE_S
    while True:
        done = reach_owner(directory, name, given, told=told, asked=asked)
        if done is not None:
            return done
        try:
            return _opened(directory, operation, given, told, asked or _nothing, progress)
        except StoreLocked as error:
            if time.monotonic() >= until:
                raise _explained(error) from None
        time.sleep(_LOOK_S)


def reach_owner(
    directory: str | os.PathLike[str],
    name: str,
    arguments: Mapping[str, Any],
    *,
    told: Told = lambda _report, _payload: None,
    asked: Asked | None = None,
) -> Report | None:
    """Like ``reach``, if a listening process has the store open; None: there is none, or it is
    being closed."""
    for wire in _connected(directory):
        with suppress(_NotBegunError):
            return _called(wire, name, dict(arguments), told, asked or _nothing)
    return None


def payloads_of_owner(
    directory: str | os.PathLike[str], name: str, arguments: Mapping[str, Any]
) -> Iterator[bytes] | None:
    """Iterates the payloads of an operation; the owner waits between them.  None: no listening
    process has the store open.  Raises the operation's errors."""
    wires = _connected(directory)
    for wire in wires:
        with suppress(_NotBegunError):
            return _payloads(wires, wire, _begun(wire, name, dict(arguments)))
    return None


def is_listened_to(directory: str | os.PathLike[str]) -> bool:
    """Whether a listening process has the store open, even if it accepts no more calls."""
    return next(_connected(directory), None) is not None


def _payloads(wires: Iterator[Wire], wire: Wire, began: object) -> Iterator[bytes]:
    """``wires`` has the connection, and closes it at its end."""
    while True:
        report, payload = _next(wire, began)
        if "tell" not in report:
            del wires
            return
        yield payload


class _NotBegunError(Exception):
    """The listening process does not begin: it is closing, or stopped."""


def _nothing(_report: Report) -> NoReturn:
    raise ValueError("nothing is asked of this tool")


def _connected(directory: str | os.PathLike[str]) -> Iterator[Wire]:
    """Each address at which this user listens; at most one of them is the owner."""
    try:
        names = names_of(directory)
    except OSError:
        return
    for name in names:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
            try:
                end.settimeout(_BEGIN_S)
                end.connect(name)
                is_ours = is_same_user(end)
            except OSError:
                is_ours = False
            if is_ours:
                yield Wire(end)


def _called(wire: Wire, name: str, arguments: dict[str, Any], told: Told, asked: Asked) -> Report:
    began = _begun(wire, name, arguments)
    while True:
        report, payload = _next(wire, began)
        if "tell" in report:
            told(report["tell"], payload)
        elif "ask" in report:
            answer = asked(report["ask"])
            with _ended_by(began):
                wire.send(*answer)
        else:
            result: Report = report["end"]
            return result


def _begun(wire: Wire, name: str, arguments: dict[str, Any]) -> object:
    """Returns the process that runs the operation."""
    try:
        wire.send({"call": name, "arguments": arguments})
        began, _ = wire.receive()
    except Gone as error:
        raise _NotBegunError from error
    wire.be_patient()
    return began.get("began")


def _next(wire: Wire, began: object) -> tuple[Report, bytes]:
    """The owner's next report; raises the operation's errors."""
    with _ended_by(began):
        report, payload = wire.receive()
    if "error" in report:
        raise error_of(report["error"])
    return report, payload


@contextmanager
def _ended_by(began: object) -> Iterator[None]:
    try:
        yield
    except Gone:
        raise StoreClosed(
            f"process {began}, which had the store open, has closed it or ended:"
            " what was not reported as done may be done or not"
        ) from None


def _opened(
    directory: str | os.PathLike[str],
    operation: Operation,
    arguments: dict[str, Any],
    told: Told,
    asked: Asked,
    progress: Callable[[int, int], object] | None,
) -> Report:
    talk = LocalTalk(told, asked)
    if operation.closed is not None:
        return operation.closed(directory, arguments, talk)
    options = {"create": operation.creates} if operation.changes else {"read_only": True}
    with open(directory, progress=progress, **options) as store:  # type: ignore[arg-type]
        try:
            return operation.run(store, arguments, talk)
        finally:
            store._end_calls(_DRAIN_S)  # calls of tools that connected meanwhile


def _explained(error: StoreLocked) -> StoreLocked:
    told = StoreLocked(
        f"{error}; it does not listen for tools (opened with control=False or read_only, by"
        " another version, or where no socket can be made): close it there first"
    )
    told.status, told.pid = error.status, error.pid
    return told
