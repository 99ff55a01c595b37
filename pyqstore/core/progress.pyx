# Progress: C calls back, in the thread that opens a store and does not have the GIL.
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint64_t


cdef class Progress:
    """The callbacks, and the first exception of one; after that none is called."""
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
    """A copy under way, which another thread may stop."""
    cdef volatile bint is_given_up

    def give_up(self):
        """Have it end soon, with InterruptedError."""
        self.is_given_up = True


cdef c_bool copy_goes_on(void *is_given_up) noexcept nogil:
    """Commits wait for the answer: this takes no GIL and runs no Python."""
    return not (<volatile bint *>is_given_up)[0]


def verify_store(bytes path not None, progress, damage):
    """Run qs_store_verify and return its counts.  ``damage(path, offset, text)`` is called for each
    damage."""
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
