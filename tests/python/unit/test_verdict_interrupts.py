"""Confirm, return and cancel listeners when a signal handler raises at any step between the engine
and them: each is called with each event, once."""

import asyncio
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import pyqstore
from pyqstore import aio

from ..interrupts import Interrupt, interrupted

FULL = {"x-max-length": 0, "x-overflow": "reject-publish"}
KINDS = {"ack", "nack", "return", "cancel", "outcome"}


class Heard:
    """What two listeners of each kind heard, in order."""

    def __init__(self, channel: Any) -> None:
        """Of this channel, of any face."""
        self.by: dict[str, list[tuple[Any, ...]]] = {"first": [], "second": []}
        for name in self.by:
            hear = partial(partial, self.hear, name)
            channel.add_confirm_listener(hear("ack"), hear("nack"))
            channel.add_return_listener(hear("return"))
            channel.add_cancel_listener(hear("cancel"))
            channel.add_outcome_listener(hear("outcome"))

    def hear(self, name: str, kind: str, *what: object) -> None:
        self.by[name].append((kind, *what))

    def check(self, last: int) -> None:
        """All of it, up to this publish number, and nothing twice."""
        first, second = self.by.values()
        assert first == second
        assert len(set(first)) == len(first), first
        assert {kind for kind, *_ in first} == KINDS
        assert last in [what[0] for kind, *what in first if kind == "ack"]
        for heard in self.by.values():
            heard.clear()


def test_a_listener_hears_of_each_verdict_once_though_a_signal_handler_raises(
    store: pyqstore.Store,
) -> None:
    ways: list[Callable[[pyqstore.Channel], object]] = [
        pyqstore.Channel.process_events,
        pyqstore.Channel.wait_for_confirms,
        lambda channel: channel.next_delivery(tag, 0),
    ]
    for way in ways:
        with store.channel() as channel, store.channel() as other:
            heard = Heard(channel)
            channel.queue_declare("q", durable=True)
            channel.queue_declare("full", durable=True, arguments=FULL)
            channel.confirm_select()
            channel.basic_qos(1)
            tag = channel.basic_consume("full")
            for step in itertools.count(1):
                channel.queue_declare("gone")
                channel.basic_consume("gone")
                channel.basic_publish("", "full", b"refused")
                channel.basic_publish("", "nowhere", b"returned", mandatory=True)
                last = channel.basic_publish("", "q", b"kept")
                store.sync()
                other.queue_delete("gone")
                _, is_interrupted = interrupted(step, partial(way, channel))
                channel.process_events()
                heard.check(last)
                if not is_interrupted:
                    break


async def test_the_same_in_a_loop(aio_store: aio.Store) -> None:
    channel, other = await aio_store.channel(), aio_store._store.channel()
    heard = Heard(channel)
    await channel.queue_declare("q", durable=True)
    await channel.queue_declare("full", durable=True, arguments=FULL)
    await channel.confirm_select()
    events = channel._events
    confirms = events.confirms
    assert confirms is not None
    for step in itertools.count(1):
        await channel.queue_declare("gone")
        tag = await channel.basic_consume("gone")
        with patch.object(events, "look", lambda: None):
            before = confirms.published
            awaited = asyncio.gather(
                *(
                    channel.basic_publish("", key, b"", mandatory=True)
                    for key in ("full", "nowhere", "q")
                ),
                return_exceptions=True,
            )
            while confirms.published < before + 3:
                await asyncio.sleep(0)
        events.looks_soon = False
        aio_store._store.sync()
        other.queue_delete("gone")
        try:
            _, is_interrupted = interrupted(step, events.look)
        except Interrupt:
            is_interrupted = True
        events.look()
        refused, returned, last = await awaited
        assert isinstance(refused, pyqstore.PublishRefused)
        assert isinstance(last, int)
        assert returned == last - 1
        heard.check(last)
        await channel.basic_cancel(tag)
        if not is_interrupted:
            break
