# A trace's handle.
from libc.stdint cimport uint64_t

TRACE_STEPS = ("", "publish", "route", "enqueue", "record", "sync", "confirm", "return", "deliver",
               "ack", "nack")


cdef class Trace:
    """The handle under ``pyqstore.Trace``: reads the steps of messages.  One thread at a time uses
    it."""
    cdef qs_trace *handle
    cdef Store store
    cdef bint busy
    cdef readonly bint has_content
    cdef int counting  # calls of dropped and _end
    cdef object __weakref__

    def __cinit__(self, Store store not None, exchange, queue, bint content=False):
        """With ``content`` the trace is read with ``_next_content``, without it with ``_next``."""
        cdef qs_slice exchange_name
        cdef qs_slice queue_name
        cdef const qs_slice *of_exchange = NULL
        cdef const qs_slice *of_queue = NULL
        cdef qs_error error
        cdef qs_status status
        self.store = store
        self.has_content = content
        if exchange is not None:
            name_slice(exchange, "exchange", &exchange_name)
            of_exchange = &exchange_name
        if queue is not None:
            name_slice(queue, "queue", &queue_name)
            of_queue = &queue_name
        store.begin(&error)
        with nogil:
            status = qs_trace_open(&self.handle, store.handle, of_exchange, of_queue,
                                   QS_TRACE_CONTENT if content else 0, &error)
        store.end(status, &error)
        store.handles.add(self)

    def __dealloc__(self):
        self._free()

    cpdef _free(self):
        """Close the trace: its store is closing, or nobody refers to it."""
        cdef qs_trace *handle = self.handle
        self.handle = NULL
        if handle != NULL:
            with nogil:
                qs_trace_close(handle)

    cdef int begin(self, qs_error *error) except -1:
        self.check_open(error)
        if self.busy:
            self.store.leave()
            raise RuntimeError("another thread is using this trace; open one for each")
        self.busy = True
        return 0

    cdef int check_open(self, qs_error *error) except -1:
        """Enter the store; ValueError: the trace is closed."""
        self.store.begin(error)
        if self.handle == NULL:
            self.store.leave()
            raise ValueError("the trace is closed")
        return 0

    def _close(self):
        """Close the trace.  RuntimeError: another thread is using it."""
        if self.store.generation == fork_generation and (self.busy or self.counting > 0):
            raise RuntimeError("another thread is using this trace")
        self._free()

    @property
    def dropped(self):
        """How many steps were dropped for want of room; any thread may ask."""
        cdef uint64_t dropped
        cdef qs_error error
        self.check_open(&error)
        self.counting += 1
        with nogil:
            dropped = qs_trace_dropped(self.handle)
        self.counting -= 1
        self.store.leave()
        return dropped

    cdef object read(self, uint64_t timeout_ns, object (*made)(const qs_trace_event *)):
        """``made`` of the next step, or None when nothing came in time."""
        cdef qs_trace_event event
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_trace_next(self.handle, timeout_ns, &event, &error)
        try:
            if status == QS_OK:
                return made(&event)
        finally:
            self.busy = False
            self.store.leave()
        if status != QS_EEMPTY:
            check(status, &error)
        return None

    def _next(self, uint64_t timeout_ns):
        """(microseconds since 1970, step, LSN, exchange, routing key, queues, number, count,
        channel), or None when nothing came in time."""
        return self.read(timeout_ns, step_of)

    def _next_content(self, uint64_t timeout_ns):
        """(whether the step is a delivery, exchange, routing key, queues, channel, properties,
        body, client's address, user, connection, client, client's channel, whether the message is
        redelivered), or None when nothing came in time."""
        if not self.has_content:
            raise TypeError("the trace was opened without content")
        return self.read(timeout_ns, content_of)

    def _end(self):
        """Record no more steps, and end a wait for one.  Any thread may call this."""
        cdef qs_error error
        self.check_open(&error)
        self.counting += 1
        with nogil:
            qs_trace_end(self.handle)
        self.counting -= 1
        self.store.leave()

    def __reduce__(self):
        raise TypeError("cannot be pickled")


cdef object step_of(const qs_trace_event *event):
    return (event.time_us, TRACE_STEPS[event.step], event.lsn, text_of(&event.exchange),
            text_of(&event.routing_key), names_of(&event.queues), event.number,
            event.count, event.channel)


cdef object content_of(const qs_trace_event *event):
    cdef const qs_traced_content *content = event.content
    return (event.step == QS_TRACE_DELIVER, text_of(&event.exchange), text_of(&event.routing_key),
            names_of(&event.queues), event.channel, bytes_of(&content.properties),
            bytes_of(&content.body), text_of(&content.peer), text_of(&content.user),
            content.connection, content.client, content.client_channel, content.redelivered)


cdef list names_of(const qs_slice *names):
    """In ``names`` each name stands behind a byte with its length."""
    cdef const unsigned char *at = <const unsigned char *>names.data
    cdef const unsigned char *end = at + names.bytes
    cdef qs_slice name
    cdef list found = []
    while at < end:
        name.bytes = at[0]
        name.data = at + 1
        found.append(text_of(&name))
        at += 1 + name.bytes
    return found
