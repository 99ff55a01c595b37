"""Ends of a store that a server has open: the server's own ends do the work (``flight/shovelled``),
and are asked from here."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from ..errors import Error, ShovelError
from ..flight.wire import pack_start
from ..stream import Start
from .ends import BATCH, Acked, Batch, Burying, Item, Later, Linked, Position, Target
from .grpc_address import GrpcPlace
from .grpc_link import ANSWER_S, Link
from .grpc_wire import pack_position, unpack_position

__all__ = ["GrpcSource", "GrpcTarget"]

_LOCKED_S = 10.0  # for which a server may still have what this shovel had before
_READ_S = 0.5  # a server waits for messages at once


class GrpcSource(Linked[Link], Burying):
    """As ``StoreSource``."""

    most: int = BATCH

    def __init__(
        self,
        place: GrpcPlace,
        *,
        shovel: str,
        start: Start,
        dead: str | None,
        ahead: int,
        notes_position: bool,
    ) -> None:
        """The arguments are those of ``StoreSource``.  ShovelError: the address is wrong."""
        self.shown: str = place.shown
        self._link = Link(place)
        self._command: dict[str, Any] = {
            "do": "shovel",
            "end": "source",
            "name": place.name,
            "shovel": shovel,
            "start": pack_start(start),
            "dead": dead,
            "ahead": ahead,
            "notes_position": notes_position,
        }
        self._asked: deque[str] = deque()
        """What has no answer yet, in order."""
        self._early: tuple[dict[str, Any], list[Item]] | None = None
        """The answer to a read, which came before one that was waited for."""
        self._epoch = 0
        self._started: Position | None = None
        """As of ``StoreSource``: the server forgets it with the connection."""
        self._lag: int | None = None

    def open(self, position: Position | None) -> None:
        """As of Source."""
        self._epoch += 1
        self._asked.clear()
        self._early = None
        position = self._started if position is None else position
        told = self._link.open(**self._command, position=pack_position(position))
        if self._started is None:
            self._started = unpack_position(told.get("started"))

    def read(self, most: int, bytes_most: int, timeout: float) -> Batch | None:
        """As of Source.  What is next is asked for before it is needed."""
        ask = {"do": "read", "most": most, "bytes_most": bytes_most}
        batch = self._next() if self._early or "read" in self._asked else None
        if batch is None:
            self._ask({**ask, "timeout": min(timeout, _READ_S)})
            batch = self._next()
        if batch is not None:
            self._ask({**ask, "timeout": 0})
        return batch

    def _next(self) -> Batch | None:
        """What was asked for first.  Later: that, or what was settled before it, failed."""
        told, items = self._early or self._heard("read")
        self._early = None
        self._lag = told["lag"]
        return Batch(items, self._epoch, unpack_position(told["position"])) if items else None

    def settle(self, batch: Batch) -> None:
        """As of Source, but that the next read tells if it fails: then all comes again."""
        if batch.epoch == self._epoch:
            self._ask({"do": "settle", "number": batch.items[0].tag})

    def bury(self, batch: Batch) -> None:
        """As of Source."""
        dead = sorted(batch.dead.items())
        reasons = {str(place): reason for place, (_, reason) in enumerate(dead)}
        self._ask({"do": "bury", "dead": reasons}, [batch.items[index] for index, _ in dead])
        self._heard("bury")

    def _ask(self, asked: dict[str, Any], items: Sequence[Item] = ()) -> None:
        self._link.ask(asked, items)
        self._asked.append(asked["do"])

    def _heard(self, do: str) -> tuple[dict[str, Any], list[Item]]:
        """The answer to the first that was asked so, behind those before it."""
        while True:
            answered = self._asked.popleft()
            heard = self._link.heard(None)
            if answered == do:
                return heard
            if answered == "read":
                self._early = heard

    def tend(self, _seconds: float) -> None:
        """Nothing has to be done."""

    def lag(self) -> int | None:
        """As of Source: when it was read last."""
        return self._lag

    def close(self) -> None:
        """As of Source."""
        self._link.close()


class GrpcTarget(Linked[Link], Target):
    """As ``StoreTarget``, to which batches are on their way.

    A batch has a token, which the store notes with it: so one that was on its way when a connection
    broke is known when it is begun again.
    """

    most: int = BATCH
    keeps_position: bool = True
    may_forget: bool = False
    buries: bool = True

    def __init__(self, place: GrpcPlace, *, shovel: str, dead: str | None) -> None:
        """The arguments are those of ``StoreTarget``.  ShovelError: the address is wrong."""
        self.shown: str = place.shown
        self._link = Link(place)
        self._command: dict[str, Any] = {
            "do": "shovel",
            "end": "target",
            "name": place.name,
            "shovel": shovel,
            "dead": dead,
        }
        self._begun: deque[Batch] = deque()
        self._tokens: dict[int, str] = {}
        """By the identities of batches that have not ended."""
        self._acked: list[tuple[str, Acked]] = []
        """Of batches that ended, by their tokens, and may come again."""
        self._run = secrets.token_hex(8)
        self._number = 0
        self._begun_at: deque[float] = deque()
        self._locked_since: float | None = None

    def open(self) -> Position | None:
        """As of Target."""
        self._begun.clear()
        self._begun_at.clear()
        self._acked.clear()
        try:
            told = self._link.open(**self._command)
        except ShovelError as error:
            self._look_at_lock(error)
            raise
        self._locked_since = None
        return unpack_position(told["position"])

    def _look_at_lock(self, error: ShovelError) -> None:
        """Later: what this shovel, or one that was killed, had at the server is just ending."""
        if "another shovel" in str(error):
            now = time.monotonic()
            self._locked_since = self._locked_since or now
            if now - self._locked_since < _LOCKED_S:
                raise Later(str(error)) from None

    def begin(self, batch: Batch) -> None:
        """As of Target."""
        token = self._tokens.get(id(batch))
        if token is None:
            self._number += 1
            # What came through one connection of the source cannot come again in it.
            token = self._tokens[id(batch)] = f"{self._run}.{batch.epoch}-{self._number}"
        asked = {
            "do": "begin",
            "token": token,
            "epoch": batch.epoch,
            "position": pack_position(batch.position),
            "dead": {str(index): reason for index, reason in batch.dead.items()},
            "tells": batch.acked is not None,
            "for_good": self._for_good(),
        }
        self._link.ask(asked, batch.items)
        self._begun.append(batch)
        self._begun_at.append(time.monotonic())

    def _for_good(self) -> list[str]:
        """Tokens of batches that never come again, which has not been told yet."""
        told = [token for token, acked in self._acked if acked.for_good]
        self._acked = [each for each in self._acked if not each[1].for_good]
        return told

    def ended(self, timeout: float) -> Batch | None:
        """As of Target."""
        if not self._begun:
            return None
        batch = self._begun[0]
        heard = self._link.hear(timeout, batch)
        if heard is None:
            if time.monotonic() - self._begun_at[0] > ANSWER_S:
                raise Later(f"{self.shown}: no answer for {ANSWER_S:g} s")
            return None
        self._begun.popleft()
        self._begun_at.popleft()
        if self._begun:  # the server begins with it now
            self._begun_at[0] = time.monotonic()
        batch.repeated, batch.dead_written = heard[0]["repeated"], heard[0]["dead_written"]
        token = self._tokens.pop(id(batch))
        if batch.acked is not None:
            self._acked.append((token, batch.acked))
        return batch

    def tend(self, _seconds: float) -> None:
        """As of Target: the server hears what never comes again."""
        told = [] if self._begun else self._for_good()
        if told:
            self._link.ask({"do": "tend", "for_good": told})
            self._tend()

    def _tend(self) -> None:
        """A failure is heard once more when a batch is begun."""
        with contextlib.suppress(Later, ShovelError):
            self._link.heard(None)

    def close(self) -> None:
        """As of Target."""
        with contextlib.suppress(Error, Later):
            self.tend(0)
        self._link.close()
