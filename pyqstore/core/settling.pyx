# Settling: acknowledging, refusing, requeueing; and withholding what cannot be handed out.
cimport cython
from libc.stdint cimport UINT64_MAX, uint32_t, uint64_t


@cython.no_gc_clear
cdef class SettlingChannel(PublishingChannel):
    """What becomes of deliveries."""

    cdef int settle(self, uint64_t delivery_tag, uint32_t flags, bint ack,
                    uint64_t delay_us=0) except -1:
        cdef qs_error error
        cdef qs_status status
        flags |= self.no_wait
        self.begin(&error)
        if ack:
            with nogil:
                status = qs_channel_ack(self.handle, delivery_tag, flags, &error)
        else:
            with nogil:
                status = qs_channel_nack(self.handle, delivery_tag, flags, delay_us, &error)
        self.end(status, &error)
        return 0

    def basic_ack(self, delivery_tag=0, bint multiple=False):
        """Acknowledge a delivery; with ``multiple`` all up to it, tag 0 meaning all.

        All that were handed out: not what came for a consumer and was not asked for yet.  Returns
        at once: after a crash an acknowledged message may be delivered again, flagged redelivered.
        PreconditionFailed: unknown delivery tag.
        """
        cdef uint64_t tag
        number_of(delivery_tag, "delivery_tag", UINT64_MAX, &tag)
        if not (multiple and self._settle_handed_out(tag, False, False, 0)):
            self.settle(tag, QS_MULTIPLE if multiple else 0, True)

    def basic_nack(self, delivery_tag=0, bint multiple=False, bint requeue=True, *, delay=None):
        """Refuse deliveries, those that ``basic_ack`` would acknowledge: back to their places in
        the queue, or dead-lettered, or dropped.

        ``delay`` (seconds, or a timedelta), with ``requeue`` only: they are delivered again when
        that time is over, also after a crash; others go by meanwhile.
        """
        cdef uint64_t delay_us
        cdef uint64_t tag
        cdef uint32_t flags = (QS_MULTIPLE if multiple else 0) | (QS_REQUEUE if requeue else 0)
        number_of(delivery_tag, "delivery_tag", UINT64_MAX, &tag)
        delay_of(delay, &delay_us)
        check_requeue(requeue, delay_us)
        if not (multiple and self._settle_handed_out(tag, requeue, not requeue, delay_us)):
            self.settle(tag, flags, False, delay_us)

    def _settle_handed_out(self, tag, requeue, reject, delay_us):
        """Where deliveries are held back: settle the others up to ``tag``.  Whether it did."""
        return False

    def basic_reject(self, delivery_tag, bint requeue=True):
        """Refuse one delivery: back to its place in the queue or, unless ``requeue``,
        dead-lettered or dropped.  AMQP's field has no default; here it is ``requeue`` everywhere.
        """
        cdef uint64_t tag
        number_of(delivery_tag, "delivery_tag", UINT64_MAX, &tag)
        self.settle(tag, QS_REQUEUE if requeue else 0, False)

    def _recover(self, bint requeue):
        """Requeue everything unacknowledged."""
        cdef qs_error error
        cdef qs_status status
        cdef uint32_t flags = QS_REQUEUE if requeue else 0
        self.begin(&error)
        with nogil:
            status = qs_channel_recover(self.handle, flags, &error)
        self.end(status, &error)

    def _recover_withheld(self):
        """Only what was taken and could not be handed out."""
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_channel_recover(self.handle, QS_REQUEUE | QS_WITHHELD, &error)
        self.end(status, &error)

    def _settle_range(self, uint64_t first_tag, uint64_t last_tag, bint requeue,
                      bint reject=False, bint in_transaction=False, uint64_t delay_us=0):
        """Acknowledge what of these tags is outstanding, or put it back, or refuse it: beside any
        transaction, or as part of it."""
        cdef qs_error error
        cdef qs_status status
        cdef uint32_t flags = self.no_wait | (QS_REQUEUE if requeue else 0)
        flags |= (QS_REJECT if reject else 0) | (QS_IN_TX if in_transaction else 0)
        self.begin(&error)
        with nogil:
            status = qs_channel_settle_range(self.handle, first_tag, last_tag, flags,
                                             delay_us, &error)
        self.end(status, &error)

    cdef void withhold(self, uint64_t first_tag, uint64_t last_tag) noexcept:
        """These were taken and cannot be handed out: a call that settles several leaves them out.
        They are ready again when the channel closes or recovers.  Under the GIL, which keeps the
        handle open."""
        cdef qs_error error
        if self.handle != NULL and first_tag != 0:
            # A channel that is closed has put them back.
            qs_channel_withhold(self.handle, first_tag, last_tag, &error)

    def _withhold(self, uint64_t first_tag, uint64_t last_tag):
        self.withhold(first_tag, last_tag)

    def _withhold_batch(self, ArrowBatch batch not None):
        """The batch cannot be handed out."""
        self.withhold(batch.first_tag, batch.last_tag)

    def _commit_offset(self, stream, group, uint64_t offset):
        """Note how far a group is: in the open transaction, else durably when it returns."""
        cdef qs_slice name
        cdef qs_slice group_name
        cdef qs_slice own
        cdef qs_error error
        cdef qs_status status
        name_slice(stream, "stream", &name)
        name_slice(group, "group", &group_name)
        own.data = NULL
        own.bytes = 0
        self.begin(&error)
        with nogil:
            status = qs_channel_commit_offset(self.handle, name, group_name, offset, own, 0, NULL,
                                              &error)
        self.end(status, &error)

    def _forget_offset(self, stream, group):
        """The group has committed nothing: in the transaction that is open, else durably."""
        cdef qs_slice name
        cdef qs_slice group_name
        cdef qs_error error
        cdef qs_status status
        name_slice(stream, "stream", &name)
        name_slice(group, "group", &group_name)
        self.begin(&error)
        with nogil:
            status = qs_channel_forget_offset(self.handle, name, group_name, 0, NULL, &error)
        self.end(status, &error)
