# Properties and messages.
cimport cython
from libc.stdint cimport uint32_t, uint64_t


cdef class EncodedProperties:
    """AMQP properties: their encoding, and the values."""
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
    - ``settled``: bool, whether a verb of this object settled it; the channel's do not count.

    ``with message:`` acknowledges the message at the end, or requeues it if the body raises, unless
    a verb of this object settled it before.
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
    cdef uint64_t container
    cdef uint64_t sequence
    cdef public bint settled

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

    @property
    def _encoded(self):
        """The properties as AMQP encodes them."""
        return self.encoded

    @property
    def _place(self):
        """Two numbers that no other message of the store ever has; a redelivery has the same.
        (0, 0): the message is of a stream."""
        return self.container, self.sequence

    @property
    def _has_expiration(self):
        """Whether the properties have an expiration; only their flags are read."""
        return len(self.encoded) > 0 and (self.encoded[0] & 1) != 0

    cdef Channel owner(self):
        if self.channel is None:
            raise TypeError("messages come from a channel")
        return self.channel

    def json(self):
        """The body as JSON.  ValueError: it is no JSON."""
        from .json import loads
        return loads(self.body)

    def ack(self):
        """Acknowledge this message.  Raises as ``Channel.basic_ack`` does."""
        self.owner().settle(self.delivery_tag, 0, True)
        self.settled = True

    def nack(self, bint requeue=True, delay=None):
        """Refuse this message.  It returns to its place in the queue, and is ready again after
        ``delay`` (seconds, or a timedelta).  Without ``requeue`` it is dead-lettered or dropped."""
        cdef uint64_t delay_us
        delay_of(delay, &delay_us)
        check_requeue(requeue, delay_us)
        self.owner().settle(self.delivery_tag, QS_REQUEUE if requeue else 0, False, delay_us)
        self.settled = True

    def reject(self, bint requeue=True):
        """As ``nack``, under AMQP's older name and with the same default for ``requeue``."""
        self.nack(requeue)

    def retry(self, delay=None):
        """Requeue this message: it is ready again after ``delay`` (seconds, or a timedelta), or at
        once."""
        self.nack(True, delay)

    def __enter__(self):
        self.owner()
        return self

    def __exit__(self, kind, value, traceback):
        if self.settled:
            return
        if kind is None:
            self.ack()
        elif not self.owner().closed:  # closing requeued it
            self.nack()

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
