"""The commit of a job whose rows were staged at servers of Arrow Flight.

One server commits its rows at once.  Several have one transaction: all of them prepare it before
the first commits (``pyqstore.flight.commit_shards``), so a job that is repeated under its key, with
its rows dealt in whatever way, has the rows of one try at all servers, or of none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import WriterCommitMessage

from . import sink, to_stream
from .remote import Remote
from .sink import CommitReport, Job, UnroutableError

if TYPE_CHECKING:
    import pyqstore
    from pyqstore.flight.client import Client
    from pyqstore.flight.results import Staged, StagedCommit, TransactionState

_STATS_S = 5.0


@dataclass
class RemoteMessage(WriterCommitMessage):
    """What a task that finished tells the commit: what it staged, by shard."""

    staged: dict[int, Staged]
    query: str = ""


@dataclass
class _Outcome:
    """What each server did; ``fault``: why all of them refused; ``staged``: what was published, if
    it is this try's."""

    done: Sequence[StagedCommit]
    staged: Sequence[Sequence[Staged]] = ()
    fault: UnroutableError | None = None


def where(job: Job) -> tuple[str, str | None]:
    """The exchange and the routing key of rows that have none of their own."""
    return job.options.exchange, job.options.routing_key


def properties_of(job: Job) -> pyqstore.Properties:
    """Of rows that have none of their own."""
    import pyqstore

    return pyqstore.Properties(content_type=job.options.content_type, delivery_mode=2)


def settled(remote: Remote, key: str) -> bool:
    """Whether the transaction is committed; an earlier try at it that all servers have prepared is
    committed now.  Raises as ``pyqstore.flight.settle_shards``."""
    with _clients(remote) as clients:
        return _settle(clients, key) is not None


def commit(job: Job, remote: Remote, messages: Sequence[RemoteMessage]) -> CommitReport:
    """Publish exactly what the messages name, once, however often it is repeated.

    Raises:
        UnroutableError: mandatory, and no queue would take some of the messages; nothing of the job
            is published.
        StagingError: the key was known when the job began, and is not now.
        pyqstore.Error: a server refused, or is gone.
    """
    started = time.monotonic()
    staged: list[list[Staged]] = [[] for _ in range(remote.count)]
    for message in messages:
        for shard, each in message.staged.items():
            staged[shard].append(each)
    with _clients(remote) as clients:
        outcome = _commit(job, clients, staged)
        if outcome.fault is None:
            _forget(job, clients)
    report = _report(outcome, job, remote, started)
    if job.options.report:
        sink._write_report(job.options.report, report)
    if outcome.fault is not None:
        raise outcome.fault
    return report


@contextmanager
def _clients(remote: Remote) -> Iterator[list[Client]]:
    with ExitStack() as stack:
        yield [stack.enter_context(remote.client(shard)) for shard in range(remote.count)]


def _settle(clients: Sequence[Client], key: str) -> list[StagedCommit] | None:
    from pyqstore.flight import StagedCommit, settle_shards

    if len(clients) > 1:
        return settle_shards(clients, key)
    return [StagedCommit(False, 0, 0)] if clients[0].transaction_known(key) else None


def _commit(job: Job, clients: Sequence[Client], staged: Sequence[Sequence[Staged]]) -> _Outcome:
    for key in (*job.aliases, *((job.key,) if job.repeated else ())):
        done = _settle(clients, key)
        if done is not None:
            for client in clients:
                client.abort_staged(job.name)
            return _Outcome(done)
    if job.repeated:
        raise sink.not_the_same_store(job)
    for client in clients:
        to_stream.lead(client, client, job.options)
    return (_commit_all if len(clients) > 1 else _commit_one)(job, clients, staged)


def _forget(job: Job, clients: Sequence[Client]) -> None:
    """Once all have committed: until then what one has forgotten would count as undone."""
    for key in job.forgets:
        for client in clients:
            client.forget_transaction(key)


def _commit_one(
    job: Job, clients: Sequence[Client], staged: Sequence[Sequence[Staged]]
) -> _Outcome:
    done, fault = _try(job, clients[0], staged[0])
    return _Outcome([done], staged, fault)


def _try(
    job: Job, client: Client, staged: Sequence[Staged], dry_run: bool = False
) -> tuple[StagedCommit, UnroutableError | None]:
    """What one server did, and why it refused the rows."""
    import pyqstore
    from pyqstore.flight import StagedCommit

    try:
        done = client.commit_staged(job.name, staged, **_how(job), dry_run=dry_run)
    except (pyqstore.MessageReturned, pyqstore.Unroutable) as error:
        return StagedCommit(False, 0, error.count), _unroutable_at(client, staged, error)
    return done, None


def _commit_all(
    job: Job, clients: Sequence[Client], staged: Sequence[Sequence[Staged]]
) -> _Outcome:
    import pyqstore
    from pyqstore.flight import StagedCommit
    from pyqstore.flight.shards import commit_run

    tried: list[StagedCommit] = []  # of servers; one that has prepared takes all of its rows

    def prepare(number: int, run: str) -> TransactionState:
        state = clients[number].prepare_staged(
            job.name, staged[number], **_how(job), run=run, shards=len(clients)
        )
        tried.append(StagedCommit(False, 0, 0))
        return state

    try:
        return _Outcome(commit_run(clients, job.name, job.key, prepare), staged)
    except (pyqstore.MessageReturned, pyqstore.Unroutable) as error:
        first = len(tried)
        if first == len(clients):  # all have prepared it, and a queue went since
            raise
        fault = _unroutable_at(clients[first], staged[first], error)
        tried.append(StagedCommit(False, 0, error.count))
    # The report counts what all of them would not take.
    rest = zip(clients[first + 1 :], staged[first + 1 :], strict=True)
    tried += [_try(job, client, one, dry_run=True)[0] for client, one in rest]
    return _Outcome(tried, staged, fault)


def _how(job: Job) -> dict[str, Any]:
    exchange, routing_key = where(job)
    return {
        "exchange": exchange,
        "routing_key": routing_key,
        "mandatory": job.options.mandatory,
        "properties": properties_of(job),
        "key": job.key,
    }


def _unroutable_at(
    client: Client,
    staged: Sequence[Staged],
    error: pyqstore.MessageReturned | pyqstore.Unroutable,
) -> UnroutableError:
    rows = sum(each.rows for each in staged)
    _, _, routes = str(error).partition(f" of {rows} messages")  # if it names them
    return UnroutableError(
        f"no queue at {client.url} would take {error.count} of {rows} messages{routes}. "
        f"{sink.UNPUBLISHED}"
    )


def _report(outcome: _Outcome, job: Job, remote: Remote, started: float) -> CommitReport:
    """The same as of a job by path.  Files are those of this try, if it is what was published."""
    there = [each for each in outcome.done if each.committed]
    rows = sum(each.rows for each in there)
    files = [
        file
        for each, files in zip(outcome.done, outcome.staged, strict=False)
        for file in files
        if each.committed
    ]
    return CommitReport(
        key=job.key,
        committed=bool(there),
        rows=rows,
        routed=rows - sum(each.unroutable for each in there),
        unroutable=sum(each.unroutable for each in outcome.done),
        returned=sum(each.unroutable for each in outcome.done if not each.committed),
        files=len(files),
        bytes=sum(file.bytes for file in files),
        seconds=time.monotonic() - started,
        stats=_stats(remote) if job.options.report else {},
    )


def _stats(remote: Remote) -> dict[str, Any]:
    """The server's, by URL where there are several; without one that is gone by now."""
    import pyqstore

    found = {}
    for shard in range(remote.count):
        with suppress(pyqstore.Error), remote.client(shard, _STATS_S) as client:
            found[remote.url(shard)] = client._link.call("stats")
    return found if remote.count > 1 else next(iter(found.values()), {})
