# The outcome of each publish of a channel in confirm mode, for outcome listeners.
from libc.stdint cimport uint64_t

from collections import OrderedDict, deque

from .outcomes import Outcome


cdef class Outcomes:
    """The publishes of a channel that wait for their verdict, and the outcomes that listeners have
    not heard.

    Only the calls of listeners run Python, so no signal handler raises between a publish or a
    verdict and the note of it.
    """
    cdef list listeners   # (number, callback): the callback gets outcomes with a higher number
    cdef object waiting   # number: (correlation, whether no queue took the message), in order
    cdef object known     # outcomes that not all listeners have heard
    cdef Py_ssize_t told  # how many listeners have heard the first of them
    cdef uint64_t noted   # the highest publish number

    def __cinit__(self):
        self.listeners = []
        self.waiting = OrderedDict()
        self.known = deque()

    cdef int listen(self, callback) except -1:
        self.listeners.append((self.noted, callback))
        return 0

    cdef int note(self, uint64_t number, correlation, bint returned) except -1:
        """Add a publish; ``returned``: no queue took its message."""
        self.waiting[number] = correlation, returned
        self.noted = number
        return 0

    cdef int decide(self, tuple event) except -1:
        """Add the outcomes that a verdict decides.  The same verdict again decides none."""
        kind, number, detail = event
        if kind == EVENT_ACK:
            queue = reason = None
        elif kind == EVENT_NACK:
            queue = detail[2]
            reason = "failed" if queue is None else "full"
        else:
            return 0
        if not detail[0]:
            if number in self.waiting:
                self.know(number, reason, queue)
            return 0
        while self.waiting:
            first = next(iter(self.waiting))
            if first > number:
                break
            self.know(first, reason, queue)
        return 0

    cdef int decide_rest(self) except -1:
        """Add outcomes for all others: there will be no more verdicts."""
        while self.waiting:
            self.know(next(iter(self.waiting)), "closed", None)
        return 0

    cdef int know(self, number, reason, queue) except -1:
        correlation, returned = self.waiting.pop(number)
        if returned:
            reason = "returned"
        self.known.append(tuple.__new__(
            Outcome, (number, correlation, reason is None, reason, queue)))
        return 0

    cdef tuple next_call(self):
        """The next call that is due, as (listener, arguments), which is then no longer due.
        (None, ()): none is."""
        while self.known:
            outcome = self.known[0]
            after, callback = self.listeners[self.told]
            self.told += 1
            if self.told == len(self.listeners):
                self.told = 0
                self.known.popleft()
            if outcome[0] > after:
                return callback, (outcome,)
        return None, ()
