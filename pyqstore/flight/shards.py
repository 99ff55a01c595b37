"""One transaction at several servers: each of them commits its part, or none does.

All servers prepare a run before the first commits it.  Only the servers have a record of it.  A
later client with the same key asks all servers.  It finishes a run that all have prepared, or
undoes it once a server that has not prepared it has refused it.  So a client may die between any
two calls, and another one may work at the same time (``committing`` says why a run has only one
outcome).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import Error, PreconditionFailed
from ..sequences import listed
from .results import Staged, StagedCommit, TransactionState

if TYPE_CHECKING:
    from ..properties import Properties
    from .client import Client

__all__ = [
    "commit_prepared",
    "commit_run",
    "commit_shards",
    "new_run",
    "prepare_shards",
    "settle_shards",
]

_TRIES = 10
Prepare = Callable[[int], TransactionState]


def new_run() -> str:
    """A name for one try at a transaction."""
    return secrets.token_hex(16)


def settle_shards(clients: Sequence[Client], key: str) -> list[StagedCommit] | None:
    """Finish what earlier runs left under a transaction's key at all servers.

    Returns what each server published now, if the transaction is committed: it was committed
    before, or all had prepared it.  None: nothing is left, and a new run may begin.

    Raises PreconditionFailed: the run was prepared over another number of servers; some servers
    have the key, and others neither have it nor prepared it; or other clients keep working on it.
    Raises ConnectionLost, and nothing is lost.
    """
    clients = listed("clients", clients, object)
    for _ in range(_TRIES):
        states = [client.transaction_state(key) for client in clients]
        if any(state.committed for state in states):
            return _finish(clients, key)
        runs = {state.run for state in states}
        if runs == {None}:
            return None
        _check_shards(clients, key, states)
        if len(runs) == 1:
            return commit_prepared(clients, key, str(states[0].run))
        _undo(clients, key, states)
    raise _refusal(f"other runs of '{key}' are at work")


def prepare_shards(clients: Sequence[Client], key: str, run: str, prepare: Prepare) -> bool:
    """Have each server prepare the run; ``prepare`` is called with the server's number.

    False: another run was committed meanwhile, or is being committed.  Raises what ``prepare``
    raised, or PreconditionFailed if another run is at work; the run is then undone, as far as
    servers can be reached.
    """
    try:
        for number in range(len(clients)):
            state = prepare(number)
            if state.committed:
                return False
            if state.run != run:
                raise _refusal(f"another run of '{key}' is at work at {clients[number].url}")
    except BaseException:
        undo_run(clients, key, run)
        raise
    return True


def commit_prepared(
    clients: Sequence[Client], key: str, run: str, forgets: Sequence[str] = ()
) -> list[StagedCommit]:
    """Commit a run that all servers have prepared.  An exception has a note, and the call may be
    repeated."""
    done = []
    for client in clients:
        try:
            done.append(client.commit_prepared(key, run, forgets=forgets))
        except Error as error:
            error.add_note(
                f"at {client.url}: the transaction '{key}' is prepared at all servers; what is"
                " missing is published when it is committed again"
            )
            raise
    return done


def commit_shards(
    clients: Sequence[Client],
    transaction: str,
    staged: Sequence[Sequence[Staged]],
    exchange: str = "",
    routing_key: str | None = None,
    *,
    mandatory: bool = False,
    properties: Properties | None = None,
    key: str | None = None,
    forgets: Sequence[str] = (),
) -> list[StagedCommit]:
    """Publish at each server the attempts that were staged there: at all of them, or at none.

    ``clients``: the clients of all servers; ``staged``: the results of each client's ``stage``, in
    the same order; the other arguments are those of ``Client.commit_staged``.  If the key was
    committed, or an earlier run was prepared at all servers, that run is the transaction: its
    commit is completed, and the newly staged rows are dropped.  So the call may be repeated after
    any failure, with rows that are divided differently.  Returns what each server published now.

    Raises like ``Client.commit_staged`` and ``settle_shards``.
    """
    staged = listed("staged", staged, list, tuple)
    forgets = listed("forgets", forgets, str)
    if len(staged) != len(listed("clients", clients, object)):
        raise ValueError(f"{len(staged)} sequences of attempts for {len(clients)} servers")
    name = transaction if key is None else key

    def prepare(number: int, run: str) -> TransactionState:
        return clients[number].prepare_staged(
            transaction,
            staged[number],
            exchange,
            routing_key,
            run=run,
            shards=len(clients),
            mandatory=mandatory,
            properties=properties,
            key=key,
        )

    return commit_run(clients, transaction, name, prepare, forgets)


def commit_run(
    clients: Sequence[Client],
    transaction: str,
    key: str,
    prepare: Callable[[int, str], TransactionState],
    forgets: Sequence[str] = (),
) -> list[StagedCommit]:
    """``commit_shards`` for callers that prepare in their own way: ``prepare`` is called with a
    server's number and the run, and an exception of it ends the run."""
    run = new_run()
    done = settle_shards(clients, key)
    if done is None and prepare_shards(clients, key, run, lambda number: prepare(number, run)):
        return commit_prepared(clients, key, run, forgets)
    if done is None:
        done = settle_shards(clients, key)
    for client in clients:
        client.abort_staged(transaction)
    if done is None:
        raise _refusal(f"'{key}' was forgotten while it was committed")
    return done


def undo_run(clients: Sequence[Client], key: str, run: str) -> None:
    """Undo the run as far as servers can be reached, unless all have prepared it, or may have.
    Never raises an error of a server: the next run finds what stays."""
    for client in clients:
        with suppress(Error):
            if client.refuse_run(key, run):
                break
    else:
        return
    for client in clients:
        with suppress(Error):
            client.rollback_prepared(key, run)


def _undo(clients: Sequence[Client], key: str, states: Sequence[TransactionState]) -> None:
    """Undo the runs that are not prepared at all servers; another run may become prepared
    meanwhile."""
    for run in {state.run for state in states if state.run is not None}:
        outside = next(number for number, state in enumerate(states) if state.run != run)
        if clients[outside].refuse_run(key, run):
            for client in clients:
                client.rollback_prepared(key, run)


def _finish(clients: Sequence[Client], key: str) -> list[StagedCommit]:
    """Complete the commit of a run that one server has committed: all had prepared it before."""
    done = []
    for client in clients:
        state = client.transaction_state(key)
        if not state.committed and state.run is None:
            raise _refusal(
                f"'{key}' was committed at other servers, and {client.url} neither has it nor has"
                " prepared it: is this one of the same servers, and was it forgotten there?"
            )
        if state.committed:
            done.append(StagedCommit(False, 0, 0))
        else:
            done += commit_prepared([client], key, str(state.run))
    return done


def _check_shards(clients: Sequence[Client], key: str, states: Sequence[TransactionState]) -> None:
    for client, state in zip(clients, states, strict=True):
        if state.run is not None and state.shards != len(clients):
            raise _refusal(
                f"'{key}' is prepared at {client.url} as one of {state.shards} servers, and not of"
                f" {len(clients)}: name all of them"
            )


def _refusal(what: str) -> PreconditionFailed:
    return PreconditionFailed(406, f"PRECONDITION_FAILED - {what}")
