"""The consumers of a channel, and their buffered messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

from ..deliveries import Backlog, Deliveries
from .lane import Lane
from .loop_channel import LoopChannel
from .message import Message

__all__ = ["Consumer", "Consumers"]


class Consumer:
    """buffered: messages that came and were not handed out yet.  cancelled: no more messages come.
    task: the task that runs the callback."""

    __slots__ = ("auto_ack", "buffered", "cancelled", "error", "tag", "task", "waiter")

    def __init__(self, tag: str, auto_ack: bool) -> None:
        self.tag: str = tag
        self.auto_ack: bool = auto_ack
        self.cancelled: bool = False
        self.error: BaseException | None = None
        self.buffered: Backlog[Message] = Backlog()
        self.task: asyncio.Task[None] | None = None
        self.waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Wake the tasks that wait for this consumer."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class Consumers:
    """The consumers by tag.  Messages that no consumer gets any more are settled in the lane."""

    __slots__ = ("_by_tag", "_channel", "_deliveries", "_lane")

    def __init__(self, channel: LoopChannel, lane: Lane, deliveries: Deliveries) -> None:
        self._by_tag: dict[str, Consumer] = {}
        self._channel = channel
        self._lane = lane
        self._deliveries = deliveries

    def __iter__(self) -> Iterator[Consumer]:
        return iter(list(self._by_tag.values()))

    def get(self, tag: str) -> Consumer | None:
        """The consumer with that tag, if there is one."""
        return self._by_tag.get(tag)

    def add(self, consumer: Consumer) -> None:
        """Deliver messages to the consumer from now on; if the channel has ended, give it the
        reason."""
        self._by_tag[consumer.tag] = consumer
        if self._lane.end is not None:
            _end(consumer, self._lane.end)

    def forget(self, consumer: Consumer) -> None:
        """Remove a consumer that was cancelled."""
        if self._by_tag.get(consumer.tag) is consumer:  # not another that took the tag
            del self._by_tag[consumer.tag]

    @property
    def are_waiting(self) -> bool:
        """Whether a task waits for a message of a consumer that has none."""
        for consumer in self._by_tag.values():
            waiter = consumer.waiter
            if waiter is not None and not consumer.buffered and not waiter.done():
                return True
        return False

    def deliver(self, message: Message) -> None:
        """A message came."""
        tag = message.delivery_tag
        consumer = self._by_tag.get(message.consumer_tag)
        if consumer is None or consumer.cancelled:
            self.settle_soon(tag, tag, requeue=True)
            return
        try:
            self._deliveries.came(tag, tag)
            consumer.buffered.append(message)
        except MemoryError:
            self._channel._withhold(tag, tag)
            raise
        if consumer.buffered.is_full and not consumer.buffered.is_paused:
            self._pause(consumer, True)
        consumer.wake()

    def _pause(self, consumer: Consumer, paused: bool) -> None:
        """Pause the consumer when the lane's turn comes: its buffer is full, or it is cancelled."""
        consumer.buffered.is_paused = paused
        self._lane.post(partial(self._channel._pause, consumer.tag, paused))

    def hand_out(self, consumer: Consumer) -> Message:
        """The next buffered message."""
        message = consumer.buffered.popleft()
        tag = message.delivery_tag
        self._deliveries.went(tag)
        if consumer.buffered.is_paused and not consumer.buffered:
            self._pause(consumer, False)
        if consumer.auto_ack:
            self.settle_soon(tag, tag, requeue=False)
        return message

    def put_back(self, consumer: Consumer) -> None:
        """Requeue the buffered messages, each to its place in the queue."""
        while consumer.buffered:
            tag = consumer.buffered.popleft().delivery_tag
            self._deliveries.went(tag)
            self.settle_soon(tag, tag, requeue=True)
        if consumer.buffered.is_paused:
            self._pause(consumer, False)

    def cancelled(self, tag: str, queue: str) -> None:
        """The store cancelled the consumer; messages that came before are still handed out."""
        self._channel._cancelled(tag, queue)
        consumer = self._by_tag.get(tag)
        if consumer is not None:
            consumer.cancelled = True
            consumer.wake()

    def drop(self, tag: str) -> Consumer | None:
        """Cancel the consumer when the lane's turn comes."""
        consumer = self._by_tag.pop(tag, None)
        self._lane.post(partial(self._channel.basic_cancel, tag))
        if consumer is not None:
            consumer.cancelled = True
            self.put_back(consumer)
            consumer.wake()
        return consumer

    def blame(self, error: BaseException) -> bool:
        """Report an error of a message that has no number to the tasks that wait for one.  Returns
        whether there was such a task."""
        for consumer in self._by_tag.values():
            if consumer.waiter is not None and not consumer.waiter.done():
                consumer.error = error
                consumer.wake()
                return True
        return False

    def end(self, error: BaseException) -> None:
        """The channel is closed, which requeues the buffered messages."""
        for consumer in self._by_tag.values():
            _end(consumer, error)

    def settle_soon(self, first_tag: int, last_tag: int, requeue: bool) -> None:
        """Acknowledge these messages, or requeue them, when the lane's turn comes."""
        self._lane.post(partial(self._channel._settle_range, first_tag, last_tag, requeue))


def _end(consumer: Consumer, error: BaseException) -> None:
    consumer.cancelled = True
    consumer.error = error
    consumer.buffered.clear()
    consumer.wake()
