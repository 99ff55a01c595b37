# Notes: what the engine reports outside of calls.  One of its threads writes a note, and a thread
# of Python logs it.
#
# The engine's thread only copies the text.  It never enters Python, for which it would need a
# thread state: CPython ends the process when there is no memory for one.
from libc.stdint cimport uint32_t
from libc.string cimport memcpy, strlen
from posix.unistd cimport usleep

from _thread import get_ident, start_new_thread
from logging import getLogger

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *mutex, void *attributes)
    int pthread_mutex_lock(pthread_mutex_t *mutex)
    int pthread_mutex_unlock(pthread_mutex_t *mutex)
    int pthread_mutex_destroy(pthread_mutex_t *mutex)
    int pthread_cond_init(pthread_cond_t *cond, void *attributes)
    int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
    int pthread_cond_broadcast(pthread_cond_t *cond)
    int pthread_cond_destroy(pthread_cond_t *cond)

cdef enum:
    NOTES = 32  # that wait; further ones are dropped
    NOTE_BYTES = 1024
    END_POLL_US = 200
    END_TRIES = 5000

_logger = getLogger("pyqstore")


cdef struct Note:
    uint32_t level
    uint32_t size
    char text[NOTE_BYTES]


cdef class Notes:
    """Notes that wait to be logged, and the thread that logs them."""
    cdef pthread_mutex_t mutex
    cdef pthread_cond_t cond
    cdef Note notes[NOTES]
    cdef uint32_t first, count
    cdef bint is_closed, has_ended
    cdef object ident  # of the thread; None: it has not begun

    def __cinit__(self):
        pthread_mutex_init(&self.mutex, NULL)
        pthread_cond_init(&self.cond, NULL)

    def __dealloc__(self):
        pthread_cond_destroy(&self.cond)
        pthread_mutex_destroy(&self.mutex)

    cdef int begin(self) except -1:
        try:
            self.ident = start_new_thread(_log_notes, (self,))
        except RuntimeError as error:
            raise MemoryError(f"no thread to log with: {error}") from error
        return 0

    cdef void close(self) noexcept nogil:
        """The engine writes no more notes; those that wait are logged."""
        pthread_mutex_lock(&self.mutex)
        self.is_closed = True
        pthread_cond_broadcast(&self.cond)
        pthread_mutex_unlock(&self.mutex)

    cdef void await_end(self) noexcept:
        """Wait until all notes are logged, but not for ever: a handler may wait for a lock that the
        caller has."""
        cdef int _tries
        for _tries in range(END_TRIES):
            if self.has_ended or get_ident() == self.ident:
                return
            with nogil:
                usleep(END_POLL_US)

    cdef void put(self, uint32_t level, const char *text) noexcept nogil:
        cdef Note *note
        cdef size_t size = strlen(text)
        pthread_mutex_lock(&self.mutex)
        if self.count < NOTES:
            note = &self.notes[(self.first + self.count) % NOTES]
            note.level = level
            note.size = <uint32_t>(size if size < NOTE_BYTES else NOTE_BYTES)
            memcpy(note.text, text, note.size)
            self.count += 1
            pthread_cond_broadcast(&self.cond)
        pthread_mutex_unlock(&self.mutex)

    cdef bint next(self, Note *note_out) noexcept nogil:
        """Wait for the next note.  False: there will be none."""
        cdef bint found
        pthread_mutex_lock(&self.mutex)
        while self.count == 0 and not self.is_closed:
            pthread_cond_wait(&self.cond, &self.mutex)
        found = self.count > 0
        if found:
            note_out[0] = self.notes[self.first]
            self.first = (self.first + 1) % NOTES
            self.count -= 1
        pthread_mutex_unlock(&self.mutex)
        return found


cdef void put_note(void *context, uint32_t level, const char *text) noexcept nogil:
    (<Notes>context).put(level, text)


def _log_notes(Notes notes not None):
    cdef Note note
    cdef bint found
    try:
        while True:
            with nogil:
                found = notes.next(&note)
            if not found:
                return
            try:
                _logger.log(note.level, "%s", note.text[:note.size].decode("utf-8", "replace"))
            except BaseException:  # a handler raised, or there is no memory: the note is lost
                pass
    finally:
        notes.has_ended = True
