# The channel: receiving, and the events that come to it.
cimport cython
from libc.stdint cimport UINT32_MAX, uint32_t, uint64_t


@cython.no_gc_clear
cdef class Channel(SettlingChannel):
    """An open channel: the handle under ``pyqstore.Channel``, and those of its verbs that are one
    call of the engine."""
    cdef object message_type
    cdef str last_exchange
    cdef str last_routing_key
    cdef str last_queue
    cdef str last_consumer_tag
    # Events that left the engine, deliveries excepted.  Each stays until its listeners were called:
    # a signal handler may raise at any step of Python before that.
    cdef list unheard
    cdef Py_ssize_t told  # how many listeners were called with the first

    def __cinit__(self):
        self.unheard = []

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
        """An ArrowBatch, without rows when nothing came within timeout_ns."""
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

    def basic_qos(self, prefetch_count=0, bint global_=False, *, prefetch_size=0):
        """Limit unacknowledged deliveries to ``prefetch_count``; 0 is no limit.

        The limit holds for each consumer that is registered later.  With ``global_`` it holds for
        the channel as a whole, beside the limits of consumers; a call without ``global_`` lifts it.
        A lower limit takes no delivery back.  Messages of ``basic_get`` and ``get_batch`` are not
        limited and do not count.  NotImplementedByBroker: a ``prefetch_size`` other than 0.
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
        """Have a consumer take no more messages, or take them again."""
        cdef qs_slice tag
        cdef qs_error error
        cdef qs_status status
        name_slice(consumer_tag, "consumer_tag", &tag)
        self.begin(&error)
        with nogil:
            status = qs_channel_pause(self.handle, tag, paused, &error)
        self.end(status, &error)

    def _set_message_type(self, message_type):
        """Have this subclass of Message be the class of messages."""
        self.message_type = message_type

    cdef Message new_message(self):
        if self.message_type is None:
            return Message.__new__(Message)
        return self.message_type.__new__(self.message_type)

    cdef Message message_of(self, qs_message *source):
        """The Message for a delivery of the engine, which is withheld if that cannot be made."""
        cdef Message message
        try:
            message = self.new_message()
            self.fill(message, source)
        except BaseException:
            self.release(source)
            self.withhold(source.delivery_tag, source.delivery_tag)
            raise
        return message

    cdef void release(self, qs_message *source) noexcept:
        """Give up the GIL only for a large body, which takes long to free."""
        if source.body.bytes < COPY_WITHOUT_GIL_BYTES:
            qs_message_release(source)
        else:
            with nogil:
                qs_message_release(source)

    cdef int fill(self, Message message, qs_message *source) except -1:
        """Copy the content of source to message; source is released in any case."""
        try:
            message.channel = self
            message.body = bytes_of(&source.body)
            message.encoded = bytes_of(&source.properties)
            message.delivery_tag = source.delivery_tag
            message.delivery_count = source.delivery_count
            message.redelivered = source.redelivered
            message.container = source.container
            message.sequence = source.sequence
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

    def _ignore_returns(self, bint ignored):
        """Have returned messages dropped, or kept until they are asked for."""
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_channel_ignore_returns(self.handle, ignored, &error)
        self.end(status, &error)

    def _take_ignored_returns(self):
        """(the first ReturnedMessage or None, how many) for the messages that were returned in
        confirm mode without a listener since the last call; None: none were."""
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

    def _next_event(self, uint32_t kinds, uint64_t timeout_ns):
        """The next event of these kinds, or None when there was none within timeout_ns.

        (EVENT_ACK, publish number, (multiple, how many numbers it is about)), (EVENT_NACK, publish
        number, ``nack_of``), (EVENT_DELIVERY, Message, None), (EVENT_RETURN, ReturnedMessage, None)
        or (EVENT_CANCEL, consumer tag, queue).  An event that is no delivery comes again until
        ``_tell`` has called its listeners.
        """
        cdef qs_event event
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        if self.unheard:
            self.leave()
            return self.unheard[0]
        with nogil:
            status = qs_channel_next_event(self.handle, kinds, timeout_ns, &event, &error)
        self.leave()
        if status == QS_EEMPTY:
            return None
        if status != QS_OK:
            self.failed(status, &error)
        return self.kept(&event)

    def _take_events(self, uint32_t kinds, size_t most):
        """Up to ``most`` events of these kinds, as of _next_event, and whether only waiting can
        bring the next one.

        With EVENT_ARM the descriptor is armed if these are all.  What fails behind the first event
        ends the list as (EVENT_ERROR, the exception, None).
        """
        cdef qs_event event
        cdef qs_error error
        cdef qs_status status = QS_OK
        cdef list events = []
        if self.unheard:
            self.begin(&error)
            self.leave()
            return list(self.unheard), False
        try:
            while <size_t>len(events) < most:
                self.begin(&error)
                with nogil:
                    status = qs_channel_next_event(self.handle, kinds | self.no_wait, 0, &event,
                                                   &error)
                self.leave()
                if status != QS_OK:
                    break
                self.keep(events, &event)
            if status != QS_OK and status != QS_EEMPTY and status != QS_EWOULDBLOCK:
                self.failed(status, &error)
        except BaseException as exception:  # a signal handler's, too: what came first is not lost
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

    cdef tuple kept(self, qs_event *event):
        cdef tuple made = self.event_of(event)
        if event.kind != QS_EVENT_DELIVERY:
            self.unheard.append(made)
        return made

    def _is_unheard(self, event):
        """Whether the event is the next one for listeners."""
        return len(self.unheard) > 0 and self.unheard[0] is event

    def _tell(self, event, list listeners not None, tuple arguments not None):
        """Call these listeners, then the outcome listeners for what the event decides.  If one
        raises, so does this, and the next call continues with the listener behind it.  After the
        last listener the event does not come again.  No signal handler runs between the call of a
        listener and the note of it."""
        cdef Outcomes outcomes = self._outcomes
        cdef Py_ssize_t turn
        cdef bint is_last
        while self._is_unheard(event):  # a listener may process events, this one too
            turn = self.told
            is_last = turn + 1 >= len(listeners)
            call = None
            given = arguments
            if is_last and outcomes is not None:
                outcomes.decide(event)
            if turn < len(listeners):
                self.told += 1
                call = listeners[turn]
            elif outcomes is not None:
                call, given = outcomes.next_call()
            if is_last and (outcomes is None or not outcomes.known):
                self.told = 0
                del self.unheard[0]
            if call is not None:
                call(*given)

    def _tell_closed(self):
        """For a closed channel: call the next outcome listener that has not heard an outcome.
        False: all were called."""
        if self._outcomes is None or self.store.generation != fork_generation:
            return False
        for event in self.unheard:
            self._outcomes.decide(event)
        self._outcomes.decide_rest()
        call, given = self._outcomes.next_call()
        if call is None:
            return False
        call(*given)
        return True

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
        if event.kind == QS_EVENT_NACK:
            return EVENT_NACK, event.publish_number, self.nack_of(event)
        return EVENT_ACK, event.publish_number, (<bint>event.multiple, event.count)

    cdef int keep(self, list events, qs_event *event) except -1:
        cdef tuple made = self.kept(event)
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
