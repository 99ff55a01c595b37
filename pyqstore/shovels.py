"""``pyqstore.shovel``: messages moved between stores and brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .callbacks import check_callable
from .places import Start, text_of
from .queue import Queue
from .shovelling.report import Shovelled
from .stream import Stream
from .waiting import Seconds, check_timeout

__all__ = ["Shovelled", "shovel"]

_TRIES_MAX = 1000


def shovel(
    source: str | Queue | Stream,
    target: str | Queue | Stream,
    *,
    name: str | None = None,
    start: Start = "first",
    idle: Seconds | None = None,
    tries: int = 5,
    dead: str | None = None,
    stop: threading.Event | None = None,
    progress: Callable[[Shovelled], object] | None = None,
) -> Shovelled:
    """Move messages from ``source`` to ``target``, one of which is a queue or a stream of a store.

    - ``source``, ``target``: ``DIRECTORY#QUEUE`` of a store; ``grpc://HOST:PORT#QUEUE`` of one that
      a server has open, also ``grpc+tls://``; ``amqp://`` or ``amqps://`` of a broker,
      ``...?queue=NAME``, as a target also ``...?exchange=NAME`` with ``&key=KEY``, without which
      messages keep their routing keys; ``kafka://HOST:PORT,HOST:PORT/TOPIC?OPTION=VALUE``; or a
      Queue or Stream of an open store.
    - ``name``: under which it is remembered how far the shovel is; None: a name that follows from
      source and target.
    - ``start``: of a stream or a topic that is the source, where to begin the first time, as of
      ``Stream.read``.
    - ``idle``: end when nothing came for so long (seconds or a timedelta); None: go on.
    - ``tries``: how often a message is tried that the target refuses; behind that it goes to the
      queue ``dead``, of the target's store, or else the source's, which is declared.  Without one
      the shovel ends with ShovelError.
    - ``stop``: an event to set, of any thread, which ends it in order within about 10 s.
    - ``progress``: called now and then, in the calling thread, with what is done.

    It returns what was done.  Into a store each message comes once, and from a stream into Kafka;
    else at least once; docs/SHOVEL.md has the limits.  Connections that are lost are made again,
    for as long as it takes.  A store that another process has open is worked on by that process;
    when that ends, by the next one, or, if none came for 10 s, by this one.

    Raises ShovelError, NotFound (no such queue or topic), StoreLocked, OffsetOutOfRange (a stream
    or a topic dropped what was not moved), ValueError for an address that is none, what
    ``progress`` raises, and what stores raise.  Nothing is lost then.  Any thread may call it.
    """
    if not 1 <= tries <= _TRIES_MAX:
        raise ValueError(f"tries must be 1 to {_TRIES_MAX}, not {tries}")
    check_callable(progress=progress)
    seconds = None if idle is None else check_timeout(idle, "idle")
    arguments: dict[str, Any] = {
        "from": _address(source),
        "to": _address(target),
        "name": name,
        "start": text_of(start),
        "idle": seconds,
        "tries": tries,
        "dead": dead,
    }
    # What it needs is of no use without a call.
    from .control.shovel_calls import called

    return called(arguments, stop, progress)


def _address(end: str | Queue | Stream) -> str:
    if isinstance(end, str):
        return end
    if end._store.directory == ":memory:":
        raise ValueError(f"{end.name!r} is of a store in memory: a shovel needs one in a directory")
    return f"{end._store.directory}#{end.name}"
