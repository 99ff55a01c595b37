"""Commits of staged rows.

Rows that were staged with a destination are in staged files, which the store adopts; others are
published in one transaction, which memory holds.

A transaction over several servers is prepared at each of them before the first commits.  A run, one
try at all of it, is committed when all servers have prepared it, and can be undone as soon as one
of them has refused it.  A server never prepares a run that it refused, nor refuses a run that it
prepared.  So exactly one of the two outcomes is possible for a run, for every client, and after any
failure.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ..channel import Channel
from ..errors import MessageReturned, PreconditionFailed, StoreCorrupt, Unroutable
from ..message import Receipt
from ..store import Store
from .failing import failure
from .preparing import Prepared, PreparedFolders
from .results import Staged, TransactionState
from .routes import Route
from .staging import Staging

__all__ = ["Committing"]

_ROUTES_NAMED = 5
_RUN_MAX = 64
_REFUSED = "flight-refused-"  # the key of a transaction without messages
# Of stores: a store may have several listeners, and each of them commits.
_TURNS = weakref.WeakKeyDictionary[Store, threading.Lock]()


class Committing:
    """The commits of a store."""

    def __init__(self, store: Store, staging: Staging) -> None:
        self._store = store
        self._staging = staging
        self._prepared = PreparedFolders(staging.root)
        self._turn = _TURNS.setdefault(store, threading.Lock())

    def sweep_done(self) -> None:
        """Remove prepared rows that are committed already, left by servers that were killed in
        between."""
        with self._turn:
            for prepared in self._prepared.every():
                if self._store.transaction_known(prepared.key):
                    self._prepared.drop(prepared.key)

    def commit(
        self,
        transaction: str,
        staged: Sequence[Sequence[Any]],
        exchange: str = "",
        routing_key: str | None = None,
        mandatory: bool = False,
        properties: str | None = None,
        key: str | None = None,
        forgets: Sequence[str] = (),
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """See ``Client.commit_staged``, also for exceptions."""
        job = _Job(
            self._store,
            self._staging,
            self._staging.folder(transaction),
            [Staged(*one) for one in staged],
            Route.of(exchange, routing_key, properties),
            mandatory,
        )
        name = _key_of(transaction, key)
        with self._turn:
            committed, unroutable = False, 0
            if not self._store.transaction_known(name):
                self._check_unprepared(name)
                committed, unroutable = job.try_out() if dry_run else job.commit(name)
            if not dry_run:
                self._staging.sweep(transaction)
                self._end(forgets)
        return _told(job, committed, unroutable)

    def state(self, key: str) -> list[Any]:
        """Like ``Client.transaction_state``."""
        with self._turn:
            return list(self._state(key))

    def prepare(
        self,
        transaction: str,
        staged: Sequence[Sequence[Any]],
        run: str,
        shards: int,
        exchange: str = "",
        routing_key: str | None = None,
        mandatory: bool = False,
        properties: str | None = None,
        key: str | None = None,
    ) -> list[Any]:
        """Like ``Client.prepare_staged``."""
        if type(shards) is not int or shards < 1:
            raise ValueError(f"shards must be 1 or more, not {shards!r}")
        prepared = Prepared(
            _key_of(transaction, key),
            _checked_run(run),
            shards,
            transaction,
            tuple(Staged(*one) for one in staged),
            Route.of(exchange, routing_key, properties),
            mandatory,
        )
        folder = self._staging.folder(transaction)
        job = self._job_of(prepared, folder)
        with self._turn:
            found = self._state(prepared.key)
            if found.committed or found.run is not None:
                return list(found)
            if self._store.transaction_known(_REFUSED + run):
                raise _refusal(f"the run {run} was refused: it is undone")
            job.try_out()
            job.check_files()
            self._prepared.keep(prepared, folder)
        return list(TransactionState(False, run, shards))

    def commit_prepared(self, key: str, run: str, forgets: Sequence[str] = ()) -> dict[str, Any]:
        """Like ``Client.commit_prepared``."""
        with self._turn:
            known, job, unroutable = self._store.transaction_known(key), None, 0
            prepared = self._prepared.find(key)
            if not known:
                if prepared is None or prepared.run != run:
                    raise _refusal(f"the run {run} of '{key}' is not prepared here")
                job = self._job_of(prepared, self._prepared.folder(key))
                known, unroutable = job.commit(key)
            self._prepared.drop(key)
            if prepared is not None:
                self._staging.sweep(prepared.transaction)
            self._end(forgets)
        return _told(job, job is not None and known, unroutable)

    def refuse(self, key: str, run: str) -> bool:
        """Like ``Client.refuse_run``."""
        _checked_run(run)
        with self._turn:
            found = self._state(key)
            if found.committed or found.run == run:
                return False
            self._refuse(run)
        return True

    def rollback(self, key: str, run: str) -> bool:
        """Like ``Client.rollback_prepared``."""
        _checked_run(run)
        with self._turn:
            found = self._state(key)
            if found.committed:
                return False
            self._refuse(run)
            if found.run == run:
                self._prepared.drop(key)
        return True

    def forget(self, key: str) -> int:
        """Like ``Client.forget_transaction``; committed rows cannot be taken for prepared ones
        afterwards."""
        with self._turn:
            if self._store.transaction_known(key):
                self._prepared.drop(key)
            return self._store.forget_transaction(key)

    def _state(self, key: str) -> TransactionState:
        if self._store.transaction_known(key):
            return TransactionState(True, None, 0)
        prepared = self._prepared.find(key)
        if prepared is None:
            return TransactionState(False, None, 0)
        return TransactionState(False, prepared.run, prepared.shards)

    def _refuse(self, run: str) -> None:
        self._store.adopt([], _REFUSED + run)

    def _check_unprepared(self, key: str) -> None:
        prepared = self._prepared.find(key)
        if prepared is not None:
            raise _refusal(
                f"'{key}' is prepared here as one of {prepared.shards} servers, by the run"
                f" {prepared.run}: commit_prepared commits that"
            )

    def _job_of(self, prepared: Prepared, folder: Path) -> _Job:
        return _Job(
            self._store,
            self._staging,
            folder,
            list(prepared.staged),
            prepared.route,
            prepared.mandatory,
        )

    def _end(self, forgets: Sequence[str]) -> None:
        self._staging.sweep_stale()
        for old in forgets:
            self._store.forget_transaction(old)


def _key_of(transaction: str, key: str | None) -> str:
    name = transaction if key is None else key
    if not name:
        raise ValueError("key must not be empty")
    return name


def _checked_run(run: str) -> str:
    if type(run) is not str or not run.isalnum() or not run.isascii() or len(run) > _RUN_MAX:
        raise ValueError(f"run {run!r}: expected 1 to {_RUN_MAX} of A-Z, a-z and 0-9")
    return run


def _refusal(what: str) -> PreconditionFailed:
    return PreconditionFailed(406, f"PRECONDITION_FAILED - {what}")


def _told(job: _Job | None, committed: bool, unroutable: int) -> dict[str, Any]:
    rows = job.rows if job is not None and committed else 0
    return {"committed": committed, "rows": rows, "unroutable": unroutable}


class _Job:
    """One commit."""

    def __init__(
        self,
        store: Store,
        staging: Staging,
        folder: Path,
        winners: list[Staged],
        route: Route,
        mandatory: bool,
    ) -> None:
        if len({one.partition for one in winners}) != len(winners):
            raise ValueError("two attempts at one partition were named")
        self._store = store
        self._staging = staging
        self._folder = folder
        self._winners = sorted(winners, key=lambda one: one.partition)
        self._route = route
        self._mandatory = mandatory
        for one in self._winners:
            if one.route not in (None, route.number):
                raise ValueError(
                    f"partition {one.partition} was staged for another exchange, routing key or"
                    " properties than its commit names"
                )
        routed = [one.route is not None for one in winners if one.rows]
        self._is_adopted = bool(routed) and all(routed)

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self._winners)

    def commit(self, key: str) -> tuple[bool, int]:
        """Return whether this committed, and the number of messages that no queue takes."""
        return self._adopt(key) if self._is_adopted else self._publish(key)

    def try_out(self) -> tuple[bool, int]:
        """Like ``commit``, but publish nothing: one batch at a time, so memory holds one batch."""
        unroutable, named = 0, dict[str, None]()
        with self._store.channel() as channel:
            channel.tx_select()
            for batch, receipt in self._published(channel):
                unroutable += receipt.unroutable
                if receipt.unroutable and self._is_adopted and len(named) < _ROUTES_NAMED:
                    named.update(dict.fromkeys(_nowhere(channel, batch)))
                channel.tx_rollback()
        if unroutable and self._mandatory:
            raise self._refusal(unroutable, list(named))
        return False, unroutable

    def check_files(self) -> None:
        """The files exist, with the staged contents."""
        self._paths()

    def _paths(self) -> list[Path]:
        return [self._staging.path_of(self._folder, one) for one in self._winners if one.rows]

    def _adopt(self, key: str) -> tuple[bool, int]:
        try:
            done = self._store.adopt(self._paths(), key, mandatory=self._mandatory)
        except FileNotFoundError as error:  # swept since
            raise StoreCorrupt(f"{error}; nothing is published") from error
        return done.committed, done.unroutable

    def _publish(self, key: str) -> tuple[bool, int]:
        with self._store.channel() as channel:
            channel.tx_select()
            unroutable = sum(receipt.unroutable for _, receipt in self._published(channel))
            if unroutable and self._mandatory:
                channel.tx_rollback()
                raise self._refusal(unroutable, [])
            return channel.tx_commit(key=key), unroutable

    def _published(self, channel: Channel) -> Iterator[tuple[pa.RecordBatch, Receipt]]:
        """Each batch, published in the open transaction."""
        for one in self._winners:
            rows = 0
            for batch in self._staging.read(self._folder, one):
                try:
                    receipt = self._publish_batch(channel, one, batch)
                except Exception as error:
                    of = f"partition {one.partition}, attempt {one.attempt}, "
                    raise failure(error, rows_before=rows, of=of) from error
                yield batch, receipt
                rows += batch.num_rows
            if rows != one.rows:
                raise ValueError(f"partition {one.partition} has {rows} rows, not {one.rows}")

    def _publish_batch(self, channel: Channel, one: Staged, batch: pa.RecordBatch) -> Receipt:
        if one.route is not None:  # each row of a staged file has all of its own
            return channel.publish_batch(batch)
        route = self._route
        return channel.publish_batch(
            batch, route.exchange, route.routing_key, properties=route.decoded()
        )

    def _refusal(self, unroutable: int, named: list[str]) -> Exception:
        if not self._is_adopted:
            return MessageReturned(None, unroutable)
        routes = "; ".join(named[:_ROUTES_NAMED])
        words = f": {routes}" if named else " (their headers decide where they go)"
        return Unroutable(
            406,
            f"PRECONDITION_FAILED - no queue would take {unroutable} of {self.rows} messages"
            f"{words}",
            unroutable,
        )


def _nowhere(channel: Channel, batch: pa.RecordBatch) -> Iterator[str]:
    """A text with the first routes of its rows that lead to no queue."""
    seen, found = set(), 0
    exchanges, keys = batch["exchange"].to_pylist(), batch["routing_key"].to_pylist()
    for row, route in enumerate(zip(exchanges, keys, strict=True)):
        if found < _ROUTES_NAMED and route not in seen:
            seen.add(route)
            if channel.publish_batch(batch.slice(row, 1)).unroutable:
                found += 1
                yield f"exchange '{route[0]}', routing key '{route[1]}'"
