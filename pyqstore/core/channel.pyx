# The channel's handle.
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.unicode cimport PyUnicode_Check
from libc.stdint cimport UINT32_MAX, UINT64_MAX, uint32_t, uint64_t
from posix.unistd cimport close

from .errors import ChannelClosed, ForkedStore, PreconditionFailed, StoreClosed

cdef enum:
    FIRST_REPLY_CODE = 300

ctypedef qs_status (*tie_function)(qs_channel *, qs_slice, qs_slice, qs_slice, qs_slice,
                                   qs_error *) noexcept nogil


def queue_argument_names():
    """Those that mean something."""
    cdef uint32_t index = 0
    cdef list names = []
    while qs_queue_argument_name(index) != NULL:
        names.append(qs_queue_argument_name(index).decode())
        index += 1
    return names


@cython.no_gc_clear
cdef class Channel:
    """An open channel: the handle under ``pyqstore.Channel``, and the verbs that need nothing
    more."""
    cdef qs_channel *handle
    cdef Store store
    cdef Connection connection
    cdef bint busy
    cdef bint refused
    cdef bint confirms
    # A mandatory message led nowhere: perhaps there is an ignored return to be told of.
    cdef bint led_nowhere
    cdef uint32_t no_wait
    # The descriptor for an event loop; closed here when it is neither watched nor signalled.
    cdef int event_fd
    cdef bint watched
    cdef bint freed
    cdef object message_type
    cdef str last_exchange
    cdef str last_routing_key
    cdef str last_queue
    cdef str last_consumer_tag
    cdef object __weakref__

    def __cinit__(self, Store store not None, Connection connection=None):
        cdef qs_connection *shared
        cdef qs_error error
        cdef qs_status status
        self.store = store
        self.connection = connection
        self.event_fd = -1
        clear(&error)
        if connection is None:
            store.enter()
            with nogil:
                status = qs_channel_open(&self.handle, store.handle, &error)
            store.leave()
        else:
            connection.enter()
            shared = connection.handle
            with nogil:
                status = qs_connection_channel(&self.handle, shared, &error)
            connection.leave()
        if status != QS_OK:
            self.handle = NULL
            fail(status, &error)
        store.handles.add(self)

    def __dealloc__(self):
        self.free()
        self.watched = False  # the loop was closed, or nobody would be left to forget it
        self.close_bell()

    cdef void free(self) noexcept:
        cdef qs_channel *handle
        if self.handle == NULL:
            return
        self.store.await_close()
        handle = self.handle
        if handle == NULL:
            return  # another thread frees it
        self.handle = NULL
        self.store.active += 1
        with nogil:
            qs_channel_close(handle)
        self.store.active -= 1
        self.freed = True
        self.close_bell()

    cdef void close_bell(self) noexcept:
        """Whoever comes last, the loop or who frees the channel, closes it: in a child of fork()
        nobody."""
        if (self.event_fd < 0 or self.watched or not self.freed
                or self.store.generation != fork_generation):
            return
        close(self.event_fd)
        self.event_fd = -1

    def _free(self):
        self.free()

    cdef int enter(self) except -1:
        if (self.busy or self.handle == NULL or self.store.closing
                or self.store.generation != fork_generation):
            return self.turn_away()
        self.busy = True
        self.store.active += 1
        return 0

    cdef int turn_away(self) except -1:
        if self.store.generation != fork_generation:
            raise ForkedStore("the store was opened before fork(); open it in this process")
        if self.store.closed:
            raise StoreClosed("the store is closed")
        if self.handle == NULL:
            raise ChannelClosed("the channel is closed")
        raise RuntimeError("another thread is using this channel; open one channel per thread")

    cdef inline void leave(self) noexcept:
        self.busy = False
        self.store.active -= 1

    cdef inline int begin(self, qs_error *error) except -1:
        self.enter()
        clear(error)
        return 0

    cdef inline int end(self, qs_status status, qs_error *error) except -1:
        self.leave()
        if status != QS_OK:
            self.failed(status, error)
        return 0

    cdef int failed(self, qs_status status, qs_error *error) except -1:
        if <int>status >= FIRST_REPLY_CODE or status == QS_ECHANNEL_CLOSED:
            self.refused = True
            if self.connection is not None:
                self.connection.look()
        return fail(status, error)

    @property
    def closed(self):
        """Whether the channel is closed: by ``close()``, by an AMQP error, or with its connection
        or its store."""
        return (self.refused or self.handle == NULL or self.store.closed
                or (self.connection is not None and self.connection.closed))

    def close(self):
        """Requeue everything unacknowledged and cancel the consumers.  Closing twice is fine.

        Raises RuntimeError when another thread is inside a call on this channel.
        """
        if self.busy and self.store.generation == fork_generation:
            raise RuntimeError("another thread is using this channel; close it there")
        self.free()

    # Declarations: arguments are encoded tables, flags the engine's.

    def _exchange_declare(self, exchange, exchange_type, uint32_t flags, bytes arguments not None):
        cdef qs_slice name
        cdef qs_slice kind
        cdef qs_slice table = bytes_slice(arguments)
        cdef qs_error error
        cdef qs_status status
        name_slice(exchange, "exchange", &name)
        name_slice(exchange_type, "exchange_type", &kind)
        self.begin(&error)
        with nogil:
            status = qs_channel_exchange_declare(self.handle, name, kind, flags, table, &error)
        self.end(status, &error)

    def exchange_delete(self, exchange, bint if_unused=False):
        """Delete an exchange and its bindings, from it and to it.  PreconditionFailed with
        ``if_unused`` while bindings lead from it; AccessRefused for "" and names from "amq."."""
        cdef qs_slice name
        cdef qs_error error
        cdef qs_status status
        cdef uint32_t flags = QS_IF_UNUSED if if_unused else 0
        name_slice(exchange, "exchange", &name)
        self.begin(&error)
        with nogil:
            status = qs_channel_exchange_delete(self.handle, name, flags, &error)
        self.end(status, &error)

    def _queue_declare(self, queue, uint32_t flags, bytes arguments not None):
        """(name, ready messages, consumers)"""
        cdef qs_slice name
        cdef qs_slice table = bytes_slice(arguments)
        cdef qs_declare_ok ok
        cdef qs_error error
        cdef qs_status status
        name_slice(queue, "queue", &name)
        self.begin(&error)
        with nogil:
            status = qs_channel_queue_declare(self.handle, name, flags, table, &ok, &error)
        self.end(status, &error)
        name_made = (<bytes>ok.queue).decode("utf-8", "surrogateescape")
        return name_made, ok.message_count, ok.consumer_count

    cdef int tie(self, tie_function verb, str kind, object destination, object source,
                 object routing_key, bytes arguments) except -1:
        """Bind or unbind a destination of that kind."""
        cdef qs_slice to
        cdef qs_slice origin
        cdef qs_slice key
        cdef qs_slice table = bytes_slice(arguments)
        cdef qs_error error
        cdef qs_status status
        name_slice(destination, kind, &to)
        name_slice(source, "exchange" if kind == "queue" else "source", &origin)
        text_slice(routing_key, "routing_key", &key)
        self.begin(&error)
        with nogil:
            status = verb(self.handle, to, origin, key, table, &error)
        return self.end(status, &error)

    def _queue_bind(self, queue, exchange, routing_key, bytes arguments not None):
        self.tie(qs_channel_queue_bind, "queue", queue, exchange, routing_key, arguments)

    def _queue_unbind(self, queue, exchange, routing_key, bytes arguments not None):
        self.tie(qs_channel_queue_unbind, "queue", queue, exchange, routing_key, arguments)

    def _exchange_bind(self, destination, source, routing_key, bytes arguments not None):
        self.tie(qs_channel_exchange_bind, "destination", destination, source, routing_key,
                 arguments)

    def _exchange_unbind(self, destination, source, routing_key, bytes arguments not None):
        self.tie(qs_channel_exchange_unbind, "destination", destination, source, routing_key,
                 arguments)

    def queue_purge(self, queue):
        """Drop every message of a queue that is ready or delayed; unacknowledged ones stay.
        Returns how many were dropped."""
        cdef qs_slice name
        cdef uint64_t count = 0
        cdef qs_error error
        cdef qs_status status
        name_slice(queue, "queue", &name)
        self.begin(&error)
        with nogil:
            status = qs_channel_queue_purge(self.handle, name, &count, &error)
        self.end(status, &error)
        return count

    def queue_delete(self, queue, bint if_unused=False, bint if_empty=False):
        """Delete a queue, its messages and bindings.  Returns how many messages were ready.

        PreconditionFailed with ``if_unused`` while it has consumers, with ``if_empty`` while it has
        messages.
        """
        cdef qs_slice name
        cdef uint64_t count = 0
        cdef qs_error error
        cdef qs_status status
        cdef uint32_t flags = (QS_IF_UNUSED if if_unused else 0) | (QS_IF_EMPTY if if_empty else 0)
        name_slice(queue, "queue", &name)
        self.begin(&error)
        with nogil:
            status = qs_channel_queue_delete(self.handle, name, flags, &count, &error)
        self.end(status, &error)
        return count

    # Publishing.

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

    cdef object publish(self, object exchange, object routing_key, object properties, qs_slice body,
                        uint32_t flags, uint64_t delay_us):
        cdef qs_slice name
        cdef qs_slice key
        cdef qs_slice blob
        cdef qs_receipt receipt
        cdef qs_error error
        cdef qs_status status
        flags |= self.no_wait
        name_slice(exchange, "exchange", &name)
        text_slice(routing_key, "routing_key", &key)
        properties_slice(properties, &blob)
        self.begin(&error)
        with nogil:
            status = qs_channel_publish_delayed(self.handle, name, key, blob, body, flags, delay_us,
                                                &receipt, &error)
        self.end(status, &error)
        if receipt.unrouted_count > 0 and (flags & QS_MANDATORY) != 0:
            self.led_nowhere = True
        return receipt.first_number

    def basic_publish(self, exchange, routing_key, body, properties=None, bint mandatory=False,
                      bint immediate=False, *, delay=None):
        """Hand one message to the queues that ``exchange``, ``routing_key`` and headers lead to.

        The str in the headers CC and BCC (lists) are routing keys as well; BCC does not go with
        the message.

        ``body`` is bytes, any object with the buffer protocol (C-contiguous, taken byte by byte),
        or str (as UTF-8); it is copied, each byte once, so what another thread changes meanwhile
        is in the message or not.  ``properties`` is a Properties; ``delivery_mode=2`` in it
        makes the message survive a restart in a durable queue.  With ``mandatory`` a message that
        no queue takes comes back to the return listeners or, in confirm mode and without a
        listener, ``wait_for_confirms`` raises MessageReturned; without ``mandatory`` it is dropped.
        ``immediate`` is refused, as by RabbitMQ: NotImplementedByBroker.

        ``delay`` (seconds, or a timedelta): the message is in its queues at once, as durable as
        any other, and delivered when that time is over, also after a crash; others go by
        meanwhile. Then it takes the place that it was published at, and its time to live begins.

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
                                delay_us)
        if PyUnicode_Check(body):
            text_slice(body, "body", &data)
            return self.publish(exchange, routing_key, properties, data, flags | QS_BODY_CONSTANT,
                                delay_us)
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        try:
            data.data = view.buf
            data.bytes = <size_t>view.len
            return self.publish(exchange, routing_key, properties, data, flags, delay_us)
        finally:
            PyBuffer_Release(&view)

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
        self.begin(&error)
        with nogil:
            status = qs_channel_publish_batch(self.handle, &batch, &receipt, &error)
        self.end(status, &error)
        if receipt.unrouted_count > 0 and mandatory:
            self.led_nowhere = True
        refused_rows = tuple([receipt.refused_rows[i] for i in
                              range(min(receipt.refused_count, QS_RECEIPT_ROWS))])
        return (receipt.first_number, receipt.last_number, receipt.count, receipt.lsn,
                receipt.unrouted_count, receipt.refused_count, refused_rows)

    def _publish_array(self, schema, array, exchange, routing_key, str body not None, properties,
                       bint mandatory):
        """(first number, last number, count, lsn, rows that led nowhere, rows that were refused,
        the first of these) of one record batch, given as its two capsules."""
        cdef ArrowSchema *c_schema = <ArrowSchema *>PyCapsule_GetPointer(schema, "arrow_schema")
        cdef const ArrowArray *c_array
        c_array = <const ArrowArray *>PyCapsule_GetPointer(array, "arrow_array")
        if c_schema.release == NULL or c_array.release == NULL:
            raise ValueError("the Arrow data was released already")
        return self.publish_arrays(c_schema, &c_array, 1, exchange, routing_key, body, properties,
                                   mandatory)

    def _publish_stream(self, stream, exchange, routing_key, str body not None, properties,
                        bint mandatory):
        """The same for all record batches of a stream's capsule."""
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

        Events of the kinds ``drop`` are taken and forgotten, in the same call: who publishes and
        waits has no listeners most of the time, and each call more is a turn of the GIL.
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
        with nogil:
            status = qs_channel_wait_confirms(self.handle, timeout_ns, &nacked, &error)
            if drop != 0 and (status == QS_OK or status == QS_ETIMEDOUT):
                dropped = QS_OK
                while dropped == QS_OK:
                    dropped = qs_channel_next_event(self.handle, drop, 0, &event, &error)
                    if dropped == QS_OK:
                        qs_message_release(&event.message)
        self.leave()
        if status != QS_OK and status != QS_ETIMEDOUT:
            self.failed(status, &error)
        if dropped != QS_EEMPTY:
            self.failed(dropped, &error)
        return None if status == QS_ETIMEDOUT else <bint>nacked

    # Transactions.

    def tx_select(self):
        """Buffer publishes and acknowledgements from here on, until ``tx_commit`` or
        ``tx_rollback``.

        PreconditionFailed on a channel in confirm mode.
        """
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_channel_tx_select(self.handle, &error)
        self.end(status, &error)

    def tx_commit(self, *, key=None):
        """Do everything since the last commit, atomically and durably when this returns.

        ``key`` (str, not empty) is recorded with the transaction.  When a transaction with this key
        was committed before, the buffered work is dropped and False is returned; True otherwise.
        """
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
            status = qs_channel_tx_commit(self.handle, name, &repeated, &error)
        self.end(status, &error)
        return not repeated

    def tx_rollback(self):
        """Drop the publishes since the last commit and take the acknowledgements back; nothing is
        requeued."""
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_channel_tx_rollback(self.handle, &error)
        self.end(status, &error)

    # Receiving.

    cdef void release(self, qs_message *source) noexcept:
        """To free a large body takes long enough to let others run; a small one does not."""
        if source.body.bytes < COPY_WITHOUT_GIL_BYTES:
            qs_message_release(source)
        else:
            with nogil:
                qs_message_release(source)

    cdef int fill(self, Message message, qs_message *source) except -1:
        """What source holds, in Python objects; source is released whatever happens."""
        try:
            message.channel = self
            message.body = bytes_of(&source.body)
            message.encoded = bytes_of(&source.properties)
            message.delivery_tag = source.delivery_tag
            message.delivery_count = source.delivery_count
            message.redelivered = source.redelivered
            message.exchange = text_again(&source.exchange, self.last_exchange)
            self.last_exchange = message.exchange
            message.routing_key = text_again(&source.routing_key, self.last_routing_key)
            self.last_routing_key = message.routing_key
            message.queue = text_again(&source.queue, self.last_queue)
            self.last_queue = message.queue
            message.consumer_tag = text_again(&source.consumer_tag, self.last_consumer_tag)
            if source.consumer_tag.bytes > 0:
                self.last_consumer_tag = message.consumer_tag
        finally:
            self.release(source)
        return 0

    cdef void withhold(self, uint64_t first_tag, uint64_t last_tag) noexcept:
        """These were taken and cannot be handed out: whoever settles several does not mean them.
        They are ready again when the channel closes or recovers.  Under the GIL, which keeps the
        handle open."""
        cdef qs_error error
        if self.handle != NULL and first_tag != 0:
            # A channel that is closed has put them back.
            qs_channel_withhold(self.handle, first_tag, last_tag, &error)

    def _withhold(self, uint64_t first_tag, uint64_t last_tag):
        self.withhold(first_tag, last_tag)

    cdef Message message_of(self, qs_message *source):
        """A delivery that the engine made."""
        cdef Message message
        try:
            message = self.new_message()
            self.fill(message, source)
        except BaseException:
            self.release(source)
            self.withhold(source.delivery_tag, source.delivery_tag)
            raise
        return message

    def basic_get(self, queue, bint auto_ack=False):
        """The first ready message of ``queue``, or None.  NotFound: no such queue."""
        cdef qs_slice name
        cdef qs_message source
        cdef qs_error error
        cdef qs_status status
        cdef uint32_t flags = self.no_wait | (QS_NO_ACK if auto_ack else 0)
        name_slice(queue, "queue", &name)
        self.begin(&error)
        with nogil:
            status = qs_channel_get(self.handle, name, flags, &source, &error)
        self.leave()
        if status == QS_EEMPTY:
            return None
        if status != QS_OK:
            self.failed(status, &error)
        return self.message_of(&source)

    def _get_batch(self, queue, uint64_t max_messages, uint64_t bytes_max, bint auto_ack,
                   uint64_t timeout_ns):
        """An ArrowBatch, of no rows when nothing came within timeout_ns."""
        cdef qs_slice name
        cdef ArrowBatch batch = ArrowBatch.__new__(ArrowBatch)
        cdef qs_error error
        cdef qs_status status
        cdef uint32_t flags = QS_NO_ACK if auto_ack else 0
        name_slice(queue, "queue", &name)
        self.begin(&error)
        with nogil:
            status = qs_channel_get_batch(self.handle, name, max_messages, bytes_max, flags,
                                          timeout_ns, &batch.schema, &batch.array, &error)
        self.leave()
        if status != QS_OK:
            batch.schema.release = NULL
            batch.array.release = NULL
            self.failed(status, &error)
        batch.note_tags()
        return batch

    def _withhold_batch(self, ArrowBatch batch not None):
        """The batch cannot be handed out."""
        self.withhold(batch.first_tag, batch.last_tag)

    cdef int settle(self, uint64_t delivery_tag, uint32_t flags, bint ack,
                    uint64_t delay_us=0) except -1:
        cdef qs_error error
        cdef qs_status status
        flags |= self.no_wait
        self.begin(&error)
        if ack:
            with nogil:
                status = qs_channel_ack(self.handle, delivery_tag, flags, &error)
        else:
            with nogil:
                status = qs_channel_nack_delayed(self.handle, delivery_tag, flags, delay_us, &error)
        self.end(status, &error)
        return 0

    def basic_ack(self, delivery_tag=0, bint multiple=False):
        """Acknowledge a delivery; with ``multiple`` all up to it, tag 0 meaning all.

        All that were handed out: not what came for a consumer and was not asked for yet.  Returns
        at once: after a crash an acknowledged message may be delivered again, flagged redelivered.
        PreconditionFailed: unknown delivery tag.
        """
        cdef uint64_t tag
        number_of(delivery_tag, "delivery_tag", UINT64_MAX, &tag)
        if not (multiple and self._settle_handed_out(tag, False, False, 0)):
            self.settle(tag, QS_MULTIPLE if multiple else 0, True)

    def basic_nack(self, delivery_tag=0, bint multiple=False, bint requeue=True, *, delay=None):
        """Refuse deliveries, those that ``basic_ack`` would acknowledge: back to their places in
        the queue, or dead-lettered, or dropped.

        ``delay`` (seconds, or a timedelta), with ``requeue`` only: they are delivered again when
        that time is over, also after a crash; others go by meanwhile.
        """
        cdef uint64_t delay_us
        cdef uint64_t tag
        cdef uint32_t flags = (QS_MULTIPLE if multiple else 0) | (QS_REQUEUE if requeue else 0)
        number_of(delivery_tag, "delivery_tag", UINT64_MAX, &tag)
        delay_of(delay, &delay_us)
        check_requeue(requeue, delay_us)
        if not (multiple and self._settle_handed_out(tag, requeue, not requeue, delay_us)):
            self.settle(tag, flags, False, delay_us)

    def _settle_handed_out(self, tag, requeue, reject, delay_us):
        """For whoever holds deliveries back: settle the others up to ``tag``.  Whether it did."""
        return False

    def basic_reject(self, delivery_tag, bint requeue=True):
        """Refuse one delivery: back to its place in the queue or, unless ``requeue``,
        dead-lettered or dropped.  AMQP's field has no default; here it is ``requeue`` everywhere.
        """
        cdef uint64_t tag
        number_of(delivery_tag, "delivery_tag", UINT64_MAX, &tag)
        self.settle(tag, QS_REQUEUE if requeue else 0, False)

    def basic_recover(self, bint requeue=True):
        """Requeue everything unacknowledged on this channel.  NotImplementedByBroker without
        ``requeue``."""
        cdef qs_error error
        cdef qs_status status
        cdef uint32_t flags = QS_REQUEUE if requeue else 0
        self.begin(&error)
        with nogil:
            status = qs_channel_recover(self.handle, flags, &error)
        self.end(status, &error)

    def _recover_withheld(self):
        """Only what was taken and could not be handed out."""
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_channel_recover(self.handle, QS_REQUEUE | QS_WITHHELD, &error)
        self.end(status, &error)

    def basic_qos(self, prefetch_count=0, bint global_=False, *, prefetch_size=0):
        """At most ``prefetch_count`` unacknowledged deliveries, 0 for no limit.

        For each consumer registered later, or, with ``global_``, for the channel as a whole; both
        hold.  A call without ``global_`` also lifts the channel's limit.  A lower limit takes
        nothing back.  Messages of ``basic_get`` and ``get_batch`` are not limited and do not count.
        NotImplementedByBroker: a ``prefetch_size`` other than 0.
        """
        cdef qs_error error
        cdef qs_status status
        cdef uint32_t flags = QS_GLOBAL if global_ else 0
        cdef uint64_t count
        cdef uint64_t size
        number_of(prefetch_count, "prefetch_count", UINT32_MAX, &count)
        number_of(prefetch_size, "prefetch_size", UINT32_MAX, &size)
        self.begin(&error)
        with nogil:
            status = qs_channel_qos(self.handle, <uint32_t>count, <uint32_t>size, flags, &error)
        self.end(status, &error)

    def _consume(self, queue, consumer_tag, uint32_t flags, bytes arguments not None):
        """The consumer's tag."""
        cdef qs_slice name
        cdef qs_slice tag
        cdef qs_slice table = bytes_slice(arguments)
        cdef char made[256]
        cdef qs_error error
        cdef qs_status status
        name_slice(queue, "queue", &name)
        name_slice(consumer_tag, "consumer_tag", &tag)
        self.begin(&error)
        with nogil:
            status = qs_channel_consume(self.handle, name, tag, flags, table, made, &error)
        self.end(status, &error)
        return (<bytes>made).decode("utf-8", "surrogateescape")

    def _cancel(self, consumer_tag):
        cdef qs_slice tag
        cdef qs_error error
        cdef qs_status status
        name_slice(consumer_tag, "consumer_tag", &tag)
        self.begin(&error)
        with nogil:
            status = qs_channel_cancel(self.handle, tag, &error)
        self.end(status, &error)

    def _pause(self, consumer_tag, bint paused):
        """Have a consumer take no more messages, or go on."""
        cdef qs_slice tag
        cdef qs_error error
        cdef qs_status status
        name_slice(consumer_tag, "consumer_tag", &tag)
        self.begin(&error)
        with nogil:
            status = qs_channel_pause(self.handle, tag, paused, &error)
        self.end(status, &error)

    def _ignore_returns(self, bint ignored):
        """Whether returned messages are dropped instead of kept until somebody asks."""
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_channel_ignore_returns(self.handle, ignored, &error)
        self.end(status, &error)

    def _next_event(self, uint32_t kinds, uint64_t timeout_ns):
        """The next event of these kinds, or None when there was none within timeout_ns.

        (EVENT_ACK or EVENT_NACK, publish number, multiple), (EVENT_DELIVERY, Message, None),
        (EVENT_RETURN, ReturnedMessage, None) or (EVENT_CANCEL, consumer tag, queue).
        """
        cdef qs_event event
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_channel_next_event(self.handle, kinds, timeout_ns, &event, &error)
        self.leave()
        if status == QS_EEMPTY:
            return None
        if status != QS_OK:
            self.failed(status, &error)
        return self.event_of(&event)

    cdef Message new_message(self):
        if self.message_type is None:
            return Message.__new__(Message)
        return self.message_type.__new__(self.message_type)

    cdef tuple event_of(self, qs_event *event):
        cdef Message message
        cdef ReturnedMessage returned
        if event.kind == QS_EVENT_DELIVERY:
            message = self.message_of(&event.message)
            try:
                return EVENT_DELIVERY, message, None
            except BaseException:
                self.withhold(message.delivery_tag, message.delivery_tag)
                raise
        if event.kind == QS_EVENT_RETURN:
            returned = ReturnedMessage.__new__(ReturnedMessage)
            returned.reply_code = event.reply_code
            returned.reply_text = event.reply_text.decode()
            self.fill(returned, &event.message)
            return EVENT_RETURN, returned, None
        if event.kind == QS_EVENT_CANCEL:
            message = Message.__new__(Message)
            self.fill(message, &event.message)
            return EVENT_CANCEL, message.consumer_tag, message.queue
        return <int>event.kind, event.publish_number, <bint>event.multiple

    def _take_ignored_returns(self):
        """(the first ReturnedMessage or None, how many) that came back in confirm mode without a
        listener, since the last call; None: none did."""
        cdef qs_event event
        cdef uint64_t count = 0
        cdef qs_error error
        cdef qs_status status
        if not self.led_nowhere:
            return None
        self.begin(&error)
        with nogil:
            status = qs_channel_take_ignored(self.handle, &event, &count, &error)
        self.end(status, &error)
        self.led_nowhere = False
        message = self.event_of(&event)[1] if event.kind == QS_EVENT_RETURN else None
        return (message, count) if count > 0 else None

    # For event loops.

    def _event_fd(self):
        """The eventfd that is written when what the channel was armed for is there.

        It stays open, whoever closes the channel, until ``_forget_event_fd``, which is for the loop
        to call when it does not watch it any more.
        """
        cdef int event_fd
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_channel_event_fd(self.handle, &event_fd, &error)
        self.end(status, &error)
        self.event_fd = event_fd
        self.watched = True
        return event_fd

    def _forget_event_fd(self):
        """No loop watches the descriptor any more: it is closed as soon as the channel is."""
        self.watched = False
        self.close_bell()

    def _set_no_wait(self, bint no_wait):
        """Whether publish, get, settling and _take_events raise BlockingIOError, having done
        nothing, where they would have to wait."""
        self.no_wait = QS_NO_WAIT if no_wait else 0

    def _set_message_type(self, message_type):
        """Make messages of this subclass of Message."""
        self.message_type = message_type

    def _take_events(self, uint32_t kinds, size_t most):
        """Up to ``most`` events of these kinds as _next_event has them, and whether it would take
        waiting to have the next one.

        With EVENT_ARM the descriptor is armed if these are all.  A confirm has, instead of
        ``multiple``, (multiple, how many numbers it is about).  What fails behind the first event
        ends the list as (EVENT_ERROR, the exception, None).
        """
        cdef qs_event event
        cdef qs_error error
        cdef qs_status status = QS_OK
        cdef list events = []
        try:
            while <size_t>len(events) < most:
                self.begin(&error)
                with nogil:
                    status = qs_channel_next_event(self.handle, kinds | self.no_wait, 0, &event,
                                                   &error)
                self.leave()
                if status != QS_OK:
                    break
                if event.kind == QS_EVENT_ACK or event.kind == QS_EVENT_NACK:
                    events.append((<int>event.kind, event.publish_number,
                                   (<bint>event.multiple, event.count)))
                else:
                    self.keep(events, &event)
            if status != QS_OK and status != QS_EEMPTY and status != QS_EWOULDBLOCK:
                self.failed(status, &error)
        except Exception as exception:
            if len(events) == 0:
                raise
            try:
                events.append((EVENT_ERROR, exception, None))
            except BaseException:
                self.withhold_all(events)
                raise
        try:
            return events, status == QS_EWOULDBLOCK
        except BaseException:
            self.withhold_all(events)
            raise

    cdef int keep(self, list events, qs_event *event) except -1:
        cdef tuple made = self.event_of(event)
        try:
            events.append(made)
        except BaseException:
            self.withhold(event.message.delivery_tag, event.message.delivery_tag)
            raise
        return 0

    cdef int withhold_all(self, list events) except -1:
        for made in events:
            if made[0] == EVENT_DELIVERY:
                self.withhold((<Message>made[1]).delivery_tag, (<Message>made[1]).delivery_tag)
        return 0

    def _settle_range(self, uint64_t first_tag, uint64_t last_tag, bint requeue,
                      bint reject=False, bint in_transaction=False, uint64_t delay_us=0):
        """Acknowledge what of these tags is outstanding, or put it back, or refuse it: beside any
        transaction, or as part of it."""
        cdef qs_error error
        cdef qs_status status
        cdef uint32_t flags = self.no_wait | (QS_REQUEUE if requeue else 0)
        flags |= (QS_REJECT if reject else 0) | (QS_IN_TX if in_transaction else 0)
        self.begin(&error)
        with nogil:
            status = qs_channel_settle_range_delayed(self.handle, first_tag, last_tag, flags,
                                                     delay_us, &error)
        self.end(status, &error)

    def __reduce__(self):
        raise TypeError("a channel belongs to its process and cannot be pickled")
