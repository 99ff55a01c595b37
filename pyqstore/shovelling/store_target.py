"""A queue or a stream of a store as a target: each message once.

A batch, its dead letters and its note are one transaction, or, where the queue takes fewer messages
at once, some: each with a note of its own.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Callable

from .. import _core
from ..channel import Channel
from ..errors import (
    ChannelClosed,
    Error,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
    ShovelError,
    StoreFull,
)
from ..keyed import keyed_exchange
from ..message import ReturnedMessage
from ..store import Store
from .ends import (
    LARGE_BATCH,
    Acked,
    Batch,
    Later,
    Position,
    Refused,
    Target,
    behind,
    buried,
    id_of,
)
from .notes import Notes, part_of

__all__ = ["StoreTarget"]


class StoreTarget(Target):
    """Messages without an exchange come from the default one here, too; others keep their routing
    keys, by way of an exchange that leads to this queue alone."""

    most: int = LARGE_BATCH
    keeps_position: bool = True
    may_forget: bool = False
    buries: bool = True

    def __init__(
        self, store: Store, name: str, *, shovel: str, dead: str | None, shown: str
    ) -> None:
        """``dead``: the queue of dead letters.  NotFound: no such queue."""
        self.shown: str = shown
        self.watch: Callable[[], None] = lambda: None
        self._store = store
        self._name = name
        self._dead = dead
        self._is_stream: bool = store.queue_status(name).stream
        self._shovel = shovel
        self._notes = Notes(store, shovel)
        self._channel: Channel | None = None
        self._exchange = ""
        self._keeper: Channel | None = None
        self._returned: list[ReturnedMessage] = []
        self._ended: deque[Batch] = deque()
        self._most = LARGE_BATCH
        """Messages of a transaction: fewer where the queue takes no more at once."""
        self._epoch = 0
        self._doubtful: Counter[bytes] = Counter()
        self._unsettled: deque[tuple[Acked, int, list[bytes]]] = deque()
        """Of each batch the number of its note, or 0, and the ids of what had come again."""
        self._settled: tuple[list[int], list[bytes]] = ([], [])
        """As of the notes, which do not tell it yet."""

    def open(self) -> Position | None:
        """As of Target.  ShovelError: another shovel of this name is at work."""
        if self._keeper is None:
            keeper = self._store.channel()
            try:
                keeper.queue_declare(f"{self._notes.stream}.lock", exclusive=True)
            except ResourceLocked:
                raise ShovelError(
                    f"another shovel named {self._shovel!r} works for this store just now"
                ) from None
            self._keeper = keeper
            self._notes.read()
        self._opened()
        return self._notes.position

    def _opened(self) -> Channel:
        if self._channel is None or self._channel.closed:
            self._channel = self._store.channel()
            self._returned = []
            self._channel.add_return_listener(self._returned.append)
        return self._channel

    def begin(self, batch: Batch) -> None:
        """As of Target: it is done when this returns."""
        if any(each is batch for each in self._ended):
            return
        if not batch.token or batch.token not in self._notes.tokens:  # else all of it is here
            batch.taken = max(batch.taken, self._notes.taken_of(batch.token))
            if not batch.items:
                self._take(batch, 0)
            while batch.taken < len(batch.items):
                self._take(batch, min(batch.taken + self._most, len(batch.items)))
        self._ended.append(batch)

    def _take(self, batch: Batch, stop: int) -> None:
        """The messages up to one, and their note, in a transaction.  Where they are too many for
        the queue it does nothing, and the next time there are fewer."""
        channel, wanted = self._opened(), range(batch.taken, stop)
        position, token = behind(batch, stop), part_of(batch.token, stop, len(batch.items))
        ids = [] if position is not None else [id_of(batch.items[index]) for index in wanted]
        fresh, again = self._fresh(batch, wanted, ids)
        noted = [ids[index - batch.taken] for index in fresh] if ids else []
        writer = _core.ItemWriter(
            channel, batch.items, fresh, batch.dead, self._name, self._is_stream
        )
        try:
            with channel.transaction():
                self._write(channel, batch, fresh, writer)
                self._tell_settled(channel)
                if position is not None:
                    self._notes.publish_position(channel, position, token)
                elif noted:
                    self._notes.publish_ids(channel, noted, token)
                self._check_there(channel, batch)
            channel.process_events()
        except StoreFull as error:
            raise Later(str(error)) from error
        except (PreconditionFailed, ValueError, TypeError) as error:
            self._close_channel()
            if writer.at < len(fresh):
                raise Refused(batch, {fresh[writer.at]: str(error)}) from error
            self._full(len(wanted), batch, error)  # a queue is full and refuses more
            return
        except ChannelClosed as error:
            raise Later(str(error)) from error
        if self._returned:
            self._take_back()
        self._took(batch, noted, again, token)
        self._most = min(2 * self._most, LARGE_BATCH)
        batch.taken = stop
        batch.repeated += len(wanted) - len(fresh)
        batch.dead_written += len(batch.dead.keys() & set(fresh))

    def _write(
        self, channel: Channel, batch: Batch, fresh: list[int], writer: _core.ItemWriter
    ) -> None:
        while writer.write(self._exchange):
            index = fresh[writer.at]
            if index in batch.dead:
                self._publish_dead(channel, batch, index)
                writer.at += 1
            else:
                self._make_exchange()

    def _full(self, count: int, batch: Batch, error: Exception) -> None:
        """Where queues without messages refuse so many, they never take them at once.  Later: they
        have some."""
        names = {self._name, self._dead if batch.dead else None} - {None}
        is_empty = all(self._store.queue_status(each).messages_ready == 0 for each in names if each)
        if count < 2 or not is_empty:
            raise Later(str(error)) from error
        self._most = count // 2

    def _took(self, batch: Batch, noted: list[bytes], again: Counter[bytes], token: str) -> None:
        """The transaction was committed."""
        self._settled = ([], [])
        number = self._notes.took(noted, token) if noted else 0
        if batch.acked is not None:
            self._unsettled.append((batch.acked, number, list(again.elements())))
        self._doubtful.subtract(again)
        for digest in again:
            if self._doubtful[digest] <= 0:
                del self._doubtful[digest]

    def _publish_dead(self, channel: Channel, batch: Batch, index: int) -> None:
        assert self._dead is not None
        item = batch.items[index]
        properties = buried(item, batch.dead[index])
        channel.basic_publish("", self._dead, item.body, properties, True)

    def _make_exchange(self) -> None:
        """Once, where a message needs it; by another channel, for this one's transaction would end
        with what it raises."""
        with self._store.channel() as channel:
            self._exchange = keyed_exchange(
                lambda: channel, "stream" if self._is_stream else "queue", self._name
            )

    def _fresh(
        self, batch: Batch, wanted: range, ids: list[bytes]
    ) -> tuple[list[int], Counter[bytes]]:
        """Which of the wanted messages of a batch are not here yet, and the ids of the others,
        which have come again: marked as such, as stores and brokers do.  Only what was read before
        the source's connection began can."""
        self._settle()
        if batch.epoch != self._epoch:
            self._epoch, self._doubtful = batch.epoch, self._notes.doubtful(batch.token)
            self._unsettled.clear()  # what is not known now stays in doubt
        doubtful = self._doubtful
        again: Counter[bytes] = Counter()
        if not ids or not doubtful:
            return list(wanted), again
        fresh: list[int] = []
        for index, digest in zip(wanted, ids, strict=True):
            if batch.items[index].redelivered and doubtful[digest] > again[digest]:
                again[digest] += 1
            else:
                fresh.append(index)
        return fresh, again

    def _settle(self) -> None:
        """End the doubts about batches that never come again."""
        numbers, ids = self._settled
        while self._unsettled and self._unsettled[0][0].for_good:
            _, number, again = self._unsettled.popleft()
            self._notes.settled([number], again)
            numbers += [number] * (number > 0)
            ids += again

    def _tell_settled(self, channel: Channel) -> None:
        """In the channel's transaction."""
        if any(self._settled):
            self._notes.publish_settled(channel, *self._settled)

    def _note_settled(self) -> None:
        """For the next process, when there is no batch whose transaction could do it."""
        self._settle()
        if any(self._settled):
            with contextlib.suppress(Error):  # the next transaction has it, too
                channel = self._opened()
                with channel.transaction():
                    self._tell_settled(channel)
                self._settled = ([], [])

    def _check_there(self, channel: Channel, batch: Batch) -> None:
        """NotFound: what was published before this went nowhere, and is rolled back."""
        channel.queue_declare(self._name, passive=True)
        if batch.dead:
            assert self._dead is not None
            channel.queue_declare(self._dead, passive=True)

    def _take_back(self) -> None:
        """A queue was deleted and declared again in the moment of a commit: the note is wrong."""
        channel = self._opened()
        with channel.transaction():
            self._notes.publish_undo(channel)
        self._returned.clear()
        self._notes.read()
        raise NotFound(404, f"the queue {self._name!r} was deleted meanwhile")

    def ended(self, _timeout: float) -> Batch | None:
        """As of Target."""
        return self._ended.popleft() if self._ended else None

    def tend(self, _seconds: float) -> None:
        """As of Target."""
        self._note_settled()

    def _close_channel(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            with contextlib.suppress(Error):
                channel.close()

    def close(self) -> None:
        """As of Target."""
        if self._keeper is not None:
            self._note_settled()
        self._close_channel()
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            with contextlib.suppress(Error):
                keeper.close()
