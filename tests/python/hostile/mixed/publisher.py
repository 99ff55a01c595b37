"""Publishing with confirms, the same for both faces: who calls says what is awaited."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import pyqstore
from pyqstore import aio

from .messages import Copy, body_of, priority_of
from .queues import homes_of
from .story import Story

SECONDS = 120.0  # a wait that only a fault reaches


async def done(answer: Any) -> Any:
    """What a call of either face returns."""
    return await answer if inspect.isawaitable(answer) else answer


@dataclass(frozen=True)
class Publish:
    """One message on its way."""

    exchange: str
    key: str
    name: str

    @property
    def copies(self) -> list[Copy]:
        return [(self.name, home) for home in homes_of(self.exchange, self.key)]

    @property
    def properties(self) -> pyqstore.Properties:
        return pyqstore.Properties(
            delivery_mode=2, message_id=self.name, priority=priority_of(self.name)
        )


def copies_of(publishes: list[Publish]) -> list[Copy]:
    return [copy for publish in publishes for copy in publish.copies]


class Publisher:
    """Publishes on a channel in confirm mode, and tells the store's word for each message."""

    def __init__(self, channel: Any, story: Story) -> None:
        self._channel = channel
        self._story = story
        self._waiting: dict[int, Publish] = {}
        self._answers: list[tuple[int, bool, bool]] = []
        channel.add_confirm_listener(self._acked, self._nacked)

    def _acked(self, number: int, multiple: bool) -> None:
        self._answered(number, multiple, True)

    def _nacked(self, number: int, multiple: bool) -> None:
        self._answered(number, multiple, False)

    def _answered(self, number: int, multiple: bool, confirmed: bool) -> None:
        if isinstance(self._channel, aio.Channel):
            self._answers.append((number, multiple, confirmed))  # numbers are known later there
        else:
            self._take(number, multiple, confirmed)

    def _take(self, number: int, multiple: bool, confirmed: bool) -> None:
        first = min(self._waiting, default=number) if multiple else number
        publishes = [self._waiting.pop(each, None) for each in range(first, number + 1)]
        self._tell([publish for publish in publishes if publish is not None], confirmed)

    def _tell(self, publishes: list[Publish], confirmed: bool) -> None:
        if publishes:
            self._story.tell("confirm" if confirmed else "refuse", copies_of(publishes))

    async def one_by_one(self, publishes: list[Publish]) -> None:
        self._story.tell("publish", copies_of(publishes))
        if isinstance(self._channel, aio.Channel):
            await asyncio.gather(*map(self._publish_and_wait, publishes))
            self._answers.clear()
            return
        for publish in publishes:
            number = self._channel.basic_publish(
                publish.exchange, publish.key, body_of(publish.name), publish.properties
            )
            self._waiting[number] = publish
        self._channel.wait_for_confirms(SECONDS)

    async def _publish_and_wait(self, publish: Publish) -> None:
        try:
            await self._channel.basic_publish(
                publish.exchange, publish.key, body_of(publish.name), publish.properties
            )
        except pyqstore.PublishRefused:
            self._tell([publish], False)
        else:
            self._tell([publish], True)

    async def batch(self, publishes: list[Publish]) -> None:
        """All at once, as Arrow columns."""
        frame = pa.table(
            {
                "body": pa.array([body_of(each.name) for each in publishes], pa.binary()),
                "exchange": [each.exchange for each in publishes],
                "routing_key": [each.key for each in publishes],
                "message_id": [each.name for each in publishes],
                "priority": pa.array([priority_of(each.name) for each in publishes], pa.uint8()),
            }
        )
        self._story.tell("publish", copies_of(publishes))
        receipt = await done(self._channel.publish_batch(frame))
        for number, publish in enumerate(publishes, receipt.first_publish_number):
            self._waiting[number] = publish
        await done(self._channel.wait_for_confirms(SECONDS))
        for answer in self._answers:
            self._take(*answer)
        self._answers.clear()
        if self._waiting:
            self._story.tell("wrong", f"{len(self._waiting)} publishes have no answer")
            self._waiting.clear()
