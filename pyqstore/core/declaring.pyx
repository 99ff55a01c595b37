# Declaring, binding, purging and deleting.  Arguments are encoded tables, flags the engine's.
cimport cython
from libc.stdint cimport uint32_t, uint64_t


def queue_argument_names():
    """The arguments of queues that have a meaning."""
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

    def exchange_delete(self, exchange, bint if_unused=False, bint nowait=False):
        """Delete an exchange and the bindings from it and to it.

        PreconditionFailed: with ``if_unused`` bindings lead from it.  AccessRefused: it is "", or
        its name begins with "amq.".  ``nowait`` is that of ``queue_declare``."""
        cdef qs_slice name
        cdef qs_error error
        cdef qs_status status
        cdef uint32_t flags = (QS_IF_UNUSED if if_unused else 0) | (QS_NO_SYNC if nowait else 0)
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

    def _change_binding(self, destination, source, routing_key, uint32_t flags,
                        bytes arguments not None):
        """Bind or unbind, as QS_UNBIND and QS_TO_EXCHANGE say."""
        cdef qs_slice to
        cdef qs_slice origin
        cdef qs_slice key
        cdef qs_slice table = bytes_slice(arguments)
        cdef bint to_exchange = flags & QS_TO_EXCHANGE
        cdef qs_error error
        cdef qs_status status
        name_slice(destination, "destination" if to_exchange else "queue", &to)
        name_slice(source, "source" if to_exchange else "exchange", &origin)
        text_slice(routing_key, "routing_key", &key)
        self.begin(&error)
        with nogil:
            status = qs_channel_change_binding(self.handle, to, origin, key, table, flags, &error)
        self.end(status, &error)

    def queue_purge(self, queue):
        """Drop the messages of a queue that are ready or delayed; unacknowledged ones stay.
        Returns how many were dropped."""
        cdef qs_slice name
        cdef uint64_t count = 0
        cdef qs_error error
        cdef qs_status status
        name_slice(queue, "queue", &name)
        self.begin(&error)
        with nogil:
            status = qs_channel_queue_purge(self.handle, name, 0, &count, &error)
        self.end(status, &error)
        return count

    def _queue_discard(self, queue, uint64_t position):
        """Drop the message at a position; it may be damaged.  Returns whether there was one."""
        cdef qs_slice name
        cdef qs_error error
        cdef qs_status status
        name_slice(queue, "queue", &name)
        self.begin(&error)
        with nogil:
            status = qs_channel_queue_discard(self.handle, name, position, &error)
        self.end(QS_OK if status == QS_EEMPTY else status, &error)
        return status == QS_OK

    def queue_delete(self, queue, bint if_unused=False, bint if_empty=False, bint nowait=False):
        """Delete a queue, its messages and bindings.  Returns how many messages were ready.

        PreconditionFailed: with ``if_unused`` it has consumers, or with ``if_empty`` messages.
        ``nowait`` is that of ``queue_declare``.
        """
        cdef qs_slice name
        cdef uint64_t count = 0
        cdef qs_error error
        cdef qs_status status
        cdef uint32_t flags = (QS_IF_UNUSED if if_unused else 0) | (QS_NO_SYNC if nowait else 0)
        name_slice(queue, "queue", &name)
        flags |= QS_IF_EMPTY if if_empty else 0
        self.begin(&error)
        with nogil:
            status = qs_channel_queue_delete(self.handle, name, flags, &count, &error)
        self.end(status, &error)
        return count
