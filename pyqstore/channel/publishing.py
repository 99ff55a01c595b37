"""Publishing of batches, waiting for confirms, transactions."""

from __future__ import annotations

from ..errors import MessageReturned, PublishRefused, StoreFailed
from ..listings import Unconfirmed, unconfirmed_of
from ..message import Receipt, Transaction
from ..properties import Properties
from ..waiting import Deadline, Seconds, told
from .events import ANSWERS, Events

__all__ = ["Publishing"]


class Publishing(Events):
    """The verbs that publish and remember, or wait."""

    def publish_batch(
        self,
        data: object,
        exchange: str = "",
        routing_key: str | None = None,
        *,
        body: str = "body",
        mandatory: bool = False,
        properties: Properties | None = None,
    ) -> Receipt:
        """Publish every row of ``data``, in order, or nothing if anything in it is invalid.

        ``data`` is anything with the Arrow PyCapsule protocol: a pyarrow Table, RecordBatch or
        RecordBatchReader, a polars or pandas (2.2 or newer) DataFrame...  It is read in place,
        without the GIL.  Columns, by name:

        - the one named by ``body``: binary or string of any layout; no nulls.
        - ``exchange``, ``routing_key``: string or dictionary; where absent or null, the arguments
          here (None: "").
        - ``headers``: map<string, string>, or a struct of strings or lists of key and value, as
          frames make of dicts; without CC and BCC, which would be lists;
          ``message_id``, ``correlation_id``, ``type``, ``app_id``, ``content_type``,
          ``content_encoding``, ``reply_to``, ``user_id``: string or dictionary; ``priority``,
          ``delivery_mode``, ``expiration_ms``: integer, or whole floating-point numbers, as
          pandas has beside a missing one; ``timestamp``: timestamp, or seconds alike.  A column
          beats ``properties``.
        - ``due``: timestamp; the row is in its queues at once and delivered from then on, as with
          ``delay`` of ``basic_publish``.  Null, or over by now: at once.

        A timestamp without a zone is local time.

        What ``get_batch``, ``Store.browse``, ``Stream.read`` and ``poll`` return can be published
        as it is: columns that tell of a delivery (``delivery_tag``, ``redelivered``,
        ``delivery_count``, ``sequence``, ``unacked``, ``delayed``, ``offset``, ``stream``) are
        ignored, ``message_timestamp`` is the property ``timestamp``, and ``exchange`` and
        ``routing_key`` are where the messages were published the first time: drop or replace these
        two to send them elsewhere.  Any other column is refused, so that a misspelt name is
        noticed.  A message without a delivery mode is persistent.  Raises TypeError for other data;
        ValueError naming the column or row; as ``basic_publish`` otherwise.
        """
        if not isinstance(body, str):
            raise TypeError(f"body must be the name of a column, not {type(body).__name__}")
        if "\0" in body:
            raise ValueError("body must not contain a NUL character")
        key = "" if routing_key is None else routing_key
        export_array = getattr(data, "__arrow_c_array__", None)
        export_stream = getattr(data, "__arrow_c_stream__", None)
        if export_array is not None:
            schema, array = export_array()
            answer = self._publish_array(schema, array, exchange, key, body, properties, mandatory)
        elif export_stream is not None:
            answer = self._publish_stream(
                export_stream(), exchange, key, body, properties, mandatory
            )
        else:
            raise TypeError(
                "data must speak the Arrow PyCapsule protocol (__arrow_c_stream__ or"
                " __arrow_c_array__), as pyarrow, polars and pandas 2.2 do;"
                f" {type(data).__name__} does not"
            )
        first, last, count, lsn, unrouted, refused, refused_rows, refused_by = answer
        return Receipt(
            first,
            last,
            count,
            refused=refused,
            returned=unrouted if mandatory else 0,
            unroutable=0 if mandatory else unrouted,
            refused_rows=refused_rows,
            refused_by=refused_by,
            store=self._store,
            lsn=lsn,
            transaction=self._transaction,
        )

    @property
    def unconfirmed(self) -> Unconfirmed:
        """The publishes in confirm mode that are accepted and not yet confirmed.

        ``numbers``: ranges of their publish numbers, in order; ``queues``: the durable queues and
        streams that got them, sorted; ``publishes``: which numbers, by which exchange, wait for
        which of these, in order.  A moment later there may be fewer.  Publishes that a listener or
        ``wait_for_confirms`` has reported, or could report now, are not included.
        """
        return unconfirmed_of(self._unconfirmed())

    def wait_for_confirms(self, timeout: Seconds | None = None) -> bool:
        """Wait until every publish of this channel is confirmed or refused; then run the listeners.

        False if any was refused (nacked) since the last call; :attr:`refusal` says why.  Raises
        MessageReturned if no queue took a ``mandatory`` message published since the last call, and
        there is no return listener; the next call then reports refusals.  Raises TimeoutError,
        after running the listeners for events that came in time, PreconditionFailed outside confirm
        mode, and exceptions of listeners: the events behind stay queued.
        """
        deadline = Deadline(timeout, for_commit=True)
        heard = self._confirm_listeners or self._return_listeners or self._outcomes is not None
        while True:
            nacked = self._wait_confirms(deadline.slice_ns(), 0 if heard else ANSWERS)
            self._nacked = self._nacked or bool(nacked)
            if heard:
                self._run(ANSWERS)
            if nacked is not None:
                break
            if deadline.over:
                raise TimeoutError(f"not all publishes were confirmed within {told(timeout)}")
        returned = self._take_ignored_returns()
        if returned is not None:
            raise MessageReturned(*returned)
        # A wait that was interrupted behind the engine's call has told nobody.
        confirmed = not self._nacked and not self._refusals.are_untold
        self._nacked = False
        self._refusals.tell(confirmed)
        return confirmed

    @property
    def refusal(self) -> PublishRefused | StoreFailed | None:
        """Why publishes were refused (nacked): PublishRefused, whose ``queue`` is full, or the
        StoreFailed that the store failed with.

        It covers the refusals that the last ``wait_for_confirms`` reported, or, while a listener
        runs, those that came since; None: there were none.
        """
        return self._refusals.error

    def tx_select(self) -> None:
        """Buffer publishes and acknowledgements from here on, until ``tx_commit`` or
        ``tx_rollback``.

        PreconditionFailed on a channel in confirm mode.
        """
        self._tx_select()
        if self._transaction is None:
            self._transaction = Transaction(self)

    def tx_commit(self, *, key: str | None = None) -> bool:
        """Commit all publishes and acknowledgements since the last commit, atomically; they are
        durable when this returns.

        ``key`` (str, not empty) is recorded with the transaction.  If a transaction with this key
        was committed before, the buffered work is dropped and False is returned; True otherwise.
        """
        is_new = self._tx_commit(key)
        self._end_transaction(committed=True)
        return is_new

    def tx_rollback(self) -> None:
        """Drop the publishes since the last commit and undo the acknowledgements; nothing is
        requeued."""
        self._tx_rollback()
        self._end_transaction(committed=False)

    def _begin_transaction(self) -> bool:
        """Whether it was not transactional before."""
        if self._transaction is not None:
            return False
        self._tx_begin()
        self._transaction = Transaction(self)
        return True

    def _leave_transaction(self) -> None:
        """It is what it was before."""
        self._tx_end()
        self._transaction = None

    def _end_transaction(self, committed: bool) -> None:
        assert self._transaction is not None
        self._transaction.end(committed)
        self._transaction = Transaction(self)
