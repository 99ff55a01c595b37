"""What a store must hold, from what its workers told.

A copy is announced, then confirmed or refused, then leaves: by an ack, a reject or a purge that is
announced, and done for good when it was durable.  What was under way when the process died may be
in either state; the next :meth:`Model.check` decides, and holds the store to it from then on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from .inspection import Found, Holding
from .messages import Copy, Name, name_of, priority_of
from .queues import DEAD, kind_of
from .story import Event

_TOLD_MOST = 50
_KEYS_KEPT = 40
_TORN_MOST = 8 * 2**20  # the blocks of one commit, with a body embedded in the last one


@dataclass
class State:
    """What is known of a copy."""

    life: int
    confirmed: bool = False
    refused: bool = False
    leaving: int | None = None
    """The life in which its end was announced."""
    gone: bool = False
    rejected: bool = False
    """May be a dead letter because a consumer rejected it."""
    must_be_dead: bool = False
    moved: bool = False
    """Published again by a repeated transaction: not in order."""
    out: bool = False
    """In somebody's hands in this life."""


@dataclass
class Transaction:
    """A commit that was begun.  ``happened``: None when nobody knows."""

    life: int
    published: list[Copy]
    acked: list[Copy] = field(default_factory=list)
    rejected: list[Copy] = field(default_factory=list)
    happened: bool | None = None
    before: bool | None = None
    """What was known of it when it was last repeated."""

    @property
    def repeatable(self) -> bool:
        return not self.acked and not self.rejected


def _copies(told: Iterable[Iterable[str]]) -> list[Copy]:
    return [(name, home) for name, home in told]


class Model:
    """Everything that the workers of a store told so far."""

    def __init__(self) -> None:
        self.life = 0
        self.phase = "none"
        self.was_open = False
        self.copies: dict[Copy, State] = {}
        self.transactions: dict[str, Transaction] = {}
        self.taking: Counter[str] = Counter()
        """Messages that gets without acks may have taken, by queue, when the process died."""
        self.queues: dict[str, bool | None] = {}
        """Whether an actor's own queue is there."""
        self.purging: dict[str, list[State]] = {}
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()

    def blame(self, text: str) -> None:
        if len(self.violations) < _TOLD_MOST:
            self.violations.append(f"life {self.life} ({self.phase}): {text}")

    # -- what was told --------------------------------------------------------------------------

    def begin_life(self) -> None:
        self.life += 1
        self.phase = "starting"
        for state in self.copies.values():
            state.out = False

    def read(self, events: Iterable[Event]) -> None:
        for _, what, detail in events:
            getattr(self, "_" + what.replace("-", "_"))(*detail)

    def _phase(self, phase: str) -> None:
        self.phase = phase
        if phase == "open":
            self.was_open = True
        if phase == "closed":  # in good order: everything that was announced is durable
            for state in self.copies.values():
                state.gone = state.gone or state.leaving == self.life

    def _wrong(self, text: str) -> None:
        self.blame(text)

    def _publish(self, copies: list[list[str]]) -> None:
        for copy in _copies(copies):
            self.copies[copy] = State(self.life)

    def _known(self, copy: Copy, what: str) -> State:
        state = self.copies.get(copy)
        if state is None:
            self.blame(f"{what} of {copy}, which was never published, or was gone long since")
            state = self.copies[copy] = State(self.life)
        return state

    def _confirm(self, copies: list[list[str]]) -> None:
        for copy in _copies(copies):
            self._known(copy, "a confirm").confirmed = True
            self.counts["confirmed"] += 1

    def _refuse(self, copies: list[list[str]]) -> None:
        for copy in _copies(copies):
            self._known(copy, "a refusal").refused = True
            self.counts["refused"] += 1

    def _got(self, queue: str, copies: list[list[str]]) -> None:
        for copy in _copies(copies):
            state = self._known(copy, f"a delivery from {queue}")
            if state.gone or state.leaving == self.life:
                self.blame(f"{copy} was delivered from {queue} after its end")
            if state.out:
                self.blame(f"{copy} was delivered from {queue} while somebody had it")
            if queue == DEAD and copy[1] != DEAD:
                self._check_death(copy, state, "")
            state.leaving = None  # it survived whatever had been announced
            state.out = True
            state.confirmed = state.confirmed or state.life < self.life
            self.counts["delivered"] += 1

    def _settle(self, copies: list[list[str]]) -> None:
        for copy in _copies(copies):
            state = self._known(copy, "an ack")
            state.leaving, state.out = self.life, False

    def _reject(self, copies: list[list[str]]) -> None:
        for copy in _copies(copies):
            state = self._known(copy, "a reject")
            state.rejected, state.out = True, False

    def _requeue(self, copies: list[list[str]]) -> None:
        for copy in _copies(copies):
            self._known(copy, "a requeue").out = False

    def _auto(self, queue: str, count: int) -> None:
        self.taking[queue] += count

    def _auto_got(self, queue: str, count: int, copies: list[list[str]]) -> None:
        self.taking[queue] -= count
        self._got(queue, copies)
        self._settle(copies)

    def _durable(self, copies: list[list[str]]) -> None:
        for copy in _copies(copies):
            self._known(copy, "a durable ack").gone = True
            self.counts["settled"] += 1

    def _begin(
        self,
        key: str,
        published: list[list[str]],
        acked: list[list[str]],
        rejected: list[list[str]],
    ) -> None:
        begun = Transaction(self.life, _copies(published), _copies(acked), _copies(rejected))
        self.transactions[key] = begun
        self._publish(published)
        for copy in begun.acked + begun.rejected:
            self._known(copy, "an ack in a transaction").out = False
        for copy in begun.rejected:
            self.copies[copy].rejected = True

    def _commit(self, key: str) -> None:
        self._happened(self.transactions[key])
        self.counts["transactions"] += 1

    def _repeat(self, key: str, published: list[list[str]]) -> None:
        transaction = self.transactions.get(key)
        if transaction is None:
            transaction = self.transactions[key] = Transaction(self.life, _copies(published))
        transaction.before = transaction.happened
        if transaction.happened is not True:
            transaction.happened = None
            for copy in transaction.published:
                self.copies.setdefault(copy, State(self.life)).moved = True

    def _repeated(self, key: str, committed: bool) -> None:
        transaction = self.transactions[key]
        if committed and transaction.before:
            self.blame(f"the transaction {key} was committed twice")
        if not committed and transaction.before is False:
            self.blame(f"the transaction {key} was known before it happened")
        if transaction.happened is not True:
            self._happened(transaction)
        self.counts["repeated transactions"] += 1

    def _happened(self, transaction: Transaction) -> None:
        transaction.happened = True
        for copy in transaction.published:
            state = self.copies.get(copy)
            if state is not None:
                state.confirmed = True
        for copy in transaction.acked:
            state = self._known(copy, "an ack in a transaction")
            state.gone, state.leaving = True, self.life
        for copy in transaction.rejected:
            state = self._known(copy, "a reject in a transaction")
            state.rejected = state.must_be_dead = True

    def _did_not_happen(self, transaction: Transaction) -> None:
        transaction.happened = False
        for copy in transaction.published:
            state = self.copies.get(copy)
            if state is not None:
                state.gone = True

    def _declare(self, queue: str) -> None:
        self.queues[queue] = True if self.queues.get(queue) else None

    def _declared(self, queue: str) -> None:
        self.queues[queue] = True

    def _of(self, queue: str) -> list[tuple[Copy, State]]:
        return [(copy, state) for copy, state in self.copies.items() if copy[1] == queue]

    def _purge(self, queue: str, unacked: list[list[str]]) -> None:
        """What was acknowledged before is not the purge's: it may have found nothing to do."""
        held = set(_copies(unacked))
        self.purging[queue] = [
            state for copy, state in self._of(queue) if copy not in held and state.leaving is None
        ]
        for state in self.purging[queue]:
            state.leaving = self.life

    def _purged(self, queue: str) -> None:
        for state in self.purging.pop(queue):
            state.gone = True

    def _delete(self, queue: str) -> None:
        self.queues[queue] = None
        for _, state in self._of(queue):
            state.leaving = self.life

    def _deleted(self, queue: str) -> None:
        self.queues[queue] = False
        for _, state in self._of(queue):
            state.gone = True

    # -- what is there --------------------------------------------------------------------------

    @property
    def open_keys(self) -> list[str]:
        """Keys of which the store must say whether they are known."""
        return [key for key in self.transactions if key.startswith("key")]

    def repeats(self, most: int = 10) -> list[tuple[str, list[Copy]]]:
        """Transactions to repeat with their keys: what is open first, then the latest."""
        known = [
            (key, transaction)
            for key, transaction in self.transactions.items()
            if key.startswith("key") and transaction.repeatable
        ]
        known.sort(key=lambda pair: (pair[1].happened is None, pair[1].life), reverse=True)
        return [(key, transaction.published) for key, transaction in known[:most]]

    def check(self, found: Found) -> None:
        """Compare with what is there, and take that for known from now on."""
        self.violations += [f"life {self.life} ({self.phase}): {text}" for text in found.wrong]
        self._check_torn(found)
        places = found.copies
        for key, transaction in self.transactions.items():
            self._decide(key, transaction, places, found)
        for copy, holdings in places.items():
            self._check_there(copy, holdings)
        self._check_missing(places)
        self._check_order(found)
        self._check_queues(found)
        self._learn(places)
        self.counts["checks"] += 1
        self.counts["messages looked at"] += len(places)

    def _check_torn(self, found: Found) -> None:
        if found.lost_bytes:
            self.blame(f"{found.lost_bytes} bytes of the journal were passed over")
        if found.torn_bytes > _TORN_MOST or (found.torn_bytes and self.phase == "closed"):
            self.blame(f"{found.torn_bytes} bytes were cut off")

    def _decide(
        self, key: str, transaction: Transaction, places: dict[Copy, list[Holding]], found: Found
    ) -> None:
        was = transaction.happened
        if key in found.keys:
            happened = found.keys[key]
            if was is not None and was != happened:
                self.blame(f"the key {key} is {'not ' * was}known, against what was promised")
        elif was is not None:
            return
        else:
            happened = any(copy in places for copy in transaction.published) or any(
                copy not in places and self._is_due(copy) for copy in transaction.acked
            )
        if was is None:
            self.counts["undecided transactions"] += 1
            self._happened(transaction) if happened else self._did_not_happen(transaction)

    def _check_there(self, copy: Copy, holdings: list[Holding]) -> None:
        state = self.copies.get(copy)
        queues = [holding.queue for holding in holdings]
        if state is None:
            self.blame(f"{copy} in {queues} was never published, or was gone long since")
            return
        if len(holdings) > 1:
            self.blame(f"{copy} is there {len(holdings)} times: {queues}")
        if state.gone:
            self.blame(f"{copy} in {queues} is back after its end was durable")
        dead = queues[0] == DEAD and copy[1] != DEAD
        if dead:
            self._check_death(copy, state, holdings[0].reason)
        if state.refused and "maxlen" not in kind_of(copy[1]).letters:
            self.blame(f"{copy} in {queues} was refused")
        if state.must_be_dead and not dead:
            self.blame(f"{copy} in {queues} was rejected in a transaction that was committed")

    def _check_death(self, copy: Copy, state: State, reason: str) -> None:
        possible = kind_of(copy[1]).letters - (frozenset() if state.rejected else {"rejected"})
        if (reason and reason not in possible) or not possible:
            self.blame(f"{copy} died ({reason or 'for whatever reason'}), which it could not")

    def _check_missing(self, places: dict[Copy, list[Holding]]) -> None:
        taken: Counter[str] = Counter()
        for copy, state in self.copies.items():
            if copy in places or not self._is_due(copy):
                continue
            taken[copy[1]] += 1
            if taken[copy[1]] > self._takers(copy[1]):
                self.blame(f"{copy} is LOST: {state}")

    def _is_due(self, copy: Copy) -> bool:
        """Whether it must be there: later lives may have settled what a transaction left."""
        state = self.copies.get(copy)
        return state is not None and state.confirmed and not state.gone and state.leaving is None

    def _takers(self, home: str) -> int:
        """How many copies of a home gets that were cut off may have: its own, and dead letters."""
        return self.taking[home] + (self.taking[DEAD] if kind_of(home).letters else 0)

    def _check_order(self, found: Found) -> None:
        for queue, names in found.order.items():
            if queue != DEAD:
                self._check_order_in(queue, [name_of(name) for name in names])

    def _check_order_in(self, queue: str, names: list[Name]) -> None:
        last: dict[tuple[int, str, int], Name] = {}
        newest: dict[int, int] = defaultdict(int)
        level_before = 255
        for name in names:
            state = self.copies.get((str(name), queue))
            if state is None or state.moved:
                continue
            level = priority_of(str(name)) if kind_of(queue).priorities else 0
            if level > level_before:
                self.blame(f"{queue}: {name} of priority {level} comes behind {level_before}")
            level_before = level
            before = last.get((*name.stream, level))
            if before is not None and before.number >= name.number:
                self.blame(f"{queue}: {name} comes behind {before}")
            if name.life < newest[level]:
                self.blame(f"{queue}: {name} comes behind messages of life {newest[level]}")
            last[(*name.stream, level)] = name
            newest[level] = max(newest[level], name.life)
        self._check_holes(queue, {(name.stream, name.number) for name in names})

    def _check_holes(self, queue: str, there: set[tuple[tuple[int, str], int]]) -> None:
        """Of what was published and not confirmed, a prefix is there."""
        if not kind_of(queue).keeps or self._takers(queue):
            return
        first_missing: dict[tuple[int, str], int] = {}
        in_transactions = {c for each in self.transactions.values() for c in each.published}
        for copy, state in self._of(queue):
            name = name_of(copy[0])
            if state.confirmed or state.gone or state.leaving or state.rejected:
                continue
            if copy in in_transactions or (name.stream, name.number) in there:
                continue
            first = first_missing.get(name.stream, name.number)
            first_missing[name.stream] = min(first, name.number)
        for stream, number in there:
            if number > first_missing.get(stream, number):
                self.blame(f"{queue}: {number} of {stream} is there, {first_missing[stream]} not")

    def _check_queues(self, found: Found) -> None:
        for queue, there in self.queues.items():
            if there is not None and there != (queue in found.order):
                self.blame(f"the queue {queue} is {'not ' * there}there")
            self.queues[queue] = queue in found.order

    def _learn(self, places: dict[Copy, list[Holding]]) -> None:
        for copy, state in list(self.copies.items()):
            if copy in places:
                state.confirmed, state.leaving, state.out = True, None, False
                state.refused = False  # that was seen to: it is like any other now
            else:
                del self.copies[copy]  # it must not come back
        self.taking.clear()
        for key in list(self.transactions)[:-_KEYS_KEPT]:
            del self.transactions[key]
