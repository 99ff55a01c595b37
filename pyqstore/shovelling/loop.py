"""The loop of a shovel: it reads batches, has a few on their way, and settles those that ended."""

from __future__ import annotations

import contextlib
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..errors import Error, ShovelError
from .ends import BATCH, Batch, Burying, Full, Later, Position, Refused, Source, Target
from .report import Counting, Shovelled

__all__ = ["AHEAD", "Choices", "Loop"]

_BYTES = 4 << 20  # of a batch's bodies and properties, at most, but for the last of them
_UNDER_WAY = 4  # batches
AHEAD = BATCH * (_UNDER_WAY + 1)
_IDLE_S = 0.1  # that the loop waits for messages at once
_LOOK_S = 0.2  # between two looks at whether to stop
_WAIT_FIRST_S, _WAIT_MOST_S = 0.1, 30.0
_END_S = 7.0  # for what is under way when it stops; the ends need some time to close
_TEND_S = 0.02


@dataclass(frozen=True)
class Choices:
    """What may be chosen of a shovel's way of working."""

    idle: float | None = None
    """It ends when nothing came for so many seconds; None: it goes on."""
    tries: int = 5
    """How often a message is tried that the target refuses."""
    dead: str | None = None
    """Where such a message goes; None: the shovel ends."""


class _Stopped(Exception):
    """It is to stop."""


class Loop:
    """Of one shovel; ``look`` is given a report now and then, and says whether to stop."""

    def __init__(
        self, source: Source, target: Target, choices: Choices, look: Callable[[Shovelled], bool]
    ) -> None:
        """Nothing is opened yet."""
        self._source = source
        self._target = target
        source.watch, target.watch = self._look, self._look_while_sending
        self._is_sending = False
        """The target may end what is under way: a stop waits for it."""
        self._end_at: float | None = None
        """Until when; None: it is not to stop."""
        self._choices = choices
        self._look_at = look
        self._looked = 0.0
        self._most = min(source.most, target.most)
        """Messages of a batch."""
        self._under_way: deque[Batch] = deque()
        self._is_broken = False
        """The target has failed, and does not have all that is under way."""
        self._count = Counting()
        self._failures = 0
        self._failed = 0.0
        self._position: Position | None = None
        self._idle_since = time.monotonic()

    def run(self) -> Shovelled:
        """Until it is stopped, or idle for long enough.  ShovelError, and what a store raises."""
        try:
            with contextlib.suppress(_Stopped):
                self._again(self._open_target)
                self._again(self._open_source)
                self._idle_since = time.monotonic()
                while not self._is_over():
                    self._step()
            with contextlib.suppress(_Stopped):
                self._finish()
            return self._count.total(self._lag())
        finally:
            for end in (self._source, self._target):
                with contextlib.suppress(Error):
                    end.close()

    def _lag(self) -> int | None:
        try:
            return self._source.lag()
        except (Error, Later):
            return None

    def _is_over(self) -> bool:
        idle = self._choices.idle
        return (
            idle is not None and not self._under_way and time.monotonic() - self._idle_since >= idle
        )

    def _step(self) -> None:
        self._look()
        if len(self._under_way) < _UNDER_WAY:
            wait = 0.0 if self._under_way else self._patience()
            try:
                batch = self._source.read(self._most, _BYTES, wait)
            except Later as error:
                self._note(error)
                self._again(self._open_source, first_waits=True)
                return
            except Error:
                self._finish()  # what came before it is good
                raise
            if batch is not None:
                self._idle_since = time.monotonic()
                self._under_way.append(batch)
                self._send(partial(self._target.begin, batch))
            is_full = batch is None
        else:
            is_full = True
        if self._under_way:
            self._take_ended(_TEND_S if is_full else 0.0)
        else:
            self._target.tend(0.0)

    def _patience(self) -> float:
        """How long to wait for messages at once."""
        idle = self._choices.idle
        if idle is None:
            return _IDLE_S
        return min(_IDLE_S, max(0.0, self._idle_since + idle - time.monotonic()))

    def _take_ended(self, timeout: float) -> None:
        """Settle what the target has for good."""
        while self._under_way:
            if self._send(partial(self._target.ended, timeout)) is None:
                return
            self._settle(self._under_way.popleft())
            timeout = 0.0

    def _settle(self, batch: Batch) -> None:
        if batch.dead and not self._target.buries:
            self._bury(batch)
            batch.dead_written = len(batch.dead)
        self._position = batch.position
        try:
            self._until_room(partial(self._source.settle, batch))
        except Later as error:  # the next read opens it again
            self._note(error)
        count = self._count
        count.moved += len(batch.items) - batch.repeated - batch.dead_written
        count.bytes += batch.size
        count.repeated += batch.repeated
        count.dead += batch.dead_written
        self._failures = 0
        self._idle_since = time.monotonic()  # more may have come meanwhile

    def _bury(self, batch: Batch) -> None:
        source = self._source
        assert isinstance(source, Burying)  # for the target is no store
        while True:
            try:
                self._until_room(partial(source.bury, batch))
                return
            except Later as error:
                self._note(error)
            self._again(self._open_source, first_waits=True)

    def _until_room(self, call: Callable[[], None]) -> None:
        """The source's store may have no space for some time."""
        while True:
            try:
                call()
                return
            except Full as error:
                self._note(error)
            self._pause()

    def _send(self, call: Callable[[], Batch | None]) -> Batch | None:
        """Call the target.  When it fails, it is opened again, and has all that is under way once
        more; None is returned then."""
        self._is_broken = self._is_sending = True
        try:
            ended = call()
            self._is_broken = False
            return ended
        except Later as error:
            self._note(error)
        except Refused as refused:
            self._refused(refused)
        finally:
            self._is_sending = False
        self._again(self._open_and_begin, first_waits=True)
        return None

    def _open_and_begin(self) -> None:
        self._open_target()
        for batch in self._under_way:
            self._target.begin(batch)
        self._is_broken = False

    def _open_target(self) -> None:
        position = self._target.open()
        if self._target.keeps_position:
            self._position = position

    def _open_source(self) -> None:
        # What is under way need not be read again: it is begun again where it has to be.
        behind = self._under_way[-1].position if self._under_way else None
        self._source.open(self._position if behind is None else behind)

    def _refused(self, refused: Refused) -> None:
        """Count the tries of messages; after its last, one is a dead letter.  ShovelError: there is
        no queue for it."""
        batch = refused.batch
        self._count.error = str(refused)
        for index, reason in refused.reasons.items():
            if index in batch.dead:
                raise ShovelError(f"the queue of dead letters refuses a message: {reason}")
            tries = batch.tries[index] = batch.tries.get(index, 0) + 1
            if tries < self._choices.tries:
                continue
            if self._choices.dead is None:
                raise ShovelError(
                    f"{self._target.shown} refuses a message, {tries} times, and there is no queue"
                    f" for dead letters: {reason}.  It is the first in {self._source.shown} now"
                )
            batch.dead[index] = reason
            self._failures = 0  # that is progress
        if batch.dead and self._target.keeps_position and not self._target.buries:
            # Its position may be behind them before the batch ends.
            self._bury(batch)

    def _again(self, call: Callable[[], None], *, first_waits: bool = False) -> None:
        """Until it is done.  Between two tries both ends are tended, longer each time.  Time in
        which an end is away tells nothing of what waits in the source."""
        waits = first_waits
        while True:
            if waits:
                self._count.connected += 1
                self._pause()
            waits = True
            try:
                call()
                self._idle_since = time.monotonic()
                return
            except Later as error:
                self._note(error)
            except Refused as refused:
                self._refused(refused)

    def _note(self, error: Later) -> None:
        self._count.error = str(error)

    def _pause(self) -> None:
        if time.monotonic() - self._failed > _WAIT_MOST_S:  # that trouble is over
            self._failures = 0
        wait = min(_WAIT_MOST_S, _WAIT_FIRST_S * 2 ** min(self._failures, 20))
        self._failures += 1
        until = time.monotonic() + wait * random.uniform(0.5, 1.0)
        while (left := until - time.monotonic()) > 0:
            self._look()
            before = time.monotonic()
            for end in (self._source, self._target):
                end.tend(min(left, _TEND_S))
            spent = time.monotonic() - before
            time.sleep(max(0.0, min(left, _TEND_S) - spent))
        self._failed = time.monotonic()

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked >= _LOOK_S:
            self._looked = now
            if self._look_at(self._count.told(self._lag())):
                raise _Stopped

    def _look_while_sending(self) -> None:
        """A call that is left in the middle leaves what is under way in doubt."""
        try:
            self._look()
        except _Stopped:
            if not self._is_sending or time.monotonic() >= self._last_moment():
                raise

    def _last_moment(self) -> float:
        if self._end_at is None:
            self._end_at = time.monotonic() + _END_S
        return self._end_at

    def _finish(self) -> None:
        """What is under way ends, if that can be had soon; else it comes again."""
        until = self._last_moment()
        self._is_sending = True
        try:
            while self._under_way and not self._is_broken:
                left = until - time.monotonic()
                if left <= 0:
                    return
                batch = self._target.ended(min(left, _LOOK_S))
                if batch is not None:
                    self._settle(self._under_way.popleft())
        except (Later, Refused) as error:
            self._count.error = str(error)
        # What was acknowledged last goes out with the connection's end.
