# Conversions for every call: a status to an exception, arguments to C, results to Python.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsUnsignedLongLong, PyLong_Check
from cpython.number cimport PyIndex_Check, PyNumber_Index
from cpython.unicode cimport PyUnicode_Check, PyUnicode_DecodeUTF8
from libc.stdint cimport uint64_t
from libc.string cimport memchr, memcmp, memcpy

from datetime import timedelta
from math import ceil

from .errors import from_status

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *bytes_out) except NULL

cdef enum:
    COPY_WITHOUT_GIL_BYTES = 65536
    NAME_BYTES_MAX = 255

DELAY_S_MAX = 100 * 365 * 24 * 3600

# Errors.

cdef inline void clear(qs_error *error) noexcept nogil:
    error.os_errno = 0
    error.offset = 0
    error.pid = 0
    error.path[0] = 0
    error.text[0] = 0


cdef object error_of(qs_status status, qs_error *error):
    """The exception for a status and its details."""
    return from_status(<int>status, qs_status_name(status).decode(),
                       qs_status_text(status).decode(), error.text.decode("utf-8", "replace"),
                       error.path.decode("utf-8", "replace"), error.offset, error.os_errno,
                       error.pid)


cdef int fail(qs_status status, qs_error *error) except -1:
    raise error_of(status, error)


cdef inline int check(qs_status status, qs_error *error) except -1:
    if status != QS_OK:
        fail(status, error)
    return 0


# Arguments.

cdef inline int text_slice(object text, str name, qs_slice *slice_out) except -1:
    """The UTF-8 of a str, in memory of that str."""
    cdef Py_ssize_t size
    if not PyUnicode_Check(text):
        raise TypeError(f"{name} must be str, not {type(text).__name__}")
    slice_out.data = PyUnicode_AsUTF8AndSize(text, &size)
    slice_out.bytes = <size_t>size
    return 0


cdef inline int name_slice(object text, str name, qs_slice *slice_out) except -1:
    """As text_slice, for a name: the engine has no longer ones, and none with a NUL."""
    text_slice(text, name, slice_out)
    if slice_out.bytes > NAME_BYTES_MAX:
        raise ValueError(f"{name} of {slice_out.bytes} bytes: {NAME_BYTES_MAX} at most")
    if memchr(slice_out.data, 0, slice_out.bytes) != NULL:
        raise ValueError(f"{name} with a NUL at character {text.index(chr(0))}: no name has one")
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


cdef int delay_of(object delay, uint64_t *microseconds_out) except -1:
    """The microseconds of a delay: seconds, a timedelta, or None for no delay.  They are rounded
    up, so that nothing comes early."""
    if delay is None:
        microseconds_out[0] = 0
        return 0
    if isinstance(delay, timedelta):
        delay = delay.total_seconds()
    elif isinstance(delay, bool) or not isinstance(delay, (int, float)):
        raise TypeError(f"delay must be seconds or a timedelta, not {type(delay).__name__}")
    if not 0 <= delay <= DELAY_S_MAX:  # not a number as well
        raise ValueError(f"delay must be 0 to {DELAY_S_MAX} seconds, not {delay}")
    microseconds_out[0] = ceil(delay * 1_000_000)
    return 0


cdef int check_requeue(bint requeue, uint64_t delay_us) except -1:
    if delay_us > 0 and not requeue:
        raise ValueError("delay without requeue: the message does not come back")
    return 0


def delay_us(bint requeue, delay):
    """The delay of a nack in microseconds."""
    cdef uint64_t microseconds
    delay_of(delay, &microseconds)
    check_requeue(requeue, microseconds)
    return microseconds


# Results.

cdef object text_of(const qs_slice *text):
    return PyUnicode_DecodeUTF8(<const char *>text.data, <Py_ssize_t>text.bytes, "surrogateescape")


cdef str text_again(const qs_slice *text, str last):
    """As text_of, but ``last`` itself if that has the same text."""
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
