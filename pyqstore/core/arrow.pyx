# Arrow: a batch that the engine made, and the batches of a stream that a caller gives.
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.errno cimport EINVAL, ENOMEM
from libc.stdint cimport int64_t, uintptr_t
from libc.time cimport localtime_r, time_t, tm

cdef extern from "<time.h>" nogil:
    time_t timegm(tm *parts)

cdef enum:
    DAY_S = 24 * 3600

cdef int64_t CALENDAR_S_MAX = <int64_t>1 << 55  # beyond any year that a struct tm holds


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
    """A record batch for the Arrow PyCapsule protocol.  It can be taken once."""
    cdef ArrowSchema schema
    cdef ArrowArray array
    cdef uint64_t first_tag
    cdef uint64_t last_tag

    cdef void note_tags(self) noexcept:
        """Note the first and the last tag of the messages, whose tags are consecutive."""
        if self.array.length > 0:
            self.first_tag = (<const uint64_t *>self.array.children[0].buffers[1])[0]
            self.last_tag = self.first_tag + <uint64_t>self.array.length - 1

    def __dealloc__(self):
        if self.schema.release != NULL:
            self.schema.release(&self.schema)
        if self.array.release != NULL:
            self.array.release(&self.array)

    def __len__(self):
        return self.array.length

    @property
    def address(self):
        """The address of its ArrowArray, for a caller that knows the schema and takes the array."""
        if self.array.release == NULL:
            raise ValueError("this batch was taken already")
        return <uintptr_t>&self.array

    def __arrow_c_array__(self, requested_schema=None):
        """The capsules "arrow_schema" and "arrow_array"; requested_schema is ignored."""
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


# Times without a zone.

cdef int64_t shown_at(int64_t utc_s) noexcept nogil:
    """What this machine's clocks show at a time, as seconds since 1970; UTC beyond the calendar."""
    cdef time_t moment = utc_s
    cdef tm parts
    if localtime_r(&moment, &parts) == NULL:
        return utc_s
    return timegm(&parts)


cdef int64_t utc_of_local(int64_t shown_s) noexcept nogil:
    """When this machine's clocks show a time, as datetime.timestamp() has it.  Of two such moments
    it is the first.  If there is none, because the clocks go forward, it is as if they had not."""
    cdef int64_t before, after, first, second
    if shown_s > CALENDAR_S_MAX or shown_s < -CALENDAR_S_MAX:
        return shown_s
    after = shown_at(shown_s) - shown_s
    first = shown_s - after
    if shown_at(first) == shown_s:
        before = shown_at(first - DAY_S) - (first - DAY_S)
        if before == after:
            return first
    else:
        before = shown_at(first) - first
    second = shown_s - before
    if shown_at(second) == shown_s:
        return second
    if shown_at(first) == shown_s:
        return first
    return max(first, second)


cdef int stream_failed(ArrowArrayStream *stream, int code) except -1:
    cdef const char *said = stream.get_last_error(stream)
    text = "the Arrow stream failed" if said == NULL else said.decode("utf-8", "replace")
    if code == ENOMEM:
        raise MemoryError(text)
    if code == EINVAL:
        raise ValueError(text)
    raise OSError(code, text)


cdef class ArrowChunks:
    """All record batches of a stream; released with this object."""
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
