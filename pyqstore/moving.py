"""Moving messages from a queue to others, so that none is lost and none is there twice.

A message is taken, published and acknowledged in one transaction of the engine: after a crash at
any moment it is in one of the two queues.  Each destination is looked for in the transaction.  One
that is deleted between that look and the commit sends its messages back, and a second transaction
puts them at the end of the queue that they came from: a crash between the two, a moment after the
deletion, leaves them in neither.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .channel import Channel
from .errors import NotFound, PreconditionFailed
from .message import Message, ReturnedMessage
from .properties import Properties
from .store import Store

__all__ = ["Moved", "Progress", "move", "origin_of", "requeue_dead_letters"]

_TOGETHER = 500  # messages of a transaction,
_TOGETHER_BYTES = 8 << 20  # whose bodies have at most so many bytes, but for the last of them


Progress = Callable[[int, int], object]
"""Is told how many messages were moved, and how many are left to look at."""


@dataclass
class Moved:
    """What became of the messages that were looked at."""

    moved: int = 0
    stayed: int = 0


def move(
    store: Store,
    source: str,
    destination: str,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Moved:
    """Move the messages of ``source`` that are ready now, at most ``limit``, to ``destination``.

    Each keeps its body and properties.  ``progress`` is called before each transaction and behind
    the last: what it raises ends the move there.

    NotFound: one of the queues is not there, or is deleted meanwhile; PreconditionFailed:
    ``destination`` is full and refuses, or ``source`` is a stream; ValueError: both are the same.
    """
    if source == destination:
        raise ValueError(f"messages of {source!r} are there already: name another queue")
    store.queue_status(destination)  # NotFound, also when there is nothing to move
    return _run(store, source, limit, lambda _: destination, progress)


def requeue_dead_letters(store: Store, queue: str, limit: int | None = None) -> Moved:
    """Put the dead letters in ``queue`` that are ready now, at most ``limit``, back into the queues
    in which they died.  Those whose queue is not there, and other messages, stay in their places.
    """
    known = set(store.queues()) - {queue}

    def origin(message: Message) -> str | None:
        name = origin_of(message)
        return name if name in known else None

    return _run(store, queue, limit, origin)


def origin_of(message: Message) -> str | None:
    """The queue in which a dead letter died last; None: it is no dead letter."""
    deaths = message.properties.headers.get("x-death")
    latest = deaths[0] if isinstance(deaths, list) and deaths else None
    name = latest.get("queue") if isinstance(latest, dict) else None
    return name if isinstance(name, str) else None


def _run(
    store: Store,
    source: str,
    limit: int | None,
    leads_to: Callable[[Message], str | None],
    progress: Progress | None = None,
) -> Moved:
    status = store.queue_status(source)
    if status.stream:
        raise PreconditionFailed(406, f"{source!r} is a stream: its messages stay in it")
    # What comes meanwhile, or comes back, is not moved: this ends.
    left = status.messages_ready if limit is None else min(limit, status.messages_ready)
    done = Moved()
    with store.channel() as channel:
        returned: list[ReturnedMessage] = []
        channel.add_return_listener(returned.append)
        while left > 0:
            if progress is not None:
                progress(done.moved, left)
            taken = _move_some(channel, source, left, leads_to, done)
            if returned:
                _put_back(channel, source, returned)
            if taken == 0:
                break
            left -= taken
    # The channel's end has put what stayed back into its places.
    if progress is not None:
        progress(done.moved, 0)
    return done


def _move_some(
    channel: Channel,
    source: str,
    most: int,
    leads_to: Callable[[Message], str | None],
    done: Moved,
) -> int:
    """One transaction; how many messages it took."""
    taken = moved = body_bytes = 0
    destinations: set[str] = set()
    with channel.transaction() as transaction:
        while taken < min(most, _TOGETHER) and body_bytes < _TOGETHER_BYTES:
            message = channel.basic_get(source)
            if message is None:
                break
            taken += 1
            destination = leads_to(message)
            if destination is None:
                continue
            _check_queue(channel, destination, destinations)
            properties = Properties.decode(message.properties.encoded)
            transaction.publish("", destination, message.body, properties, mandatory=True)
            transaction.ack(message)
            body_bytes += len(message.body)
            moved += 1
        # One that was deleted before a message was published to it is found here.
        for destination in destinations:
            channel.queue_declare(destination, passive=True)
    channel.process_events()
    done.moved += moved
    done.stayed += taken - moved
    return taken


def _check_queue(channel: Channel, name: str, seen: set[str]) -> None:
    """Before the first message goes there.  NotFound, and the transaction is rolled back."""
    if name not in seen:
        channel.queue_declare(name, passive=True)
        seen.add(name)


def _put_back(channel: Channel, source: str, returned: list[ReturnedMessage]) -> None:
    """What came back because its queue was deleted, and declared again, while it was moved."""
    with channel.transaction() as transaction:
        for message in returned:
            properties = Properties.decode(message.properties.encoded)
            transaction.publish("", source, message.body, properties)
    name = returned[0].routing_key
    raise NotFound(404, f"the queue {name!r} was deleted meanwhile; its messages are in {source!r}")
