"""Operations that change the store.  Each returns when its change is durable."""

from __future__ import annotations

import shutil
import time
from typing import Any

from .. import moving
from ..channel import Channel
from ..errors import Unroutable
from ..message import Message
from ..store import Store
from .messages import PACK_BYTES, PACK_MESSAGES, packed, seen, unpacked
from .talk import Talk
from .wire import Gone, Report

__all__ = [
    "bind",
    "checkpoint",
    "consume",
    "declare",
    "delete",
    "move",
    "publish",
    "purge",
    "snapshot",
]

_LOOK_S = 0.05  # between two looks for a message, and for the waiting tool


def declare(store: Store, arguments: Report, _talk: Talk) -> Report:
    """Declares a queue, a stream (a queue with that x-queue-type) or an exchange, by ``kind``."""
    name, extra = str(arguments["name"]), dict(arguments.get("arguments") or {})
    durable, auto_delete = bool(arguments.get("durable", True)), bool(arguments.get("auto_delete"))
    with store.channel() as channel:
        if arguments["kind"] == "exchange":
            channel.exchange_declare(
                name,
                str(arguments.get("type") or "direct"),
                durable=durable,
                auto_delete=auto_delete,
                internal=bool(arguments.get("internal")),
                arguments=extra,
            )
            return {"exchange": name}
        told = channel.queue_declare(
            name, durable=durable, auto_delete=auto_delete, arguments=extra
        )
        return {
            "queue": told.queue,
            "message_count": told.message_count,
            "consumer_count": told.consumer_count,
        }


def delete(store: Store, arguments: Report, _talk: Talk) -> Report:
    """Deletes a queue or an exchange."""
    name, if_unused = str(arguments["name"]), bool(arguments.get("if_unused"))
    with store.channel() as channel:
        if arguments["kind"] == "exchange":
            channel.exchange_delete(name, if_unused)
            return {"exchange": name}
        store.queue_status(name)  # in AMQP deleting a missing queue is no error
        count = channel.queue_delete(name, if_unused, bool(arguments.get("if_empty")))
        return {"queue": name, "messages": count}


def bind(store: Store, arguments: Report, _talk: Talk) -> Report:
    """Binds a queue or an exchange to an exchange, or, with ``unbind``, removes the binding."""
    source, destination = str(arguments["source"]), str(arguments["destination"])
    key, extra = str(arguments.get("key") or ""), dict(arguments.get("arguments") or {})
    undoes = bool(arguments.get("unbind"))
    with store.channel() as channel:
        if arguments["kind"] == "exchange":
            bind_exchange = channel.exchange_unbind if undoes else channel.exchange_bind
            bind_exchange(destination, source, key, extra)
        else:
            bind_queue = channel.queue_unbind if undoes else channel.queue_bind
            bind_queue(destination, source, key, extra)
    return {"source": source, "destination": destination, "key": key}


def purge(store: Store, arguments: Report, _talk: Talk) -> Report:
    """Removes the ready messages of a queue."""
    name = str(arguments["queue"])
    with store.channel() as channel:
        return {"queue": name, "messages": channel.queue_purge(name)}


def checkpoint(store: Store, _arguments: Report, _talk: Talk) -> Report:
    """Makes a checkpoint."""
    began = time.monotonic()
    store.checkpoint()
    figures = store.stats()
    return {
        "checkpoint_lsn": figures["checkpoint_lsn"],
        "durable_lsn": figures["durable_lsn"],
        "seconds": round(time.monotonic() - began, 6),
    }


def snapshot(store: Store, arguments: Report, talk: Talk) -> Report:
    """Copies the store to the directory ``to``."""
    began = time.monotonic()
    copied = store.snapshot(str(arguments["to"]))
    try:
        talk.check()
    except Gone:  # the caller was told that there is no snapshot
        shutil.rmtree(str(arguments["to"]), ignore_errors=True)
        raise
    seconds = round(time.monotonic() - began, 6)
    return {"path": arguments["to"], **copied._asdict(), "seconds": seconds}


def publish(store: Store, arguments: Report, talk: Talk) -> Report:
    """Publishes the tool's messages, which are requested in packs.  Each pack is one transaction:
    durable as a whole, or not published.  ``exchange`` and ``key`` take precedence over those of
    the messages.  NotFound: the given ``queue`` does not exist."""
    exchange, key = arguments.get("exchange"), arguments.get("key")
    done = 0
    if arguments.get("queue") is not None:
        store.queue_status(str(arguments["queue"]))
    with store.channel() as channel:
        returned = _returns_of(channel)
        while True:
            report, payload = talk.ask({"published": done})
            messages = unpacked(report, payload) if "messages" in report else []
            if not messages:
                return {"published": done}
            with channel.transaction():
                for each in messages:
                    channel.basic_publish(
                        each.exchange if exchange is None else exchange,
                        each.routing_key if key is None else key,
                        each.body,
                        each.properties,
                        mandatory=True,
                    )
            _check_taken(channel, returned, done)
            done += len(messages)


def _returns_of(channel: Channel) -> list[Any]:
    returned: list[Any] = []
    channel.add_return_listener(returned.append)
    return returned


def _check_taken(channel: Channel, returned: list[Any], before: int) -> None:
    """Unroutable: some messages were routed to no queue."""
    channel.process_events()
    if returned:
        first = returned[0]
        raise Unroutable(
            406,
            f"no queue takes what is published to exchange {first.exchange!r} with routing key"
            f" {first.routing_key!r}: {len(returned)} messages went nowhere, {before} and those"
            " with them that have a queue are published",
            len(returned),
        )


def consume(store: Store, arguments: Report, talk: Talk) -> Report:
    """Sends messages of ``queue``: at most ``limit``, until none came for ``timeout`` seconds
    (None: unlimited).  They are acknowledged when the tool has reported that it is done with
    them."""
    name, limit = str(arguments["queue"]), arguments.get("limit")
    timeout = arguments.get("timeout")
    done = 0
    with store.channel() as channel:
        while limit is None or done < limit:
            most = PACK_MESSAGES if limit is None else min(PACK_MESSAGES, limit - done)
            messages = _taken(channel, name, most) or _awaited(channel, name, timeout, talk)
            if not messages:
                break
            talk.tell(*packed(map(seen, messages)))
            talk.ask({"written": len(messages)})
            channel.basic_ack(messages[-1].delivery_tag, multiple=True)
            done += len(messages)
    store.sync()
    return {"consumed": done}


def _taken(channel: Channel, queue: str, most: int) -> list[Message]:
    """The messages that are ready now."""
    messages: list[Message] = []
    size = 0
    while len(messages) < most and size < PACK_BYTES:
        message = channel.basic_get(queue)
        if message is None:
            break
        messages.append(message)
        size += len(message.body)
    return messages


def _awaited(channel: Channel, queue: str, timeout: float | None, talk: Talk) -> list[Message]:
    """The next message; none: the time is over.  It polls, because a consumer would delete an
    auto-delete queue at its end, and take turns from other consumers."""
    end = None if timeout is None else time.monotonic() + timeout
    while end is None or time.monotonic() < end:
        talk.check()
        message = channel.basic_get(queue)
        if message is not None:
            return [message]
        time.sleep(_LOOK_S if end is None else min(_LOOK_S, max(0.0, end - time.monotonic())))
    return []


def move(store: Store, arguments: Report, talk: Talk) -> Report:
    """Moves ready messages of ``queue``, at most ``limit``, to the queue ``to``.  Reports the
    number of moved messages."""

    def progress(moved: int, left: int) -> None:
        talk.check()
        talk.tell({"moved": moved, "count": moved + left})

    name, to = str(arguments["queue"]), str(arguments["to"])
    return {"moved": moving.move(store, name, to, arguments.get("limit"), progress).moved}
