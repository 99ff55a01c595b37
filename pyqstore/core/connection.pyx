# The connection's handle.
cimport cython
from posix.unistd cimport usleep

from .errors import ChannelClosed


@cython.no_gc_clear
cdef class Connection:
    """An open connection: the handle under ``pyqstore.Connection``."""
    cdef qs_connection *handle
    cdef Store store
    cdef int opening
    cdef bint refused
    cdef object __weakref__

    def __cinit__(self, Store store not None):
        cdef qs_error error
        cdef qs_status status
        self.store = store
        store.enter()
        clear(&error)
        with nogil:
            status = qs_connection_open(&self.handle, store.handle, &error)
        store.leave()
        if status != QS_OK:
            self.handle = NULL
            fail(status, &error)
        store.handles.add(self)

    def __dealloc__(self):
        self.free()

    cdef void free(self) noexcept:
        cdef qs_connection *handle
        if self.handle == NULL:
            return
        self.store.await_close()
        handle = self.handle
        if handle == NULL:
            return  # another thread frees it
        self.handle = NULL
        while self.opening > 0 and self.store.generation == fork_generation:
            with nogil:
                usleep(CLOSE_POLL_US)
        self.store.active += 1
        with nogil:
            qs_connection_close(handle)
        self.store.active -= 1

    def _free(self):
        self.free()

    cdef int enter(self) except -1:
        self.store.enter()
        if self.handle == NULL:
            self.store.leave()
            raise ChannelClosed("the connection is closed")
        self.opening += 1
        return 0

    cdef void leave(self) noexcept:
        self.opening -= 1
        self.store.leave()

    cdef void look(self) noexcept:
        """Note whether an AMQP error of a channel has ended the connection."""
        if self.handle != NULL:
            self.refused = qs_connection_is_closed(self.handle)

    @property
    def closed(self):
        """Whether the connection is closed: by ``close()``, by an AMQP error of the whole
        connection, or with its store."""
        return self.refused or self.handle == NULL or self.store.closed

    def _close(self):
        """Close the channels, and delete the exclusive queues; closing twice is fine."""
        self.free()

    def __reduce__(self):
        raise TypeError("a connection belongs to its process and cannot be pickled")
