# Settling: acknowledging, refusing, requeueing; and withholding deliveries that cannot be handed
# out.
cimport cython
from libc.stdint cimport UINT64_MAX, uint32_t, uint64_t


@cython.no_gc_clear
cdef class SettlingChannel(PublishingChannel):
    """Settling deliveries, and committing the offsets of groups."""

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
        """Acknowledge a delivery; with ``multiple`` all up to it, where tag 0 means all.

        A delivery for a consumer that the program has not asked for yet is not among them.  Returns
        at once: after a crash an acknowledged message may be delivered again, as redelivered.
        PreconditionFailed: unknown delivery tag.
        """
        cdef uint64_t tag
        number_of(delivery_tag, "delivery_tag", UINT64_MAX, &tag)
        if not (multiple and self._settle_handed_out(tag, False, False, 0)):
            self.settle(tag, QS_MULTIPLE if multiple else 0, True)

    def basic_nack(self, delivery_tag=0, bint multiple=False, bint requeue=True, *, delay=None):
        """Refuse the deliveries that ``basic_ack`` would acknowledge.  They return to their places
        in the queue or, without ``requeue``, are dead-lettered or dropped.

        ``delay`` (seconds, or a timedelta) needs ``requeue``: they are not delivered again before
        that time is over, even after a crash.  They hold no other message back.
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
        """For a channel that holds deliveries back: settle those up to ``tag`` that it has handed
        out.  Returns whether it did."""
        return False

    def basic_reject(self, delivery_tag, bint requeue=True):
        """Refuse one delivery.  It returns to its place in the queue or, without ``requeue``, is
        dead-lettered or dropped.  AMQP has no default for ``requeue``; here it is True everywhere.
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
        """Requeue the deliveries that are withheld."""
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_channel_recover(self.handle, QS_REQUEUE | QS_WITHHELD, &error)
        self.end(status, &error)

    def _settle_range(self, uint64_t first_tag, uint64_t last_tag, bint requeue,
                      bint reject=False, bint in_transaction=False, uint64_t delay_us=0):
        """Acknowledge, requeue or refuse those of these tags that are outstanding, outside the
        transaction or as part of it."""
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
        """Exclude deliveries that left the engine, and cannot be handed out, from calls that settle
        several.  They are ready again when the channel closes or recovers.  The caller has the
        GIL, which keeps the handle open."""
        cdef qs_error error
        if self.handle != NULL and first_tag != 0:
            # Closing the channel has put them back.
            qs_channel_withhold(self.handle, first_tag, last_tag, &error)

    def _withhold(self, uint64_t first_tag, uint64_t last_tag):
        self.withhold(first_tag, last_tag)

    def _withhold_batch(self, ArrowBatch batch not None):
        """Withhold the deliveries of a batch."""
        self.withhold(batch.first_tag, batch.last_tag)

    def _commit_offset(self, stream, group, uint64_t offset):
        """Set the offset at which a group continues: in the open transaction, or else durably when
        this returns."""
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
        """Forget the offset of a group: in the open transaction, or else durably when this
        returns."""
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
