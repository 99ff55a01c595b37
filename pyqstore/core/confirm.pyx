# The confirm of one message, awaited in an event loop.  asyncio is imported where one of its names
# is needed: importing it takes long, and there a loop has imported it.
from cpython.contextvars cimport PyContext_CopyCurrent
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport uint64_t

from warnings import warn

from .errors import ForkedStore

cdef enum:
    CONFIRM_PENDING
    CONFIRM_GIVEN
    CONFIRM_FAILED
    CONFIRM_CANCELLED
    # Decided confirms stay in the list until they are so many, and half of the list.
    OUTSTANDING_GONE_MIN = 256


cdef class NextTurn:
    """Begins the publishes of a channel in the loop's next turn, in the order in which they and
    other tasks, such as declarations, were scheduled."""
    cdef readonly object loop
    cdef unsigned long generation
    cdef unsigned long thread  # of the loop, when last seen

    def __cinit__(self, loop not None):
        self.loop = loop
        self.generation = fork_generation
        self.thread = PyThread_get_thread_ident()

    cdef int add(self, Confirm confirm, object context) except -1:
        if PyThread_get_thread_ident() != self.thread:
            self.check_loop()
        self.loop.call_soon(start_one, confirm, context=context)
        return 0

    cdef int check_loop(self) except -1:
        from asyncio import get_running_loop

        if get_running_loop() is not self.loop:
            raise RuntimeError("this channel belongs to another event loop; open one in each")
        self.thread = PyThread_get_thread_ident()
        return 0


cdef class Confirm:
    """What ``basic_publish`` of an asynchronous channel returns: ``await`` it for the publish
    number.

    It is a coroutine for ``create_task``, ``TaskGroup`` and ``run_coroutine_threadsafe``, and a
    future for ``gather`` and ``wait_for``, which then need no task.  As with a coroutine, nothing
    is published before it is awaited; one of those has it published in the loop's next turn.
    """
    cdef NextTurn next_turn
    cdef object loop
    cdef object begin  # begin(self, arguments) publishes; None once it has
    cdef tuple arguments
    cdef object answer  # the number, the exception, or the message of cancel()
    cdef object unheard  # see set_exception
    cdef list callbacks  # (callback, context); None: there are none
    cdef int state
    cdef bint unseen  # it failed, and nobody has asked for the exception
    cdef bint decided  # Outstanding has its verdict
    cdef readonly uint64_t publish_number
    cdef public bint _asyncio_future_blocking
    cdef object __weakref__

    def __cinit__(self, NextTurn next_turn not None, begin=None, tuple arguments=()):
        if next_turn.generation != fork_generation:
            raise ForkedStore("the store was opened before fork(); open it in this process")
        self.next_turn = next_turn
        self.loop = next_turn.loop
        self.begin = begin
        self.arguments = arguments

    def __del__(self):
        if self.begin is not None:
            warn(f"{self!r} was never awaited: nothing was published", RuntimeWarning,
                 stacklevel=2, source=self)
        if self.unseen:
            self.loop.call_exception_handler({
                "message": "a publish failed, and was not awaited", "exception": self.answer})

    def get_loop(self):
        """The loop of its channel."""
        return self.loop

    def done(self):
        """Whether it was given, failed, or was cancelled."""
        return self.state != CONFIRM_PENDING

    def cancelled(self):
        """Whether it was cancelled."""
        return self.state == CONFIRM_CANCELLED

    def result(self):
        """The publish number, 0 outside confirm mode.  Raises the exception of a publish that
        failed, CancelledError, or InvalidStateError before it is done."""
        if self.state == CONFIRM_GIVEN:
            return self.answer
        self.unseen = False
        if self.state == CONFIRM_FAILED:
            raise self.answer
        raise self.state_error()

    def exception(self):
        """The exception of a publish that failed, or None.  Raises CancelledError, or
        InvalidStateError before it is done."""
        if self.state == CONFIRM_GIVEN:
            return None
        if self.state == CONFIRM_FAILED:
            self.unseen = False
            return self.answer
        raise self.state_error()

    cdef object state_error(self):
        if self.state == CONFIRM_CANCELLED:
            return self._make_cancelled_error()
        from asyncio import InvalidStateError

        return InvalidStateError("the message was not confirmed yet")

    @property
    def _cancel_message(self):
        """The message of cancel().  ``gather`` asks a future for it by this name."""
        return self.answer if self.state == CONFIRM_CANCELLED else None

    def _make_cancelled_error(self):
        from asyncio import CancelledError

        return CancelledError() if self.answer is None else CancelledError(self.answer)

    def cancel(self, msg=None):
        """Stop waiting.  The message may have been published, and may become durable.  Returns
        False if it was done."""
        cdef object unheard = self.unheard
        if self.state != CONFIRM_PENDING:
            if unheard is not None and self.callbacks is not None:
                self.unheard = None
                unheard(self.answer)
            return False
        self.begin = None
        self.state = CONFIRM_CANCELLED
        self.answer = msg
        self.wake_soon()
        return True

    cdef int start(self) except -1:
        """Publish, unless that has begun."""
        cdef object begin = self.begin
        cdef tuple arguments = self.arguments
        if begin is not None:
            self.begin = self.arguments = None
            begin(self, arguments)
        return 0

    def set_result(self, result):
        """Called by the channel with the publish number.  InvalidStateError: it is done."""
        self.check_pending()
        self.state = CONFIRM_GIVEN
        self.answer = result
        self.wake_soon()

    def set_exception(self, exception, unheard=None):
        """Called by the channel if the publish failed.  ``unheard(exception)`` is called if the
        awaiting task is cancelled before it gets the exception.  InvalidStateError: it is done."""
        self.check_pending()
        self.state = CONFIRM_FAILED
        self.answer = exception
        self.unheard = unheard
        self.unseen = True
        self.wake_soon()

    cdef int check_pending(self) except -1:
        if self.state != CONFIRM_PENDING:
            from asyncio import InvalidStateError

            raise InvalidStateError("the confirm is done")
        return 0

    def add_done_callback(self, fn, *, context=None):
        """Have the loop call ``fn(self)`` when it is done."""
        if context is None:
            context = PyContext_CopyCurrent()
        if self.begin is not None and self.callbacks is None:
            self.next_turn.add(self, context)
        if self.callbacks is not None:
            self.callbacks.append((fn, context))
            if self.state != CONFIRM_PENDING:
                self.wake_soon()  # a signal handler may have kept it from being scheduled
        elif self.state == CONFIRM_PENDING:
            self.callbacks = [(fn, context)]
        else:
            self.loop.call_soon(fn, self, context=context)

    def remove_done_callback(self, fn):
        """Remove a callback.  Returns how often it had been added."""
        cdef list had = self.callbacks or []
        cdef list kept = [entry for entry in had if entry[0] != fn]
        self.callbacks = kept or None
        return len(had) - len(kept)

    cdef int wake_soon(self) except -1:
        cdef object context
        if self.callbacks is not None:
            context = self.callbacks[0][1]
            self.loop.call_soon(wake, self, context, context=context)
        return 0

    # The protocol of iterators and coroutines: it yields itself to the task, as a future does.

    def __await__(self):
        return self

    def __next__(self):
        if self.begin is not None:
            self.start()
        if self.state == CONFIRM_PENDING:
            if self._asyncio_future_blocking:
                raise RuntimeError("await wasn't used with a future")
            self._asyncio_future_blocking = True
            return self
        raise StopIteration(self.result())

    def send(self, value):
        """Go on: a coroutine's method."""
        return self.__next__()

    def throw(self, kind, value=None, traceback=None):
        """Raise an exception in it: a coroutine's method."""
        self.begin = None
        if value is None:
            value = kind() if isinstance(kind, type) else kind
        raise value if traceback is None else value.with_traceback(traceback)

    def close(self):
        """Publish nothing any more: a coroutine's method."""
        self.begin = None

    def __repr__(self):
        word = ("pending", "given", "failed", "cancelled")[self.state]
        return f"<{type(self).__name__} {self.publish_number}: {word}>"

    def __reduce__(self):
        raise TypeError("a confirm belongs to its channel and cannot be pickled")


def start_one(Confirm confirm not None):
    """Have a confirm publish: a callback of the loop."""
    confirm.start()


def wake(Confirm confirm not None, entered):
    """A callback of the loop: calls the first callback of a confirm that is done, in the context
    ``entered``, and schedules the next one, which has a turn of the loop of its own.

    It may be scheduled too often, because a signal handler may raise behind each call."""
    cdef list callbacks = confirm.callbacks
    if callbacks is None:
        return
    callback, context = callbacks[0]
    if context is not entered:  # the first one was removed meanwhile
        confirm.wake_soon()
        return
    if len(callbacks) > 1:
        try:
            confirm.loop.call_soon(wake, confirm, callbacks[1][1], context=callbacks[1][1])
        except BaseException:
            confirm.wake_soon()
            raise
    confirm.callbacks = callbacks[1:] or None
    confirm.unheard = None
    callback(confirm)


def confirm_all(list confirms not None):
    """Give each confirm its number, and wake what waits for it.  Clears the list."""
    cdef Confirm confirm
    for confirm in confirms:
        if confirm.state == CONFIRM_PENDING:
            confirm.state = CONFIRM_GIVEN
            confirm.answer = confirm.publish_number
        if confirm.state == CONFIRM_GIVEN:  # or cancelled, after a signal handler raised here
            confirm.wake_soon()
    confirms.clear()


cdef class Outstanding:
    """Counts the publishes of a channel in confirm mode that have no verdict yet, and has the
    confirms of those that were made one by one, in the order of their numbers."""
    cdef Channel channel
    cdef readonly uint64_t published  # the highest number
    cdef readonly uint64_t undecided  # how many
    cdef list confirms
    cdef Py_ssize_t first  # the entries before it are None: they are decided
    cdef Py_ssize_t gone   # how many of the others are decided, out of turn
    cdef object verdict
    cdef readonly list taken  # confirms of the last verdict that have not got it yet

    def __cinit__(self, Channel channel not None):
        self.channel = channel
        self.confirms = []
        self.taken = []

    def __len__(self):
        return len(self.confirms) - self.first - self.gone

    def publish(self, Confirm confirm not None, tuple arguments not None):
        """Call ``basic_publish`` with these arguments, delay and correlation last, and add the
        confirm."""
        (exchange, routing_key, body, properties, mandatory, immediate, delay,
         correlation) = arguments
        if delay is None and correlation is None:
            number = self.channel.basic_publish(exchange, routing_key, body, properties, mandatory,
                                                immediate)
        else:
            number = self.channel.basic_publish(exchange, routing_key, body, properties, mandatory,
                                                immediate, delay=delay, correlation=correlation)
        self.add(number, confirm)

    def add(self, uint64_t number, Confirm confirm not None):
        """Add the publish ``number``, which is higher than all before."""
        self.published = confirm.publish_number = number
        self.undecided += 1
        self.confirms.append(confirm)

    def drop(self, Confirm confirm not None):
        """Remove the confirm that was added last: its task has an exception, and needs no
        verdict."""
        cdef Py_ssize_t last = len(self.confirms) - 1
        if last >= self.first and self.confirms[last] is confirm:
            self.confirms.pop()

    def add_batch(self, uint64_t last, uint64_t count):
        """Add the publishes of a batch, which have no confirms."""
        self.published = max(self.published, last)
        self.undecided += count

    def take(self, verdict, uint64_t number, bint multiple, uint64_t count):
        """Add those confirms to ``taken`` that a verdict is about and that a task may await.

        The verdict is about ``count`` numbers: this one and, with ``multiple``, all before it.  It
        counts once, however often a signal handler raises behind this call."""
        cdef Confirm confirm
        cdef Py_ssize_t place = self.place_of(number)
        cdef Py_ssize_t end = place
        if verdict is self.verdict:
            return
        self.verdict = verdict
        self.undecided -= count
        if place < len(self.confirms):
            confirm = self.confirms[place]
            end += confirm.publish_number == number
        if multiple or place == self.first:
            self.take_upto(end, self.taken)
        elif end > place and not confirm.decided:
            confirm.decided = True
            self.gone += 1
            if confirm.state == CONFIRM_PENDING:
                self.taken.append(confirm)
        self.forget()

    def take_all(self):
        """Remove and return all confirms that a task may await."""
        cdef list taken = []
        self.take_upto(len(self.confirms), taken)
        self.forget()
        return taken

    cdef int take_upto(self, Py_ssize_t end, list taken) except -1:
        """Take the entries before ``end``, and remove those behind it that are decided."""
        cdef Confirm confirm
        while self.first < len(self.confirms):
            confirm = self.confirms[self.first]
            if confirm.decided:
                self.gone -= 1
            elif self.first >= end:
                break
            elif confirm.state == CONFIRM_PENDING:
                taken.append(confirm)
            self.confirms[self.first] = None
            self.first += 1
        return 0

    cdef int forget(self) except -1:
        """Shorten the list if half of it is decided."""
        cdef Py_ssize_t count = len(self.confirms)
        if self.first == count:
            self.confirms = []
        elif self.first + self.gone < OUTSTANDING_GONE_MIN or self.first + self.gone < count // 2:
            return 0
        else:
            self.confirms = [confirm for confirm in self.confirms[self.first:]
                             if not (<Confirm>confirm).decided]
        self.first = self.gone = 0
        return 0

    cdef Py_ssize_t place_of(self, uint64_t number) noexcept:
        """The place of the first confirm whose number is not below ``number``."""
        cdef Py_ssize_t low = self.first
        cdef Py_ssize_t high = len(self.confirms)
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) // 2
            if (<Confirm>self.confirms[middle]).publish_number < number:
                low = middle + 1
            else:
                high = middle
        return low
