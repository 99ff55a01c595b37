# Publishing, one by one and in batches; confirms; transactions.
cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.unicode cimport PyUnicode_Check
from libc.stdint cimport uint32_t, uint64_t

from .errors import PreconditionFailed


cdef Py_ssize_t REFUSALS_NOTED = 64


cdef class Refused:
    """The nacks of a channel since its user last heard of some: a list of (publish number, how many
    publishes, the name of the full queue, or None if the store failed).

    A nack is noted where no Python runs: no signal handler raises between the event and the note.
    """
    cdef readonly list notes
    cdef public bint is_told

    def __cinit__(self):
        self.notes = []

    cdef int note(self, uint64_t number, uint64_t count, queue) except -1:
        """``count`` publishes were refused, ``number`` the last of them.  If the list is full, its
        last entry counts them."""
        cdef Py_ssize_t last
        if self.is_told:
            self.notes.clear()
            self.is_told = False
        last = len(self.notes) - 1
        if last + 1 < REFUSALS_NOTED:
            self.notes.append((number, count, queue))
            return 0
        before = <tuple>self.notes[last]
        self.notes[last] = (before[0], before[1] + count, None if queue is None else before[2])
        return 0


@cython.no_gc_clear
cdef class PublishingChannel(DeclaringChannel):
    """Publishing, confirms and transactions."""
    cdef readonly Refused _refused
    cdef bint confirms
    # A mandatory message led nowhere: there may be an ignored return.
    cdef bint led_nowhere
    cdef readonly Outcomes _outcomes  # None: there are no outcome listeners

    def __cinit__(self, *_, **__):
        self._refused = Refused.__new__(Refused)

    def confirm_select(self):
        """Number the publishes of this channel from 1 and confirm each once it is durable.

        PreconditionFailed on a channel with transactions.
        """
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_channel_confirm_select(self.handle, &error)
        self.end(status, &error)
        self.confirms = True

    @property
    def next_publish_number(self):
        """The number the next publish gets; 0 outside confirm mode."""
        cdef uint64_t number
        self.enter()
        with nogil:
            number = qs_channel_next_publish_number(self.handle)
        self.leave()
        return number

    def _listen_to_outcomes(self, callback):
        """Have ``callback`` called with the outcome of each later publish."""
        if self._outcomes is None:
            self._outcomes = Outcomes.__new__(Outcomes)
        self._outcomes.listen(callback)

    def _unconfirmed(self):
        """Ranges of publish numbers that wait for a confirm: first (first number, last number, b"",
        b"", b"") for each, then (first number, last number, b"1", exchange, queue) for each queue.
        Numbers are 8 bytes in the machine's order."""
        cdef Listing listing = Listing(NULL, 0, 0, False)
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_channel_visit_unconfirmed(self.handle, visit_unconfirmed, &listing, &error)
        rows = listing_rows(&listing, 5)
        self.end(status, &error)
        return rows

    cdef object publish(self, object exchange, object routing_key, object properties, qs_slice body,
                        uint32_t flags, uint64_t delay_us, object correlation):
        cdef qs_slice name
        cdef qs_slice key
        cdef qs_slice blob
        cdef qs_receipt receipt
        cdef qs_error error
        cdef qs_status status
        cdef bint returned
        flags |= self.no_wait
        name_slice(exchange, "exchange", &name)
        text_slice(routing_key, "routing_key", &key)
        properties_slice(properties, &blob)
        self.begin(&error)
        with nogil:
            status = qs_channel_publish(self.handle, name, key, blob, body, flags, delay_us,
                                        &receipt, &error)
        self.end(status, &error)
        returned = receipt.unrouted_count > 0 and (flags & QS_MANDATORY) != 0
        if returned:
            self.led_nowhere = True
        if self._outcomes is not None and receipt.first_number > 0:
            self._outcomes.note(receipt.first_number, correlation, returned)
        return receipt.first_number

    def basic_publish(self, exchange, routing_key, body, properties=None, bint mandatory=False,
                      bint immediate=False, *, delay=None, correlation=None):
        """Hand one message to the queues that ``exchange``, ``routing_key`` and headers lead to.

        The headers CC and BCC are lists of further routing keys.  The message does not keep BCC.

        ``body`` is bytes, any object with the buffer protocol (C-contiguous, taken byte by byte),
        or str (as UTF-8).  Each byte of it is copied once: the message may have some of the bytes
        that another thread changes meanwhile.  ``properties`` is a Properties; ``delivery_mode=2``
        in it makes the message survive a restart in a durable queue.  A message that no queue takes
        is dropped.  With ``mandatory`` it is returned to the return listeners; in confirm mode
        without a listener ``wait_for_confirms`` raises MessageReturned.
        ``immediate`` is refused, as by RabbitMQ: NotImplementedByBroker.

        ``delay`` (seconds, or a timedelta): the message is in its queues at once, as durable as
        any other, and is not delivered before that time is over, even after a crash.  It holds no
        other message back.  Then it takes the place at which it was published, and its time to
        live begins.

        ``correlation``: any object; outcome listeners get it with the outcome of this publish.

        Returns the publish number in confirm mode, else 0.  The message is not durable yet: wait
        for its confirm. Blocks while too much waits to be synced.  Raises NotFound (no such
        exchange), AccessRefused (an internal one), PreconditionFailed (too large, or CC or BCC is
        no list), StoreFull (nothing accepted, try again), StoreFailed, TypeError, ValueError.
        """
        cdef qs_slice data
        cdef Py_buffer view
        cdef uint32_t flags = ((QS_MANDATORY if mandatory else 0)
                               | (QS_IMMEDIATE if immediate else 0))
        cdef uint64_t delay_us = 0
        if delay is not None:
            delay_of(delay, &delay_us)
        if PyBytes_Check(body):
            data.data = PyBytes_AS_STRING(body)
            data.bytes = <size_t>PyBytes_GET_SIZE(body)
            return self.publish(exchange, routing_key, properties, data, flags | QS_BODY_CONSTANT,
                                delay_us, correlation)
        if PyUnicode_Check(body):
            text_slice(body, "body", &data)
            return self.publish(exchange, routing_key, properties, data, flags | QS_BODY_CONSTANT,
                                delay_us, correlation)
        if not PyObject_CheckBuffer(body):
            raise TypeError(f"body must be bytes, str or another buffer, not {type(body).__name__}")
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        try:
            data.data = view.buf
            data.bytes = <size_t>view.len
            return self.publish(exchange, routing_key, properties, data, flags, delay_us,
                                correlation)
        finally:
            PyBuffer_Release(&view)

    def _publish_anywhere(self, str exchange not None, bytes routing_key not None,
                          bytes properties not None, bytes body not None):
        """Publish to an exchange that may be internal.  The key is any bytes; the properties are
        encoded.  Raises as basic_publish does."""
        cdef qs_slice name
        cdef qs_slice key = bytes_slice(routing_key)
        cdef qs_slice blob = bytes_slice(properties)
        cdef qs_slice data = bytes_slice(body)
        cdef qs_receipt receipt
        cdef qs_error error
        cdef qs_status status
        name_slice(exchange, "exchange", &name)
        self.begin(&error)
        with nogil:
            status = qs_channel_publish(self.handle, name, key, blob, data,
                                        QS_INTERNAL | QS_BODY_CONSTANT, 0, &receipt, &error)
        self.end(status, &error)

    cdef tuple publish_arrays(self, const ArrowSchema *schema, const ArrowArray **arrays,
                              size_t array_count, object exchange, object routing_key, str body,
                              object properties, bint mandatory):
        cdef qs_batch batch
        cdef qs_slice column
        cdef qs_receipt receipt
        cdef qs_error error
        cdef qs_status status
        name_slice(exchange, "exchange", &batch.exchange)
        text_slice(routing_key, "routing_key", &batch.routing_key)
        text_slice(body, "body", &column)
        properties_slice(properties, &batch.properties)
        batch.schema = schema
        batch.arrays = <const ArrowArray *const *>arrays
        batch.array_count = array_count
        batch.body_column = <const char *>column.data
        batch.flags = QS_MANDATORY if mandatory else 0
        batch.utc_of = utc_of_local
        self.begin(&error)
        with nogil:
            status = qs_channel_publish_batch(self.handle, &batch, &receipt, &error)
        self.end(status, &error)
        if receipt.unrouted_count > 0 and mandatory:
            self.led_nowhere = True
        refused_rows = tuple([receipt.refused_rows[i] for i in
                              range(min(receipt.refused_count, QS_RECEIPT_ROWS))])
        return (receipt.first_number, receipt.last_number, receipt.count, receipt.lsn,
                receipt.unrouted_count, receipt.refused_count, refused_rows,
                receipt.refused_queue.decode("utf-8", "replace"))

    def _publish_array(self, schema, array, exchange, routing_key, str body not None, properties,
                       bint mandatory):
        """Publish one record batch, which is given as its two capsules.  Returns (first number,
        last number, count, lsn, how many rows led nowhere, how many were refused, the first of
        these, the queue that refused the first)."""
        cdef ArrowSchema *c_schema = <ArrowSchema *>PyCapsule_GetPointer(schema, "arrow_schema")
        cdef const ArrowArray *c_array
        c_array = <const ArrowArray *>PyCapsule_GetPointer(array, "arrow_array")
        if c_schema.release == NULL or c_array.release == NULL:
            raise ValueError("the Arrow data was released already")
        return self.publish_arrays(c_schema, &c_array, 1, exchange, routing_key, body, properties,
                                   mandatory)

    def _publish_stream(self, stream, exchange, routing_key, str body not None, properties,
                        bint mandatory):
        """As _publish_array, for all record batches of a stream's capsule."""
        cdef ArrowChunks chunks = ArrowChunks.__new__(ArrowChunks)
        cdef ArrowArrayStream *c_stream
        c_stream = <ArrowArrayStream *>PyCapsule_GetPointer(stream, "arrow_array_stream")
        if c_stream.release == NULL:
            raise ValueError("the Arrow stream was released already")
        chunks.fill(c_stream)
        return self.publish_arrays(&chunks.schema, chunks.pointers, chunks.count, exchange,
                                   routing_key, body, properties, mandatory)

    def _wait_confirms(self, uint64_t timeout_ns, uint32_t drop):
        """Whether any publish was nacked since the last call; None when the wait timed out.

        Events of the kinds ``drop`` are forgotten; only the reasons of nacks are noted.  This call
        takes them because a publisher that waits mostly has no listeners, and each call acquires
        the GIL again.
        """
        cdef c_bool nacked = False
        cdef qs_event event
        cdef qs_error error
        cdef qs_status status
        cdef qs_status dropped = QS_EEMPTY
        self.begin(&error)
        if not self.confirms:
            self.leave()
            raise PreconditionFailed(
                406, "PRECONDITION_FAILED - the channel is not in confirm mode")
        try:
            with nogil:
                status = qs_channel_wait_confirms(self.handle, timeout_ns, &nacked, &error)
                if drop != 0 and (status == QS_OK or status == QS_ETIMEDOUT):
                    dropped = QS_OK
                    while dropped == QS_OK:
                        dropped = qs_channel_next_event(self.handle, drop, 0, &event, &error)
                        if dropped == QS_OK and event.kind == QS_EVENT_NACK:
                            with gil:
                                self.nack_of(&event)
                        elif dropped == QS_OK:
                            qs_message_release(&event.message)
        finally:
            self.leave()
        if status != QS_OK and status != QS_ETIMEDOUT:
            self.failed(status, &error)
        if dropped != QS_EEMPTY:
            self.failed(dropped, &error)
        return None if status == QS_ETIMEDOUT else <bint>nacked

    cdef tuple nack_of(self, qs_event *event):
        """Note a nack.  Returns (multiple, how many numbers it is about, the name of the full
        queue, or None if the store failed)."""
        cdef object queue = None
        if event.reason == QS_EQUEUE_FULL:
            try:
                queue = text_of(&event.message.queue)
            finally:
                qs_message_release(&event.message)
        self._refused.note(event.publish_number, event.count, queue)
        return <bint>event.multiple, event.count, queue

    def _tx_select(self):
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_channel_tx_select(self.handle, &error)
        self.end(status, &error)

    def _tx_begin(self):
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_channel_tx_begin(self.handle, &error)
        self.end(status, &error)

    def _tx_end(self):
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_channel_tx_end(self.handle, &error)
        self.end(status, &error)

    def _tx_commit(self, key):
        """Whether the key was new.  False: a transaction with it was committed before."""
        cdef qs_slice name
        cdef c_bool repeated = False
        cdef qs_error error
        cdef qs_status status
        name.data = NULL
        name.bytes = 0
        if key is not None:
            text_slice(key, "key", &name)
            if name.bytes == 0:
                raise ValueError("key must not be empty; leave it out instead")
        self.begin(&error)
        with nogil:
            status = qs_channel_tx_commit(self.handle, name, 0, &repeated, &error)
        self.end(status, &error)
        return not repeated

    def _tx_rollback(self):
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_channel_tx_rollback(self.handle, &error)
        self.end(status, &error)
