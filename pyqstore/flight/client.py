"""A client of a store that another process owns."""

from __future__ import annotations

import base64
import operator
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pyarrow import flight  # type: ignore[import-untyped, unused-ignore]

from ..channel.arguments import warn_of_unknown
from ..closing import Closing
from ..errors import ChannelClosed
from ..fields import FieldValue
from ..figures import QueueStatus
from ..message import DeclareOk, Receipt
from ..properties import Properties
from ..sequences import listed
from ..stream import stream_arguments
from ..waiting import Deadline, Seconds
from .dialing import Dial
from .link import Link
from .receiving import one_batch
from .remote_stream import RemoteStream
from .results import Staged, StagedCommit, TransactionState
from .wire import WINDOW, pack, pack_properties, pack_table

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

__all__ = ["Client"]

_SLICE_S = 1.0


def _partition(number: int) -> int:
    if isinstance(number, bool):
        raise TypeError("partition must be int, not bool")
    return operator.index(number)


class Client(Closing):
    """A store at the other end of a connection, from ``pyqstore.connect``.  One thread at a time
    may use it.

    The methods are those of ``Channel``, ``Store`` and ``Stream``, with the same columns, and raise
    the same exceptions.  An error of the connection is ConnectionLost: it is then unknown whether
    the call was done.  Unacknowledged messages return to their queues when the client is closed or
    its connection ends.  In a child of ``fork()`` each method raises ForkedStore, and ``close``
    does nothing.
    """

    def __init__(self, dial: Dial, timeout: Seconds = 10.0) -> None:
        """See ``pyqstore.connect``."""
        self._link = Link(dial, timeout)
        self._key: str | None = None

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self._link.dial.url!r}{' (closed)' if self.closed else ''}>"
        )

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self._link.dial.url

    @property
    def closed(self) -> bool:
        """Whether the client was closed."""
        return self._link.closed

    def close(self) -> None:
        """Requeue unacknowledged messages.  Closing twice is fine."""
        self._link.close()

    def token(self) -> str:
        """A token that ``pyqstore.connect`` accepts for this user for a day, or until the server
        ends.  ValueError: the client has no user."""
        kind, _, credentials = self._link.dial.authorization.partition(" ")
        if kind != "Basic":
            raise ValueError("the client has no user's name and password: there is no token")
        name, _, password = base64.b64decode(credentials).decode().partition(":")
        with self._link.dial.answers():
            _, value = self._link.open().authenticate_basic_token(name, password)
        return str(value.decode()).removeprefix("Bearer ")

    # Declaring and asking.

    def exchange_declare(
        self,
        exchange: str,
        exchange_type: str = "direct",
        *,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, FieldValue] | None = None,
    ) -> None:
        """Like ``Channel.exchange_declare``."""
        self._link.call(
            "exchange_declare",
            exchange=exchange,
            exchange_type=exchange_type,
            passive=passive,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=pack_table(arguments),
        )

    def exchange_delete(self, exchange: str, if_unused: bool = False) -> None:
        """Like ``Channel.exchange_delete``."""
        self._link.call("exchange_delete", exchange=exchange, if_unused=if_unused)

    def queue_declare(
        self,
        queue: str = "",
        *,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, FieldValue] | None = None,
    ) -> DeclareOk:
        """Like ``Channel.queue_declare``; an exclusive queue goes with the client."""
        if exclusive:
            self._hold()
        answer = DeclareOk(
            *self._link.call(
                "queue_declare",
                connection=self._key,
                queue=queue,
                passive=passive,
                durable=durable,
                exclusive=exclusive,
                auto_delete=auto_delete,
                arguments=pack_table(arguments),
            )
        )
        warn_of_unknown(answer.queue, arguments, stacklevel=2)
        return answer

    def queue_bind(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        arguments: Mapping[str, FieldValue] | None = None,
    ) -> None:
        """Like ``Channel.queue_bind``."""
        self._link.call(
            "queue_bind",
            connection=self._key,
            queue=queue,
            exchange=exchange,
            routing_key=routing_key,
            arguments=pack_table(arguments),
        )

    def queue_purge(self, queue: str) -> int:
        """Like ``Channel.queue_purge``."""
        return int(self._link.call("queue_purge", connection=self._key, queue=queue))

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False) -> int:
        """Like ``Channel.queue_delete``."""
        return int(
            self._link.call(
                "queue_delete",
                connection=self._key,
                queue=queue,
                if_unused=if_unused,
                if_empty=if_empty,
            )
        )

    def queues(self) -> list[str]:
        """Like ``Store.queues``."""
        return list(self._link.call("queues"))

    def queue_status(self, name: str) -> QueueStatus:
        """Like ``Store.queue_status``."""
        return QueueStatus(**self._link.call("queue_status", name=name))

    # Publishing.

    def publish_batch(
        self,
        data: object,
        exchange: str = "",
        routing_key: str | None = None,
        *,
        body: str = "body",
        mandatory: bool = False,
        properties: Properties | None = None,
        window: int = WINDOW,
    ) -> Receipt:
        """Publish every row of ``data``, in order.  Persistent rows are durable when this returns,
        except for rows that a full queue refused: for them ``Receipt.wait`` raises.

        ``data`` and its columns: see ``Channel.publish_batch``.  The data is sent in messages of
        about 8 MiB, at most ``window`` of them without a confirm.  Each message is published whole
        or not at all.  If one fails, those before it are published, and a note of the exception
        says how many rows had been confirmed.  For all or nothing use ``stage`` and
        ``commit_staged``.

        Raises like ``Channel.publish_batch``; ConnectionLost.
        """
        command = pack(
            "publish",
            connection=self._key,
            exchange=exchange,
            routing_key=routing_key,
            body=body,
            mandatory=mandatory,
            properties=pack_properties(properties),
            window=window,
        )
        return self._link.publish(command, data, window)

    # Publishing in two phases.

    def stage(
        self,
        data: object,
        transaction: str,
        partition: int,
        attempt: int | str,
        exchange: str | None = None,
        routing_key: str | None = None,
        *,
        properties: Properties | None = None,
    ) -> Staged:
        """Send rows to the server, durably, to wait for ``commit_staged``.

        ``transaction``: a name; ``partition``: partitions are published in the order of these
        numbers; ``attempt``: of A-Z, a-z and 0-9, one for each try at a partition.  Rows that no
        commit names are removed: by the transaction's commit, by ``abort_staged``, or after seven
        days.

        ``exchange``, ``routing_key``, ``properties``: those of the later commit.  If one of them is
        given, the server checks each row now and writes the rows in the form of ``Store.adopt``, so
        the commit does not read them again.  Rows that a staged file cannot hold (``StagedWriter``)
        then raise ValueError; rows with a column ``due`` wait for the commit.
        """
        if isinstance(attempt, bool) or not isinstance(attempt, int | str):
            raise TypeError(f"attempt must be int or str, not {type(attempt).__name__}")
        command = pack(
            "stage",
            transaction=transaction,
            partition=_partition(partition),
            attempt=str(attempt),
            exchange=exchange,
            routing_key=routing_key,
            properties=pack_properties(properties),
        )
        answer = self._link.send(command, data, WINDOW, lambda _: None)
        return Staged(*answer["staged"])

    def commit_staged(
        self,
        transaction: str,
        staged: Sequence[Staged],
        exchange: str = "",
        routing_key: str | None = None,
        *,
        mandatory: bool = False,
        properties: Properties | None = None,
        key: str | None = None,
        forgets: Sequence[str] = (),
        dry_run: bool = False,
    ) -> StagedCommit:
        """Publish exactly these attempts, one of each partition, in one transaction, durable when
        this returns.

        ``key``: the transaction's key (by default its name).  If the key was committed before,
        nothing is published, so the call may be repeated, also after ConnectionLost.  ``forgets``:
        keys to forget with the commit.  ``mandatory``: if no queue takes some of the messages,
        nothing is published, and Unroutable names the first routes, or, if a ``stage`` had no
        destination, MessageReturned is raised.  ``dry_run``: nothing is published, but everything
        is checked.

        Raises like ``Channel.publish_batch``, with columns as there; StoreCorrupt: an attempt was
        not staged here, or is damaged; ValueError: the exchange, the routing key or the properties
        differ from those of a ``stage``.  Nothing is published then.
        """
        answer = self._link.call(
            "commit_staged",
            transaction=transaction,
            staged=[list(one) for one in listed("staged", staged, tuple)],
            exchange=exchange,
            routing_key=routing_key,
            mandatory=mandatory,
            properties=pack_properties(properties),
            key=key,
            forgets=listed("forgets", forgets, str),
            dry_run=dry_run,
        )
        return StagedCommit(**answer)

    def abort_staged(self, transaction: str) -> None:
        """Remove the staged rows; committed rows stay."""
        self._link.call("abort_staged", transaction=transaction)

    def transaction_known(self, key: str) -> bool:
        """Like ``Store.transaction_known``."""
        return bool(self._link.call("transaction_known", key=key))

    def forget_transaction(self, key: str) -> int:
        """Like ``Store.forget_transaction``."""
        return int(self._link.call("forget_transaction", key=key))

    # A transaction over several servers, each of which prepares its part before the first commits.

    def transaction_state(self, key: str) -> TransactionState:
        """Whether the key is known, or a run is prepared under it."""
        return TransactionState(*self._link.call("transaction_state", key=key))

    def prepare_staged(
        self,
        transaction: str,
        staged: Sequence[Staged],
        exchange: str = "",
        routing_key: str | None = None,
        *,
        run: str,
        shards: int,
        mandatory: bool = False,
        properties: Properties | None = None,
        key: str | None = None,
    ) -> TransactionState:
        """Have the server promise to commit these attempts.  They are checked now, and kept
        unchanged until ``commit_prepared`` or ``rollback_prepared``.

        ``run``: of A-Z, a-z and 0-9, another one for each try at the whole transaction; ``shards``:
        the number of servers that prepare the run.  The other arguments are those of
        ``commit_staged``.  If the key was committed, or another run is prepared under it, that
        state stays, and is returned.  May be repeated.

        Raises like ``commit_staged``; PreconditionFailed: the run was refused.
        """
        told = self._link.call(
            "prepare_staged",
            transaction=transaction,
            staged=[list(one) for one in listed("staged", staged, tuple)],
            run=run,
            shards=operator.index(shards),
            exchange=exchange,
            routing_key=routing_key,
            mandatory=mandatory,
            properties=pack_properties(properties),
            key=key,
        )
        return TransactionState(*told)

    def commit_prepared(self, key: str, run: str, *, forgets: Sequence[str] = ()) -> StagedCommit:
        """Publish what the run prepared under the key.  Call this only when all servers have
        prepared it: a commit cannot be undone.  Repeated, it publishes nothing.

        ``forgets``: see ``commit_staged``.  Raises like ``commit_staged``, and the run stays
        prepared; PreconditionFailed: the run is not prepared here.
        """
        keys = listed("forgets", forgets, str)
        answer = self._link.call("commit_prepared", key=key, run=run, forgets=keys)
        return StagedCommit(**answer)

    def refuse_run(self, key: str, run: str) -> bool:
        """Have the server promise never to prepare a run, so that other servers can roll it back.
        False: the run is prepared here, or the key was committed; nothing is promised."""
        return bool(self._link.call("refuse_run", key=key, run=run))

    def rollback_prepared(self, key: str, run: str) -> bool:
        """Remove what a run prepared, if anything, and refuse the run.  Call this only when another
        server has refused the run.  False: the key was committed, and nothing changes."""
        return bool(self._link.call("rollback_prepared", key=key, run=run))

    # Receiving.

    def get_batch(
        self,
        queue: str,
        max_messages: int = 65536,
        *,
        max_bytes: int | None = None,
        auto_ack: bool = False,
        timeout: Seconds | None = 0.0,
    ) -> pyarrow.RecordBatch:
        """Like ``Channel.get_batch``, with 64 MiB of bodies at most.

        Raises ChannelClosed if the connection was lost since the first call, or a call on it was
        wrong: unacknowledged messages were requeued.
        """
        key, dial = self._hold(), self._link.dial
        deadline = Deadline(timeout)
        while True:
            ticket = pack(
                "get_batch",
                connection=key,
                queue=queue,
                max_messages=operator.index(max_messages),
                max_bytes=None if max_bytes is None else operator.index(max_bytes),
                auto_ack=auto_ack,
                timeout=min(_SLICE_S, deadline.left_s()),
            )
            with dial.answers():
                batch = one_batch(self._link.open().do_get(flight.Ticket(ticket), dial.options()))
            if len(batch) > 0 or deadline.over:
                return batch

    def ack(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        """Like ``Channel.basic_ack``."""
        self._settle(delivery_tag, multiple)

    def nack(
        self,
        delivery_tag: int = 0,
        multiple: bool = False,
        requeue: bool = True,
        *,
        delay: float | timedelta | None = None,
    ) -> None:
        """Like ``Channel.basic_nack``."""
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        self._settle(delivery_tag, multiple, requeue=requeue, delay=seconds)

    def _settle(self, delivery_tag: int, multiple: bool, **how: Any) -> None:
        if self._key is None:
            raise ChannelClosed("nothing was got with this client: there is nothing to settle")
        self._link.call(
            "settle", connection=self._key, delivery_tag=delivery_tag, multiple=multiple, **how
        )

    def browse(
        self, queue: str, start: int = 0, limit: int | None = None
    ) -> Iterator[pyarrow.RecordBatch]:
        """Like ``Store.browse``."""
        ticket = pack("browse", queue=queue, start=start, limit=limit)
        return self._link.get(ticket)[1]

    def stream(
        self,
        name: str,
        *,
        max_age: str | Seconds | None = None,
        max_length_bytes: int | None = None,
        max_messages: int | None = None,
        segment_bytes: int | None = None,
    ) -> RemoteStream:
        """The stream ``name``; declares it like ``Store.stream``."""
        arguments = stream_arguments(max_age, max_length_bytes, max_messages, segment_bytes)
        self._link.call("stream_declare", name=name, arguments=pack_table(arguments))
        return RemoteStream(self._link, name)

    # The connection.

    def _hold(self) -> str:
        """The key of this client's deliveries at the server, which this keeps there."""
        if self._key is None:
            ticket, dial = flight.Ticket(pack("hold")), self._link.dial
            with dial.answers():
                holding = self._link.open().do_get(ticket, dial.options())
                self._key = holding.read_chunk().data["connection"][0].as_py()
            self._link.keep(holding)
        return self._key
