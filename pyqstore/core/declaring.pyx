# Declarations: arguments are encoded tables, flags the engine's.
cimport cython
from libc.stdint cimport uint32_t, uint64_t

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
cdef class DeclaringChannel(ChannelHandle):
    """Exchanges, queues and bindings."""

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
