# Progress: C calls back in the thread that opens, which has no GIL then.
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint64_t


cdef class Progress:
    """The callback to be told, and the first exception it raised, after which it is not called."""
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


cdef class Copying:
    """A copy that another thread may give up."""
    cdef volatile bint is_given_up

    def give_up(self):
        """It ends soon, with InterruptedError."""
        self.is_given_up = True


cdef c_bool copy_goes_on(void *is_given_up) noexcept nogil:
    """Without the GIL, and without Python: commits wait for the answer."""
    return not (<volatile bint *>is_given_up)[0]


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
