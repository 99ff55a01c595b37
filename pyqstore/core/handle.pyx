# The life of a channel, which one thread at a time uses; its descriptor for event loops.
#
# A cdef class has one base and stands in one file.  The verbs of a channel are therefore in a chain
# of classes: ChannelHandle, DeclaringChannel, PublishingChannel, SettlingChannel, Channel.
cimport cython
from libc.stdint cimport uint32_t, uint64_t
from posix.unistd cimport close

from .errors import ChannelClosed, ForkedStore, StoreClosed

cdef enum:
    FIRST_REPLY_CODE = 300


@cython.no_gc_clear
cdef class ChannelHandle:
    """The handle, and what every verb needs before and after its call."""
    cdef qs_channel *handle
    cdef Store store
    cdef Connection connection
    cdef bint busy
    cdef bint refused
    cdef uint32_t no_wait
    cdef uint64_t opened_as
    # The descriptor for an event loop.  It is closed when no loop watches it and no channel signals
    # it.
    cdef int event_fd
    cdef bint watched
    cdef bint freed
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
        self.opened_as = qs_channel_number(self.handle)
        store.handles.add(self)

    def __dealloc__(self):
        self.free()
        self.watched = False  # a loop that was closed never forgets the descriptor
        self.close_event_fd()

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
        self.close_event_fd()

    cdef void close_event_fd(self) noexcept:
        """Close the descriptor when the loop has forgotten it and the channel is freed.  In a child
        of fork() it stays open."""
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

    @property
    def number(self):
        """The channel's number in the store, from 1; ``Store.stats(detail=True)`` has it by this
        number."""
        return self.opened_as

    def _close(self):
        """Close the channel.  RuntimeError: another thread is inside a call on it."""
        if self.busy and self.store.generation == fork_generation:
            raise RuntimeError("another thread is using this channel; close it there")
        self.free()

    def _event_fd(self):
        """The eventfd that the engine writes when an event comes for which the channel is armed.

        It stays open, even after the channel was closed, until the loop no longer watches it and
        calls ``_forget_event_fd``.
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
        """No loop watches the descriptor any more; it is closed with the channel."""
        self.watched = False
        self.close_event_fd()

    def _set_no_wait(self, bint no_wait):
        """Have publish, get, settling and _take_events raise BlockingIOError, and do nothing, when
        they would have to wait."""
        self.no_wait = QS_NO_WAIT if no_wait else 0

    def __reduce__(self):
        raise TypeError("a channel belongs to its process and cannot be pickled")
