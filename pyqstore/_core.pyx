# cython: language_level=3, binding=True, boundscheck=False, wraparound=False
"""The engine's handles: arguments to C, the GIL dropped around one call, the status to an
exception, the result back.

What a handle owes its caller beside that, since C leaves it to the caller:
- No call may be under way when a store is closed.  Every call is counted on its store while it is
  in C, and close waits for the count to reach 0, having turned later calls away.
- A channel serves one thread at a time.  A second one is told so.
- A store is of no use after fork().  A counter that the child moves tells.
"""
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport (PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize,
                            PyBytes_GET_SIZE)
from cpython.exc cimport PyErr_CheckSignals
from cpython.long cimport PyLong_AsUnsignedLongLong, PyLong_Check
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.number cimport PyIndex_Check, PyNumber_Index
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.unicode cimport PyUnicode_Check, PyUnicode_DecodeUTF8
from libc.errno cimport EINVAL, ENOMEM
from libc.stdint cimport UINT32_MAX, UINT64_MAX, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from posix.unistd cimport usleep

import os

from _capi cimport *

from .errors import ChannelClosed, ForkedStore, PreconditionFailed, StoreClosed, from_status

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *bytes_out) except NULL

PASSIVE = <int>QS_PASSIVE
DURABLE = <int>QS_DURABLE
EXCLUSIVE = <int>QS_EXCLUSIVE
AUTO_DELETE = <int>QS_AUTO_DELETE
INTERNAL = <int>QS_INTERNAL
IF_UNUSED = <int>QS_IF_UNUSED
IF_EMPTY = <int>QS_IF_EMPTY
NO_ACK = <int>QS_NO_ACK

EVENT_RETURN = <int>QS_EVENT_RETURN
EVENT_ACK = <int>QS_EVENT_ACK
EVENT_NACK = <int>QS_EVENT_NACK
EVENT_DELIVERY = <int>QS_EVENT_DELIVERY
EVENT_CANCEL = <int>QS_EVENT_CANCEL
EVENT_CHANGE = <int>QS_EVENT_CHANGE
EVENT_ARM = <int>QS_EVENT_ARM
EVENT_ERROR = 0

cdef enum:
    CLOSE_POLL_US = 200
    COPY_WITHOUT_GIL_BYTES = 65536
    FIRST_REPLY_CODE = 300
    LISTING_BYTES_FIRST = 4096

cdef unsigned long fork_generation = 0


def _after_fork_in_child():
    global fork_generation
    fork_generation += 1


os.register_at_fork(after_in_child=_after_fork_in_child)


# Errors.

cdef inline void clear(qs_error *error) noexcept nogil:
    error.os_errno = 0
    error.offset = 0
    error.path[0] = 0
    error.text[0] = 0


cdef int fail(qs_status status, qs_error *error) except -1:
    raise from_status(<int>status, qs_status_name(status).decode(), qs_status_text(status).decode(),
                      error.text.decode("utf-8", "replace"), error.path.decode("utf-8", "replace"),
                      error.offset, error.os_errno)


cdef inline int check(qs_status status, qs_error *error) except -1:
    if status != QS_OK:
        fail(status, error)
    return 0


# Arguments.

cdef inline int text_slice(object text, str name, qs_slice *slice_out) except -1:
    """The UTF-8 of text, which the text keeps."""
    cdef Py_ssize_t size
    if not PyUnicode_Check(text):
        raise TypeError(f"{name} must be str, not {type(text).__name__}")
    slice_out.data = PyUnicode_AsUTF8AndSize(text, &size)
    slice_out.bytes = <size_t>size
    return 0


cdef inline qs_slice bytes_slice(bytes data) noexcept:
    cdef qs_slice result
    result.data = PyBytes_AS_STRING(data)
    result.bytes = <size_t>PyBytes_GET_SIZE(data)
    return result


cdef inline int properties_slice(object properties, qs_slice *slice_out) except -1:
    if properties is None:
        slice_out.data = NULL
        slice_out.bytes = 0
    elif isinstance(properties, EncodedProperties):
        slice_out[0] = bytes_slice((<EncodedProperties>properties).encoded)
    else:
        raise TypeError(f"properties must be Properties, not {type(properties).__name__}")
    return 0


cdef inline int number_of(object value, str name, uint64_t most, uint64_t *number_out) except -1:
    if not PyLong_Check(value):
        if not PyIndex_Check(value):
            raise TypeError(f"{name} must be int, not {type(value).__name__}")
        value = PyNumber_Index(value)
    try:
        number_out[0] = PyLong_AsUnsignedLongLong(value)
        if number_out[0] <= most:
            return 0
    except OverflowError:
        pass
    raise ValueError(f"{name} must be 0 to {most}, not {value}")


# Results.

cdef object text_of(const qs_slice *text):
    return PyUnicode_DecodeUTF8(<const char *>text.data, <Py_ssize_t>text.bytes, "surrogateescape")


cdef str text_again(const qs_slice *text, str last):
    """The same as text_of, without making what last is already."""
    cdef Py_ssize_t size
    cdef const char *data
    if text.bytes == 0:
        return ""
    if last is not None and last.isascii():
        data = PyUnicode_AsUTF8AndSize(last, &size)
        if <size_t>size == text.bytes and memcmp(data, text.data, text.bytes) == 0:
            return last
    return text_of(text)


cdef bytes bytes_of(const qs_slice *data):
    cdef bytes copy
    cdef char *target
    cdef size_t count = data.bytes
    cdef const void *source = data.data
    if count < COPY_WITHOUT_GIL_BYTES:
        return PyBytes_FromStringAndSize(<const char *>source, <Py_ssize_t>count)
    copy = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>count)
    target = PyBytes_AS_STRING(copy)
    with nogil:
        memcpy(target, source, count)
    return copy


cdef class EncodedProperties:
    """AMQP properties in their encoding, beside the values they encode."""
    cdef readonly bytes encoded
    cdef readonly tuple values

    def __cinit__(self, bytes encoded not None, tuple values not None):
        self.encoded = encoded
        self.values = values


cdef object decode_properties = None


cdef object properties_of(bytes encoded):
    global decode_properties
    if decode_properties is None:
        from .properties import Properties
        decode_properties = Properties.decode
    return decode_properties(encoded)


@cython.freelist(64)
cdef class Message:
    """One message, as ``basic_get``, a callback or ``consume`` hands it out.

    - ``body``: bytes.
    - ``delivery_tag``: int, the number to acknowledge; per channel, from 1.
    - ``redelivered``: bool, whether it was delivered before and came back.
    - ``exchange``, ``routing_key``: str, as published.
    - ``queue``: str, where it came from.
    - ``consumer_tag``: str, empty for ``basic_get``.
    - ``delivery_count``: int, how many deliveries went before this one.
    """
    cdef Channel channel
    cdef bytes encoded
    cdef object decoded
    cdef readonly bytes body
    cdef readonly uint64_t delivery_tag
    cdef readonly bint redelivered
    cdef readonly str exchange
    cdef readonly str routing_key
    cdef readonly str queue
    cdef readonly str consumer_tag
    cdef readonly uint32_t delivery_count

    def __init__(self):
        raise TypeError("messages come from a channel")

    @property
    def properties(self):
        """The message's Properties, decoded when first asked for."""
        if self.decoded is None:
            self.decoded = properties_of(self.encoded)
        return self.decoded

    @property
    def _channel(self):
        return self.channel

    cdef Channel owner(self):
        if self.channel is None:
            raise TypeError("messages come from a channel")
        return self.channel

    def ack(self):
        """Acknowledge this message.  Raises as ``Channel.basic_ack`` does."""
        self.owner().settle(self.delivery_tag, 0, True)

    def nack(self, bint requeue=True):
        """Refuse this message: back to its place in the queue, or dead-lettered, or dropped."""
        self.owner().settle(self.delivery_tag, QS_REQUEUE if requeue else 0, False)

    def reject(self, bint requeue=False):
        """The same as ``nack`` with the other default."""
        self.owner().settle(self.delivery_tag, QS_REQUEUE if requeue else 0, False)

    def __repr__(self):
        return (f"<{type(self).__name__} {self.delivery_tag} of queue {self.queue!r}: "
                f"{len(self.body)} bytes{', redelivered' if self.redelivered else ''}>")

    def __reduce__(self):
        raise TypeError("a message belongs to its channel and cannot be pickled")


cdef class ReturnedMessage(Message):
    """A mandatory message that no queue took: ``reply_code`` (312) and ``reply_text`` ("NO_ROUTE")
    tell why.

    It has no delivery tag and cannot be acknowledged.
    """
    cdef readonly uint32_t reply_code
    cdef readonly str reply_text


# Arrow.

cdef void schema_capsule_free(object capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    PyMem_RawFree(schema)


cdef void array_capsule_free(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    PyMem_RawFree(array)


cdef class ArrowBatch:
    """A record batch for whoever speaks the Arrow PyCapsule protocol; it can be taken once."""
    cdef ArrowSchema schema
    cdef ArrowArray array

    def __dealloc__(self):
        if self.schema.release != NULL:
            self.schema.release(&self.schema)
        if self.array.release != NULL:
            self.array.release(&self.array)

    def __len__(self):
        return self.array.length

    def __arrow_c_array__(self, requested_schema=None):
        """The capsules ("arrow_schema", "arrow_array"); requested_schema is not looked at."""
        cdef ArrowSchema *schema
        cdef ArrowArray *array
        if self.array.release == NULL:
            raise ValueError("this batch was taken already")
        schema = <ArrowSchema *>PyMem_RawMalloc(sizeof(ArrowSchema))
        if schema == NULL:
            raise MemoryError
        schema[0] = self.schema
        self.schema.release = NULL
        schema_capsule = PyCapsule_New(schema, "arrow_schema", schema_capsule_free)
        array = <ArrowArray *>PyMem_RawMalloc(sizeof(ArrowArray))
        if array == NULL:
            raise MemoryError
        array[0] = self.array
        self.array.release = NULL
        return schema_capsule, PyCapsule_New(array, "arrow_array", array_capsule_free)

    def __reduce__(self):
        raise TypeError("cannot be pickled")


cdef int stream_failed(ArrowArrayStream *stream, int code) except -1:
    cdef const char *said = stream.get_last_error(stream)
    text = "the Arrow stream failed" if said == NULL else said.decode("utf-8", "replace")
    if code == ENOMEM:
        raise MemoryError(text)
    if code == EINVAL:
        raise ValueError(text)
    raise OSError(code, text)


cdef class ArrowChunks:
    """All record batches of a stream, until this goes away."""
    cdef ArrowSchema schema
    cdef ArrowArray *arrays
    cdef const ArrowArray **pointers
    cdef size_t count
    cdef size_t room

    def __dealloc__(self):
        cdef size_t index
        for index in range(self.count):
            self.arrays[index].release(&self.arrays[index])
        if self.schema.release != NULL:
            self.schema.release(&self.schema)
        PyMem_RawFree(self.arrays)
        PyMem_RawFree(self.pointers)

    cdef int grow(self) except -1:
        cdef size_t room = 16 if self.room == 0 else 2 * self.room
        cdef size_t needed = room * sizeof(ArrowArray)
        cdef ArrowArray *arrays = <ArrowArray *>PyMem_RawRealloc(self.arrays, needed)
        if arrays == NULL:
            raise MemoryError
        self.arrays = arrays
        self.room = room
        return 0

    cdef int fill(self, ArrowArrayStream *stream) except -1:
        cdef int code
        cdef ArrowArray *target
        cdef size_t index
        cdef size_t needed
        with nogil:
            code = stream.get_schema(stream, &self.schema)
        if code != 0:
            self.schema.release = NULL
            stream_failed(stream, code)
        while True:
            PyErr_CheckSignals()
            if self.count == self.room:
                self.grow()
            target = &self.arrays[self.count]
            target.release = NULL
            with nogil:
                code = stream.get_next(stream, target)
            if code != 0:
                stream_failed(stream, code)
            if target.release == NULL:
                break
            self.count += 1
        needed = (self.count + 1) * sizeof(ArrowArray *)
        self.pointers = <const ArrowArray **>PyMem_RawMalloc(needed)
        if self.pointers == NULL:
            raise MemoryError
        for index in range(self.count):
            self.pointers[index] = &self.arrays[index]
        return 0


# Listings: visitors run under the store's lock, where no Python object may be made (collecting
# garbage could close a channel, which takes the same lock).  So they copy fields, each behind its
# length, and Python reads later.

cdef struct Listing:
    char *data
    size_t bytes
    size_t room
    bint failed


cdef void listing_put(Listing *listing, const void *data, size_t count) noexcept nogil:
    cdef size_t needed = listing.bytes + sizeof(size_t) + count
    cdef size_t room = listing.room
    cdef char *grown
    if listing.failed:
        return
    if needed > room:
        room = max(<size_t>LISTING_BYTES_FIRST, max(needed, 2 * room))
        grown = <char *>PyMem_RawRealloc(listing.data, room)
        if grown == NULL:
            listing.failed = True
            return
        listing.data = grown
        listing.room = room
    memcpy(listing.data + listing.bytes, &count, sizeof(size_t))
    if count > 0:
        memcpy(listing.data + listing.bytes + sizeof(size_t), data, count)
    listing.bytes = needed


cdef inline void listing_flag(Listing *listing, bint flag) noexcept nogil:
    listing_put(listing, b"1", 1 if flag else 0)


cdef void visit_queue(void *context, const qs_queue_info *info) noexcept nogil:
    cdef Listing *listing = <Listing *>context
    listing_put(listing, info.name.data, info.name.bytes)
    listing_flag(listing, info.durable)
    listing_flag(listing, info.exclusive)
    listing_flag(listing, info.auto_delete)
    listing_put(listing, info.arguments.data, info.arguments.bytes)
    listing_put(listing, &info.messages_ready, sizeof(info.messages_ready))


cdef void visit_exchange(void *context, const qs_exchange_info *info) noexcept nogil:
    cdef Listing *listing = <Listing *>context
    listing_put(listing, info.name.data, info.name.bytes)
    listing_put(listing, info.type.data, info.type.bytes)
    listing_flag(listing, info.durable)
    listing_flag(listing, info.auto_delete)
    listing_flag(listing, info.internal)
    listing_put(listing, info.arguments.data, info.arguments.bytes)


cdef void visit_binding(void *context, const qs_binding_info *info) noexcept nogil:
    cdef Listing *listing = <Listing *>context
    listing_put(listing, info.source.data, info.source.bytes)
    listing_put(listing, info.destination.data, info.destination.bytes)
    listing_put(listing, info.routing_key.data, info.routing_key.bytes)
    listing_put(listing, info.arguments.data, info.arguments.bytes)
    listing_flag(listing, info.to_exchange)


cdef list listing_rows(Listing *listing, int fields):
    """The rows as tuples of bytes; frees what the listing holds."""
    cdef size_t at = 0
    cdef size_t count
    cdef list rows = []
    cdef list row
    try:
        if listing.failed:
            raise MemoryError
        while at < listing.bytes:
            row = []
            for _ in range(fields):
                memcpy(&count, listing.data + at, sizeof(size_t))
                at += sizeof(size_t)
                row.append(PyBytes_FromStringAndSize(listing.data + at, <Py_ssize_t>count))
                at += count
            rows.append(tuple(row))
    finally:
        PyMem_RawFree(listing.data)
    return rows


# Progress: C calls back in the thread that opens, which has no GIL then.

cdef class Progress:
    """Who wants to be told, and what came of it: the first exception, after which nobody is."""
    cdef object callback
    cdef object on_damage
    cdef object raised


cdef void tell_progress(void *context, uint64_t bytes_done, uint64_t bytes_total) noexcept with gil:
    cdef Progress progress = <Progress>context
    if progress.raised is not None:
        return
    try:
        progress.callback(bytes_done, bytes_total)
    except BaseException as error:
        progress.raised = error


cdef c_bool tell_verified(void *context, uint64_t bytes_done,
                          uint64_t bytes_total) noexcept with gil:
    cdef Progress progress = <Progress>context
    if progress.callback is not None:
        tell_progress(context, bytes_done, bytes_total)
    else:
        try:
            PyErr_CheckSignals()
        except BaseException as error:
            progress.raised = error
    return progress.raised is None


cdef void tell_damage(void *context, const qs_error *what) noexcept with gil:
    cdef Progress progress = <Progress>context
    if progress.raised is not None:
        return
    try:
        progress.on_damage(what.path.decode("utf-8", "replace"), what.offset,
                           what.text.decode("utf-8", "replace"))
    except BaseException as error:
        progress.raised = error


def verify_store(bytes path not None, progress, damage):
    """The counts of qs_store_verify; damage(path, offset, text) is called for each damage."""
    cdef Progress told = Progress.__new__(Progress)
    cdef qs_verify_callbacks callbacks
    cdef qs_verified verified
    cdef const char *directory = path
    cdef qs_error error
    cdef qs_status status
    told.callback = progress
    told.on_damage = damage
    callbacks.progress = tell_verified
    callbacks.damage = tell_damage
    callbacks.context = <void *>told
    clear(&error)
    with nogil:
        status = qs_store_verify(directory, NULL, &callbacks, &verified, &error)
    if told.raised is not None:
        raise told.raised
    if status != QS_ECORRUPT:
        check(status, &error)
    return verified


cdef class Store:
    """An open store: the handle under ``pyqstore.Store``.  Numbers are the engine's, names are
    bytes."""
    cdef qs_store *handle
    cdef unsigned long generation
    cdef int active
    cdef bint closing

    def __cinit__(self, bytes path not None, *, uint64_t memory_budget, uint64_t embed_below,
                  uint64_t journal_file_bytes, uint64_t message_file_bytes, uint64_t body_bytes_max,
                  uint32_t segment_entries, uint64_t checkpoint_bytes,
                  uint32_t checkpoint_interval_ms, uint32_t commit_delay_us, uint32_t sync,
                  uint32_t recovery, bint create, progress=None):
        cdef qs_options options
        cdef Progress told = None
        cdef const char *directory = path
        cdef qs_error error
        cdef qs_status status
        qs_options_default(&options)
        options.memory_budget = memory_budget
        options.embed_below = embed_below
        options.journal_file_bytes = journal_file_bytes
        options.message_file_bytes = message_file_bytes
        options.body_bytes_max = body_bytes_max
        options.segment_entries = segment_entries
        options.checkpoint_bytes = checkpoint_bytes
        options.checkpoint_interval_ms = checkpoint_interval_ms
        options.commit_delay_us = commit_delay_us
        options.sync = sync
        options.recovery = recovery
        options.create = create
        if progress is not None:
            told = Progress.__new__(Progress)
            told.callback = progress
            options.progress = tell_progress
            options.progress_context = <void *>told
        self.generation = fork_generation
        clear(&error)
        with nogil:
            status = qs_store_open(&self.handle, directory, &options, NULL, &error)
        if status != QS_OK:
            self.handle = NULL
        if told is not None and told.raised is not None:
            raise told.raised  # __dealloc__ closes what was opened all the same
        check(status, &error)

    def __dealloc__(self):
        if self.handle != NULL:
            with nogil:
                qs_store_close(self.handle, NULL)

    cdef int enter(self) except -1:
        if self.generation != fork_generation:
            raise ForkedStore("the store was opened before fork(); open it in this process")
        if self.closing or self.handle == NULL:
            raise StoreClosed("the store is closed")
        self.active += 1
        return 0

    cdef void leave(self) noexcept:
        self.active -= 1

    cdef int begin(self, qs_error *error) except -1:
        self.enter()
        clear(error)
        return 0

    cdef int end(self, qs_status status, qs_error *error) except -1:
        self.leave()
        return check(status, error)

    cdef void await_close(self) noexcept:
        """Return when no close is under way in another thread."""
        while self.closing and self.handle != NULL and self.generation == fork_generation:
            with nogil:
                usleep(CLOSE_POLL_US)

    @property
    def closed(self):
        """Whether the store was closed."""
        return self.closing or self.handle == NULL

    @property
    def _forked(self):
        return self.generation != fork_generation

    def close(self):
        """Requeue what channels hold, make everything durable and give the store up.  Closing twice
        is fine.

        Waits for calls that other threads have under way; waiting ones are turned away within 0.1
        s. In a child of fork() only memory is freed.  Raises StoreFailed when something published
        could not be made durable, StoreFull when there was no space to note that it is: the next
        open recovers it, as after a crash.  The store is closed all the same.
        """
        cdef qs_error error
        cdef qs_status status
        cdef bint forked = self.generation != fork_generation
        if self.handle == NULL:
            return
        if self.closing and not forked:
            self.await_close()
            return
        self.closing = True
        while self.active > 0 and not forked:
            with nogil:
                usleep(CLOSE_POLL_US)
        clear(&error)
        with nogil:
            status = qs_store_close(self.handle, &error)
        self.handle = NULL
        if not forked:
            check(status, &error)

    def sync(self):
        """Return when everything published so far, by any channel, is durable.

        Raises StoreFailed after an input/output error.
        """
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_sync(self.handle, &error)
        self.end(status, &error)

    def checkpoint(self):
        """Make a checkpoint: the journal's files are used again, and opening begins here.

        What queues and messages are comes to stand in other files; publishers and consumers go on
        meanwhile. Space of messages that were consumed comes back.  Blocks until everything
        published before is on the disk.  Raises StoreFull (no space: the journal still has
        everything), StoreFailed.
        """
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_checkpoint(self.handle, &error)
        self.end(status, &error)

    def _wait_durable(self, uint64_t lsn, uint64_t timeout_ns):
        """Whether the journal is durable up to lsn, after timeout_ns at the latest."""
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_wait_durable(self.handle, lsn, timeout_ns, &error)
        self.leave()
        if status == QS_ETIMEDOUT:
            return False
        check(status, &error)
        return True

    def _durable_lsn(self):
        cdef uint64_t lsn
        self.enter()
        with nogil:
            lsn = qs_store_durable_lsn(self.handle)
        self.leave()
        return lsn

    def _stats(self):
        cdef qs_stats stats
        self.enter()
        with nogil:
            qs_store_stats(self.handle, &stats)
        self.leave()
        return stats

    def _options(self):
        cdef qs_options options
        self.enter()
        with nogil:
            qs_store_options(self.handle, &options)
        self.leave()
        return {
            "memory_budget": options.memory_budget,
            "embed_below": options.embed_below,
            "segment_entries": options.segment_entries,
            "journal_file_bytes": options.journal_file_bytes,
            "message_file_bytes": options.message_file_bytes,
            "body_bytes_max": options.body_bytes_max,
            "checkpoint_bytes": options.checkpoint_bytes,
            "checkpoint_interval_ms": options.checkpoint_interval_ms,
            "commit_delay_us": options.commit_delay_us,
            "sync": options.sync,
            "recovery": options.recovery,
        }

    def _queue_status(self, queue):
        cdef qs_slice name
        cdef qs_queue_status queue_status
        cdef qs_error error
        cdef qs_status status
        text_slice(queue, "queue", &name)
        self.begin(&error)
        with nogil:
            status = qs_store_queue_status(self.handle, name, &queue_status, &error)
        self.end(status, &error)
        return queue_status

    def _set_queue_mode(self, queue, bint lazy):
        cdef qs_slice name
        cdef qs_error error
        cdef qs_status status
        text_slice(queue, "queue", &name)
        self.begin(&error)
        with nogil:
            status = qs_store_set_queue_mode(self.handle, name, lazy, &error)
        self.end(status, &error)

    def _queues(self):
        """(name, durable, exclusive, auto_delete, arguments, messages ready) of each.

        Flags are b"1" or b"", the count is 8 bytes in the machine's order.
        """
        cdef Listing listing = Listing(NULL, 0, 0, False)
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_visit_queues(self.handle, visit_queue, &listing)
        self.leave()
        rows = listing_rows(&listing, 6)
        check(status, &error)
        return rows

    def _exchanges(self):
        """(name, type, durable, auto_delete, internal, arguments) of each."""
        cdef Listing listing = Listing(NULL, 0, 0, False)
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_visit_exchanges(self.handle, visit_exchange, &listing)
        self.leave()
        rows = listing_rows(&listing, 6)
        check(status, &error)
        return rows

    def _bindings(self):
        """(source, destination, routing_key, arguments, to_exchange) of each."""
        cdef Listing listing = Listing(NULL, 0, 0, False)
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_visit_bindings(self.handle, visit_binding, &listing)
        self.leave()
        rows = listing_rows(&listing, 5)
        check(status, &error)
        return rows

    def transaction_known(self, key):
        """Whether a transaction was committed, durably, with this key: what ``tx_commit(key=...)``
        asks first."""
        cdef qs_slice name
        cdef bint known
        text_slice(key, "key", &name)
        self.enter()
        with nogil:
            known = qs_store_transaction_known(self.handle, name)
        self.leave()
        return known

    def __reduce__(self):
        raise TypeError("a store belongs to its process and cannot be pickled")


@cython.no_gc_clear
cdef class Connection:
    """An open connection: the handle under ``pyqstore.Connection``."""
    cdef qs_connection *handle
    cdef Store store
    cdef int opening
    cdef bint refused

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

    def __dealloc__(self):
        self.free()

    cdef void free(self) noexcept:
        cdef qs_connection *handle
        if self.handle == NULL:
            return
        self.store.await_close()
        handle = self.handle
        self.handle = NULL
        while self.opening > 0 and self.store.generation == fork_generation:
            with nogil:
                usleep(CLOSE_POLL_US)
        self.store.active += 1
        with nogil:
            qs_connection_close(handle)
        self.store.active -= 1

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
        """After an AMQP error on a channel: some end the connection."""
        if self.handle != NULL:
            self.refused = qs_connection_is_closed(self.handle)

    @property
    def is_closed(self):
        """Whether the connection is closed: by ``close()``, by an AMQP error of the whole
        connection, or with its store."""
        return self.refused or self.handle == NULL or self.store.closed

    def close(self):
        """Close the channels, which requeues what they hold, and delete the exclusive queues.
        Closing twice is fine.

        A channel that waits in another thread raises ChannelClosed there.
        """
        self.free()

    def __reduce__(self):
        raise TypeError("a connection belongs to its process and cannot be pickled")


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
    cdef uint32_t no_wait
    cdef object message_type
    cdef str last_exchange
    cdef str last_routing_key
    cdef str last_queue
    cdef str last_consumer_tag

    def __cinit__(self, Store store not None, Connection connection=None):
        cdef qs_connection *shared
        cdef qs_error error
        cdef qs_status status
        self.store = store
        self.connection = connection
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

    def __dealloc__(self):
        self.free()

    cdef void free(self) noexcept:
        cdef qs_channel *handle
        if self.handle == NULL:
            return
        self.store.await_close()
        handle = self.handle
        self.handle = NULL
        self.store.active += 1
        with nogil:
            qs_channel_close(handle)
        self.store.active -= 1

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
                or (self.connection is not None and self.connection.is_closed))

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
        text_slice(exchange, "exchange", &name)
        text_slice(exchange_type, "exchange_type", &kind)
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
        text_slice(exchange, "exchange", &name)
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
        text_slice(queue, "queue", &name)
        self.begin(&error)
        with nogil:
            status = qs_channel_queue_declare(self.handle, name, flags, table, &ok, &error)
        self.end(status, &error)
        name_made = (<bytes>ok.queue).decode("utf-8", "surrogateescape")
        return name_made, ok.message_count, ok.consumer_count

    def _queue_bind(self, queue, exchange, routing_key, bytes arguments not None):
        cdef qs_slice name
        cdef qs_slice source
        cdef qs_slice key
        cdef qs_slice table = bytes_slice(arguments)
        cdef qs_error error
        cdef qs_status status
        text_slice(queue, "queue", &name)
        text_slice(exchange, "exchange", &source)
        text_slice(routing_key, "routing_key", &key)
        self.begin(&error)
        with nogil:
            status = qs_channel_queue_bind(self.handle, name, source, key, table, &error)
        self.end(status, &error)

    def _queue_unbind(self, queue, exchange, routing_key, bytes arguments not None):
        cdef qs_slice name
        cdef qs_slice source
        cdef qs_slice key
        cdef qs_slice table = bytes_slice(arguments)
        cdef qs_error error
        cdef qs_status status
        text_slice(queue, "queue", &name)
        text_slice(exchange, "exchange", &source)
        text_slice(routing_key, "routing_key", &key)
        self.begin(&error)
        with nogil:
            status = qs_channel_queue_unbind(self.handle, name, source, key, table, &error)
        self.end(status, &error)

    def _exchange_bind(self, destination, source, routing_key, bytes arguments not None):
        cdef qs_slice to
        cdef qs_slice origin
        cdef qs_slice key
        cdef qs_slice table = bytes_slice(arguments)
        cdef qs_error error
        cdef qs_status status
        text_slice(destination, "destination", &to)
        text_slice(source, "source", &origin)
        text_slice(routing_key, "routing_key", &key)
        self.begin(&error)
        with nogil:
            status = qs_channel_exchange_bind(self.handle, to, origin, key, table, &error)
        self.end(status, &error)

    def _exchange_unbind(self, destination, source, routing_key, bytes arguments not None):
        cdef qs_slice to
        cdef qs_slice origin
        cdef qs_slice key
        cdef qs_slice table = bytes_slice(arguments)
        cdef qs_error error
        cdef qs_status status
        text_slice(destination, "destination", &to)
        text_slice(source, "source", &origin)
        text_slice(routing_key, "routing_key", &key)
        self.begin(&error)
        with nogil:
            status = qs_channel_exchange_unbind(self.handle, to, origin, key, table, &error)
        self.end(status, &error)

    def queue_purge(self, queue):
        """Drop every ready message of a queue; unacknowledged ones stay.  Returns how many were
        dropped."""
        cdef qs_slice name
        cdef uint64_t count = 0
        cdef qs_error error
        cdef qs_status status
        text_slice(queue, "queue", &name)
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
        text_slice(queue, "queue", &name)
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
                        bint mandatory):
        cdef qs_slice name
        cdef qs_slice key
        cdef qs_slice blob
        cdef qs_receipt receipt
        cdef qs_error error
        cdef qs_status status
        cdef uint32_t flags = self.no_wait | (QS_MANDATORY if mandatory else 0)
        text_slice(exchange, "exchange", &name)
        text_slice(routing_key, "routing_key", &key)
        properties_slice(properties, &blob)
        self.begin(&error)
        with nogil:
            status = qs_channel_publish(self.handle, name, key, blob, body, flags, &receipt, &error)
        self.end(status, &error)
        return receipt.first_number

    def basic_publish(self, exchange, routing_key, body, properties=None, bint mandatory=False):
        """Hand one message to the queues that ``exchange``, ``routing_key`` and headers lead to.

        The str in the headers CC and BCC (lists) are routing keys as well; BCC does not go with
        the message.

        ``body`` is bytes, any object with the buffer protocol (C-contiguous, taken byte by byte),
        or str (as UTF-8); it is copied.  ``properties`` is a Properties; ``delivery_mode=2`` in it
        makes the message survive a restart in a durable queue.  With ``mandatory`` a message that
        no queue takes comes back to the return listeners; without, it is dropped.

        Returns the publish number in confirm mode, else 0.  The message is not durable yet: wait
        for its confirm. Blocks while too much waits to be synced.  Raises NotFound (no such
        exchange), AccessRefused (an internal one), PreconditionFailed (too large, or CC or BCC is
        no list), StoreFull (nothing accepted, try again), StoreFailed, TypeError, ValueError.
        """
        cdef qs_slice data
        cdef Py_buffer view
        if PyBytes_Check(body):
            data.data = PyBytes_AS_STRING(body)
            data.bytes = <size_t>PyBytes_GET_SIZE(body)
            return self.publish(exchange, routing_key, properties, data, mandatory)
        if PyUnicode_Check(body):
            text_slice(body, "body", &data)
            return self.publish(exchange, routing_key, properties, data, mandatory)
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        try:
            data.data = view.buf
            data.bytes = <size_t>view.len
            return self.publish(exchange, routing_key, properties, data, mandatory)
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
        text_slice(exchange, "exchange", &batch.exchange)
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
        return receipt.first_number, receipt.last_number, receipt.count, receipt.lsn

    def _publish_array(self, schema, array, exchange, routing_key, str body not None, properties,
                       bint mandatory):
        """(first number, last number, count, lsn) of one record batch, given as its two
        capsules."""
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

    def basic_get(self, queue, bint auto_ack=False):
        """The first ready message of ``queue``, or None.  NotFound: no such queue."""
        cdef qs_slice name
        cdef qs_message source
        cdef Message message
        cdef qs_error error
        cdef qs_status status
        cdef uint32_t flags = self.no_wait | (QS_NO_ACK if auto_ack else 0)
        text_slice(queue, "queue", &name)
        self.begin(&error)
        with nogil:
            status = qs_channel_get(self.handle, name, flags, &source, &error)
        self.leave()
        if status == QS_EEMPTY:
            return None
        if status != QS_OK:
            self.failed(status, &error)
        message = self.new_message()
        self.fill(message, &source)
        return message

    def _get_batch(self, queue, uint64_t max_messages, uint64_t bytes_max, bint auto_ack,
                   uint64_t timeout_ns):
        """An ArrowBatch, of no rows when nothing came within timeout_ns."""
        cdef qs_slice name
        cdef ArrowBatch batch = ArrowBatch.__new__(ArrowBatch)
        cdef qs_error error
        cdef qs_status status
        cdef uint32_t flags = QS_NO_ACK if auto_ack else 0
        text_slice(queue, "queue", &name)
        self.begin(&error)
        with nogil:
            status = qs_channel_get_batch(self.handle, name, max_messages, bytes_max, flags,
                                          timeout_ns, &batch.schema, &batch.array, &error)
        self.leave()
        if status != QS_OK:
            batch.schema.release = NULL
            batch.array.release = NULL
            self.failed(status, &error)
        return batch

    cdef int settle(self, uint64_t delivery_tag, uint32_t flags, bint ack) except -1:
        cdef qs_error error
        cdef qs_status status
        flags |= self.no_wait
        self.begin(&error)
        if ack:
            with nogil:
                status = qs_channel_ack(self.handle, delivery_tag, flags, &error)
        else:
            with nogil:
                status = qs_channel_nack(self.handle, delivery_tag, flags, &error)
        self.end(status, &error)
        return 0

    def basic_ack(self, delivery_tag=0, bint multiple=False):
        """Acknowledge a delivery; with ``multiple`` all up to it, tag 0 meaning all.

        Returns at once: after a crash an acknowledged message may be delivered again, flagged
        redelivered. PreconditionFailed: unknown delivery tag.
        """
        cdef uint64_t tag
        number_of(delivery_tag, "delivery_tag", UINT64_MAX, &tag)
        self.settle(tag, QS_MULTIPLE if multiple else 0, True)

    def basic_nack(self, delivery_tag=0, bint multiple=False, bint requeue=True):
        """Refuse deliveries: back to their places in the queue, or dead-lettered, or dropped."""
        cdef uint64_t tag
        number_of(delivery_tag, "delivery_tag", UINT64_MAX, &tag)
        self.settle(tag, (QS_MULTIPLE if multiple else 0) | (QS_REQUEUE if requeue else 0), False)

    def basic_reject(self, delivery_tag, bint requeue=True):
        """Refuse one delivery."""
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
        text_slice(queue, "queue", &name)
        text_slice(consumer_tag, "consumer_tag", &tag)
        self.begin(&error)
        with nogil:
            status = qs_channel_consume(self.handle, name, tag, flags, table, made, &error)
        self.end(status, &error)
        return (<bytes>made).decode("utf-8", "surrogateescape")

    def _cancel(self, consumer_tag):
        cdef qs_slice tag
        cdef qs_error error
        cdef qs_status status
        text_slice(consumer_tag, "consumer_tag", &tag)
        self.begin(&error)
        with nogil:
            status = qs_channel_cancel(self.handle, tag, &error)
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
            message = self.new_message()
            self.fill(message, &event.message)
            return EVENT_DELIVERY, message, None
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

    # For event loops.

    def _event_fd(self):
        """The eventfd that is written when what the channel was armed for is there."""
        cdef int bell
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_channel_event_fd(self.handle, &bell, &error)
        self.end(status, &error)
        return bell

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
        while <size_t>len(events) < most:
            self.begin(&error)
            with nogil:
                status = qs_channel_next_event(self.handle, kinds | self.no_wait, 0, &event, &error)
            self.leave()
            if status != QS_OK:
                break
            if event.kind == QS_EVENT_ACK or event.kind == QS_EVENT_NACK:
                events.append((<int>event.kind, event.publish_number,
                               (<bint>event.multiple, event.count)))
            else:
                events.append(self.event_of(&event))
        if status != QS_OK and status != QS_EEMPTY and status != QS_EWOULDBLOCK:
            try:
                self.failed(status, &error)
            except Exception as exception:
                if len(events) == 0:
                    raise
                events.append((EVENT_ERROR, exception, None))
        return events, status == QS_EWOULDBLOCK

    def _settle_range(self, uint64_t first_tag, uint64_t last_tag, bint requeue,
                      bint reject=False, bint in_transaction=False):
        """Acknowledge what of these tags is outstanding, or put it back, or refuse it: beside any
        transaction, or as part of it."""
        cdef qs_error error
        cdef qs_status status
        cdef uint32_t flags = self.no_wait | (QS_REQUEUE if requeue else 0)
        flags |= (QS_REJECT if reject else 0) | (QS_IN_TX if in_transaction else 0)
        self.begin(&error)
        with nogil:
            status = qs_channel_settle_range(self.handle, first_tag, last_tag, flags, &error)
        self.end(status, &error)

    def __reduce__(self):
        raise TypeError("a channel belongs to its process and cannot be pickled")
