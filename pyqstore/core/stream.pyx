# Streams: their status, readers, and cursors.
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport uint32_t, uint64_t

from .errors import OffsetOutOfRange

START_FIRST = <int>QS_STREAM_FIRST
START_LAST = <int>QS_STREAM_LAST
START_NEXT = <int>QS_STREAM_NEXT
START_OFFSET = <int>QS_STREAM_OFFSET
START_TIME = <int>QS_STREAM_TIME

COLUMN_TIMESTAMP = <int>QS_STREAM_COLUMN_TIMESTAMP
COLUMN_EXCHANGE = <int>QS_STREAM_COLUMN_EXCHANGE
COLUMN_ROUTING_KEY = <int>QS_STREAM_COLUMN_ROUTING_KEY
COLUMN_BODY = <int>QS_STREAM_COLUMN_BODY
COLUMN_PROPERTIES = <int>QS_STREAM_COLUMN_PROPERTIES


cdef class StreamReader:
    """Reads one stream; one thread at a time uses it."""
    cdef qs_stream_reader *handle
    cdef Store store
    cdef object stream
    cdef bint busy
    cdef object __weakref__

    def __cinit__(self, Store store not None, stream, uint32_t at, uint64_t value,
                  uint32_t columns, tuple routing_keys):
        cdef qs_slice name
        cdef qs_stream_read read
        cdef qs_slice *keys = NULL
        cdef Py_ssize_t count = len(routing_keys)
        cdef Py_ssize_t index
        cdef qs_error error
        cdef qs_status status
        self.store = store
        self.stream = stream
        name_slice(stream, "stream", &name)
        put_start(&read.start, at, value)
        read.columns = columns
        read.clamps = False
        keys = <qs_slice *>PyMem_Malloc((count + 1) * sizeof(qs_slice))
        if keys == NULL:
            raise MemoryError
        try:
            for index in range(count):
                name_slice(routing_keys[index], "routing key", &keys[index])
            read.routing_keys = keys
            read.routing_key_count = <size_t>count
            store.begin(&error)
            with nogil:
                status = qs_stream_reader_open(&self.handle, store.handle, name, &read, &error)
            if status != QS_OK:
                self.handle = NULL
            self.end(status, &error)
        finally:
            PyMem_Free(keys)
        store.handles.add(self)

    def __dealloc__(self):
        self._free()

    cpdef _free(self):
        """Close the reader: its store is closing, or nobody refers to it."""
        cdef qs_stream_reader *handle = self.handle
        self.handle = NULL
        if handle != NULL:
            with nogil:
                qs_stream_reader_close(handle)

    cdef int begin(self, qs_error *error) except -1:
        if self.busy:
            raise RuntimeError("another thread is using this reader; open one for each")
        self.store.begin(error)
        if self.handle == NULL:
            self.store.leave()
            raise ValueError("the reader is closed")
        self.busy = True
        return 0

    cdef int end(self, qs_status status, qs_error *error) except -1:
        self.busy = False
        if status == QS_EOFFSET:
            self.store.leave()
            fail_offset(self.store, self.stream)
        return self.store.end(status, error)

    def next(self, uint64_t rows_max, uint64_t bytes_max, uint64_t timeout_ns):
        """An ArrowBatch, or None when nothing came in time."""
        cdef ArrowBatch batch = ArrowBatch()
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_stream_reader_next(self.handle, rows_max, bytes_max, timeout_ns,
                                           &batch.schema, &batch.array, &error)
        if status != QS_OK:
            batch.schema.release = NULL
            batch.array.release = NULL
        if status == QS_EEMPTY:
            self.end(QS_OK, &error)
            return None
        self.end(status, &error)
        return batch

    @property
    def position(self):
        """The next batch begins at this offset or after it."""
        cdef uint64_t position
        cdef qs_error error
        self.begin(&error)
        position = qs_stream_reader_position(self.handle)
        self.end(QS_OK, &error)
        return position

    def seek(self, uint32_t at, uint64_t value):
        """Have the next batch begin elsewhere."""
        cdef qs_stream_start start
        cdef qs_error error
        cdef qs_status status
        put_start(&start, at, value)
        self.begin(&error)
        with nogil:
            status = qs_stream_reader_seek(self.handle, &start, &error)
        self.end(status, &error)

    def __reduce__(self):
        raise TypeError("cannot be pickled")


def wait_for_streams(list readers not None, uint64_t timeout_ns):
    """Return when one of these readers, which are of one store, has something to read or to raise,
    or when the time is over."""
    cdef StreamReader reader
    cdef Store store = (<StreamReader?>readers[0]).store
    cdef size_t count = 0
    cdef size_t index
    cdef qs_error error
    cdef qs_status status = QS_OK
    cdef qs_stream_reader **handles = <qs_stream_reader **>PyMem_Malloc(
        len(readers) * sizeof(void *))
    if handles == NULL:
        raise MemoryError
    try:
        for reader in readers:
            reader.begin(&error)
            handles[count] = reader.handle
            count += 1
        with nogil:
            status = qs_stream_readers_wait(handles, count, timeout_ns, &error)
    finally:
        PyMem_Free(handles)
        for index in range(count):
            reader = readers[index]
            reader.busy = False
            store.leave()
    if status != QS_EEMPTY:
        check(status, &error)


cdef void put_start(qs_stream_start *start, uint32_t at, uint64_t value) noexcept:
    start.at = at
    start.offset = value
    start.time_us = value


cdef int fail_offset(Store store, stream) except -1:
    told = stream_status(store, stream)
    raise OffsetOutOfRange(told["first"], told["next"])


def stream_status(Store store not None, stream):
    """The members of qs_stream_status by name."""
    cdef qs_slice name
    cdef qs_stream_status told
    cdef qs_error error
    cdef qs_status status
    name_slice(stream, "stream", &name)
    store.begin(&error)
    with nogil:
        status = qs_store_stream_status(store.handle, name, &told, &error)
    store.end(status, &error)
    return {
        "first": told.first,
        "next": told.next,
        "durable": told.durable,
        "last_time_us": told.last_time_us,
        "segments": told.segments,
        "disk_bytes": told.disk_bytes,
        "ram_bytes": told.ram_bytes,
        "flushed": told.flushed,
        "cursors": told.cursors,
        "id": told.id,
    }


def stream_offset_at(Store store not None, stream, uint64_t time_us):
    """The first offset whose message was published at or after a time."""
    cdef qs_slice name
    cdef uint64_t offset = 0
    cdef qs_error error
    cdef qs_status status
    name_slice(stream, "stream", &name)
    store.begin(&error)
    with nogil:
        status = qs_store_stream_offset_at(store.handle, name, time_us, &offset, &error)
    store.end(status, &error)
    return offset


def stream_cursor(Store store not None, stream, group):
    """The offset at which a group continues, or None."""
    cdef qs_slice name
    cdef qs_slice group_name
    cdef qs_cursor cursor
    cdef qs_error error
    cdef qs_status status
    name_slice(stream, "stream", &name)
    name_slice(group, "group", &group_name)
    store.begin(&error)
    with nogil:
        status = qs_store_cursor(store.handle, name, group_name, &cursor, &error)
    if status == QS_EEMPTY:
        store.leave()
        return None
    store.end(status, &error)
    return cursor.offset


cdef void visit_cursor(void *context, const qs_cursor_info *info) noexcept nogil:
    cdef Listing *listing = <Listing *>context
    listing_put(listing, info.group.data, info.group.bytes)
    listing_put(listing, &info.offset, sizeof(info.offset))


def stream_cursors(Store store not None, stream):
    """(group, offset) of each group, both as bytes."""
    cdef qs_slice name
    cdef Listing listing = Listing(NULL, 0, 0, False)
    cdef qs_error error
    cdef qs_status status
    name_slice(stream, "stream", &name)
    store.begin(&error)
    with nogil:
        status = qs_store_visit_cursors(store.handle, name, visit_cursor, &listing, &error)
    return store.listed(&listing, 2, status, &error)
