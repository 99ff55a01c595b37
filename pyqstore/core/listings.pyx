# Listings: a visitor copies fields, each behind its length, and Python reads them later.  Visitors
# run under the store's lock, where no Python object may be made: collecting garbage could close a
# channel, which takes the same lock.
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.string cimport memcpy

cdef enum:
    LISTING_BYTES_FIRST = 4096


cdef struct Listing:
    char *data
    size_t bytes
    size_t room
    bint failed


cdef void listing_put(Listing *listing, const void *data, size_t count) noexcept nogil:
    cdef size_t needed = listing.bytes + sizeof(size_t) + count
    cdef size_t room = listing.room
    cdef char *grown
    if listing.failed:
        return
    if needed > room:
        room = max(<size_t>LISTING_BYTES_FIRST, max(needed, 2 * room))
        grown = <char *>PyMem_RawRealloc(listing.data, room)
        if grown == NULL:
            listing.failed = True
            return
        listing.data = grown
        listing.room = room
    memcpy(listing.data + listing.bytes, &count, sizeof(size_t))
    if count > 0:
        memcpy(listing.data + listing.bytes + sizeof(size_t), data, count)
    listing.bytes = needed


cdef inline void listing_flag(Listing *listing, bint flag) noexcept nogil:
    listing_put(listing, b"1", 1 if flag else 0)


cdef void visit_queue(void *context, const qs_queue_info *info) noexcept nogil:
    cdef Listing *listing = <Listing *>context
    listing_put(listing, info.name.data, info.name.bytes)
    listing_flag(listing, info.durable)
    listing_flag(listing, info.exclusive)
    listing_flag(listing, info.auto_delete)
    listing_put(listing, info.arguments.data, info.arguments.bytes)
    listing_put(listing, &info.messages_ready, sizeof(info.messages_ready))
    cdef uint64_t[5] numbers
    numbers[0] = info.messages_unacked
    numbers[1] = info.messages_delayed
    numbers[2] = info.consumers
    numbers[3] = info.ram_bytes
    numbers[4] = info.owner
    listing_put(listing, numbers, sizeof(numbers))


cdef void visit_unconfirmed(void *context, const qs_unconfirmed *info) noexcept nogil:
    cdef Listing *listing = <Listing *>context
    listing_put(listing, &info.first_number, sizeof(info.first_number))
    listing_put(listing, &info.last_number, sizeof(info.last_number))
    listing_flag(listing, info.has_queue)
    listing_put(listing, info.exchange.data, info.exchange.bytes)
    listing_put(listing, info.queue.data, info.queue.bytes)


cdef void visit_exchange(void *context, const qs_exchange_info *info) noexcept nogil:
    cdef Listing *listing = <Listing *>context
    listing_put(listing, info.name.data, info.name.bytes)
    listing_put(listing, info.type.data, info.type.bytes)
    listing_flag(listing, info.durable)
    listing_flag(listing, info.auto_delete)
    listing_flag(listing, info.internal)
    listing_put(listing, info.arguments.data, info.arguments.bytes)


cdef void visit_binding(void *context, const qs_binding_info *info) noexcept nogil:
    cdef Listing *listing = <Listing *>context
    listing_put(listing, info.source.data, info.source.bytes)
    listing_put(listing, info.destination.data, info.destination.bytes)
    listing_put(listing, info.routing_key.data, info.routing_key.bytes)
    listing_put(listing, info.arguments.data, info.arguments.bytes)
    listing_flag(listing, info.to_exchange)


cdef void visit_connection(void *context, const qs_connection_info *info) noexcept nogil:
    cdef Listing *listing = <Listing *>context
    cdef uint64_t[7] numbers
    numbers[0] = info.number
    numbers[1] = info.opened_us
    numbers[2] = info.channels
    numbers[3] = info.client.number
    numbers[4] = info.client.frame_max
    numbers[5] = info.client.channel_max
    numbers[6] = info.client.heartbeat_s
    listing_put(listing, numbers, sizeof(numbers))
    listing_put(listing, info.client.peer.data, info.client.peer.bytes)
    listing_put(listing, info.client.user.data, info.client.user.bytes)
    listing_put(listing, info.client.mechanism.data, info.client.mechanism.bytes)
    listing_put(listing, info.client.properties.data, info.client.properties.bytes)


cdef void visit_channel(void *context, const qs_channel_info *info) noexcept nogil:
    cdef Listing *listing = <Listing *>context
    cdef uint64_t[12] numbers
    numbers[0] = info.number
    numbers[1] = info.connection
    numbers[2] = info.client_number
    numbers[3] = info.prefetch
    numbers[4] = info.prefetch_channel
    numbers[5] = info.consumers
    numbers[6] = info.unacked
    numbers[7] = info.unconfirmed
    numbers[8] = info.messages_uncommitted
    numbers[9] = info.acks_uncommitted
    numbers[10] = info.confirms
    numbers[11] = info.transactional
    listing_put(listing, numbers, sizeof(numbers))


cdef void visit_consumer(void *context, const qs_consumer_info *info) noexcept nogil:
    cdef Listing *listing = <Listing *>context
    cdef int64_t[8] numbers
    numbers[0] = <int64_t>info.channel
    numbers[1] = info.priority
    numbers[2] = <int64_t>info.prefetch
    numbers[3] = <int64_t>info.unacked
    numbers[4] = info.no_ack
    numbers[5] = info.exclusive
    numbers[6] = info.is_active
    numbers[7] = info.is_slow
    listing_put(listing, numbers, sizeof(numbers))
    listing_put(listing, info.queue.data, info.queue.bytes)
    listing_put(listing, info.tag.data, info.tag.bytes)


cdef void visit_counts(void *context, const qs_counts *counts) noexcept nogil:
    cdef Listing *listing = <Listing *>context
    cdef uint64_t of = counts.of
    listing_put(listing, &of, sizeof(of))
    listing_put(listing, &counts.channel, sizeof(counts.channel))
    listing_put(listing, counts.exchange.data, counts.exchange.bytes)
    listing_put(listing, counts.queue.data, counts.queue.bytes)
    listing_put(listing, counts.values, counts.length * sizeof(uint64_t))


cdef void visit_latency(void *context, uint64_t most_us, uint64_t count) noexcept nogil:
    cdef Listing *listing = <Listing *>context
    listing_put(listing, &most_us, sizeof(most_us))
    listing_put(listing, &count, sizeof(count))


cdef list listing_rows(Listing *listing, int fields):
    """The rows as tuples of bytes.  Frees the memory of the listing."""
    cdef size_t at = 0
    cdef size_t count
    cdef list rows = []
    cdef list row
    try:
        if listing.failed:
            raise MemoryError
        while at < listing.bytes:
            row = []
            for _ in range(fields):
                memcpy(&count, listing.data + at, sizeof(size_t))
                at += sizeof(size_t)
                row.append(PyBytes_FromStringAndSize(listing.data + at, <Py_ssize_t>count))
                at += count
            rows.append(tuple(row))
    finally:
        PyMem_RawFree(listing.data)
    return rows
