# A shovel's messages, which are tuples as of ends.Item: many in a call from a channel, or to one.
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memcpy

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(PyObject *object)
    object PyType_GenericAlloc(PyTypeObject *type, Py_ssize_t count)

cdef extern from *:
    """
    #define QS_BIG(type, name) \\
        static inline type name(const unsigned char *data) \\
        { \\
            type value = 0; \\
            for (unsigned i = 0; i < sizeof value; i++) { \\
                value = (type)(value << 8 | data[i]); \\
            } \\
            return value; \\
        }
    QS_BIG(uint32_t, qs_big32)
    QS_BIG(uint64_t, qs_big64)
    static inline void qs_put_big(unsigned char *data, uint64_t value, unsigned bytes)
    {
        while (bytes-- > 0) {
            data[bytes] = (unsigned char)value;
            value >>= 8;
        }
    }
    """
    uint32_t qs_big32(const unsigned char *data) noexcept nogil
    uint64_t qs_big64(const unsigned char *data) noexcept nogil
    void qs_put_big(unsigned char *data, uint64_t value, unsigned bytes) noexcept nogil

cdef enum:
    # Flags of properties: what they have.
    HAS_CONTENT_TYPE = 0x8000
    HAS_CONTENT_ENCODING = 0x4000
    HAS_HEADERS = 0x2000
    HAS_DELIVERY_MODE = 0x1000
    FLAGS_BYTES = 2
    TABLE_BYTES = 4  # in front of a table, its length
    PERSISTENT = 2
    OFFSET_NAME_BYTES = 17  # with its own length, and the type
    OFFSET_ENTRY_BYTES = 25

cdef const char *OFFSET_NAME = b"\x0fx-stream-offsetl"
cdef type item_type = None


cdef inline const unsigned char *data_of(bytes data) noexcept:
    return <const unsigned char *>PyBytes_AS_STRING(data)


cdef struct Parts:
    # Positions in encoded properties.
    unsigned flags
    Py_ssize_t table  # of the headers' length, or where it would be
    Py_ssize_t rest   # of what stands behind the headers


cdef int find_parts(bytes blob, Parts *parts) except -1:
    """ValueError: the properties end too early."""
    cdef const unsigned char *data = data_of(blob)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(blob)
    cdef Py_ssize_t at = FLAGS_BYTES
    parts.flags = <unsigned>data[0] << 8 | data[1] if size >= FLAGS_BYTES else 0
    if parts.flags & HAS_CONTENT_TYPE and at < size:
        at += 1 + data[at]
    if parts.flags & HAS_CONTENT_ENCODING and at < size:
        at += 1 + data[at]
    parts.table = at
    if parts.flags & HAS_HEADERS:
        at += TABLE_BYTES
        if at <= size:
            at += qs_big32(data + parts.table)
    parts.rest = at
    if at > size or (parts.flags & HAS_DELIVERY_MODE and at == size):
        raise ValueError("the properties end within themselves")
    return 0


def delivery_mode_kept(bytes blob not None):
    """The properties with delivery mode 2."""
    cdef Parts parts
    find_parts(blob, &parts)
    if not parts.flags & HAS_DELIVERY_MODE:
        head = (parts.flags | HAS_DELIVERY_MODE).to_bytes(FLAGS_BYTES, "big")
        return head + blob[FLAGS_BYTES:parts.rest] + b"\x02" + blob[parts.rest:]
    if data_of(blob)[parts.rest] == PERSISTENT:
        return blob
    return blob[:parts.rest] + b"\x02" + blob[parts.rest + 1:]


def is_persistent(bytes blob not None):
    """Whether the properties have delivery mode 2."""
    cdef Parts parts
    find_parts(blob, &parts)
    return bool(parts.flags & HAS_DELIVERY_MODE) and data_of(blob)[parts.rest] == PERSISTENT


def led_by_headers(bytes blob not None):
    """Whether the headers may have CC or BCC, which are routing keys.  It may be True for others,
    too."""
    return b"\x02CC" in blob or b"\x03BCC" in blob


def with_table(bytes blob not None, Py_ssize_t at, Py_ssize_t end, bytes table not None):
    """The properties with the headers ``table`` in place of those between ``at`` and ``end``."""
    if len(table) > 0:
        return blob[:at] + len(table).to_bytes(TABLE_BYTES, "big") + table + blob[end:]
    flags = int.from_bytes(blob[:FLAGS_BYTES], "big") & ~HAS_HEADERS
    if flags == 0:
        return b""
    return flags.to_bytes(FLAGS_BYTES, "big") + blob[FLAGS_BYTES:at] + blob[end:]


def without_offset(bytes blob not None):
    """The properties without the header x-stream-offset, and the offset.  The engine puts that
    header behind all others."""
    cdef uint64_t offset
    blob = cut_offset(blob, &offset)
    return blob, offset


cdef bytes cut_offset(bytes blob, uint64_t *offset_out):
    cdef Parts parts
    cdef Py_ssize_t begin
    cdef const unsigned char *data = data_of(blob)
    find_parts(blob, &parts)
    begin = parts.rest - OFFSET_ENTRY_BYTES
    if (not parts.flags & HAS_HEADERS or begin < parts.table + TABLE_BYTES
            or memcmp(data + begin, OFFSET_NAME, OFFSET_NAME_BYTES) != 0):
        raise ValueError("the message has no x-stream-offset: it is of no stream")
    offset_out[0] = qs_big64(data + begin + OFFSET_NAME_BYTES)
    return with_table(blob, parts.table, parts.rest, blob[parts.table + TABLE_BYTES:begin])


def _set_item_type(type kind not None):
    """Have items be tuples of this class, which has seven fields."""
    global item_type
    item_type = kind


cdef inline void set_field(object item, Py_ssize_t at, object value) noexcept:
    Py_INCREF(value)
    PyTuple_SET_ITEM(item, at, value)


cdef object new_item(bytes body, bytes properties, str exchange, str routing_key, bint redelivered,
                     object tag, bytes place):
    item = PyType_GenericAlloc(<PyTypeObject *>item_type, 7)
    set_field(item, 0, body)
    set_field(item, 1, properties)
    set_field(item, 2, exchange)
    set_field(item, 3, routing_key)
    set_field(item, 4, redelivered)
    set_field(item, 5, tag)
    set_field(item, 6, place)
    PyObject_GC_UnTrack(<PyObject *>item)  # it leads to no cycle
    return item


def bytes_of_bodies(list items not None):
    """The bytes of all bodies."""
    cdef Py_ssize_t size = 0
    for item in items:
        size += PyBytes_GET_SIZE(<bytes>item[0])
    return size


cdef class ItemReader:
    """Takes the deliveries of a channel that has one consumer.

    - ``next``: for a stream, the offset after the last item.  ``gap`` is called if the next
      message has another offset; it raises.
    - ``store``, ``session``: for a queue, the bytes of an item's place before the message's
      numbers, and those behind them if the message does not survive the store's close.
    """
    cdef Channel channel
    cdef bint is_stream
    cdef bint keeps
    cdef bytes store
    cdef bytes session
    cdef object gap
    cdef readonly uint64_t next

    def __cinit__(self, Channel channel not None, bint is_stream, bint keeps, bytes store not None,
                  bytes session not None, uint64_t first, gap not None):
        self.channel = channel
        self.is_stream = is_stream
        self.keeps = keeps
        self.store = store
        self.session = session
        self.next = first
        self.gap = gap

    def take(self, list items not None, Py_ssize_t most, Py_ssize_t bytes_most):
        """Append items of the deliveries that are there, until there are ``most`` items or their
        bodies and properties reach ``bytes_most``.  Raises as next_delivery and ``gap`` do; items
        that were appended before stay."""
        cdef Channel channel = self.channel
        cdef Py_ssize_t size = 0
        cdef qs_event event
        cdef qs_error error
        cdef qs_status status
        while len(items) < most and size < bytes_most:
            channel.begin(&error)
            with nogil:
                status = qs_channel_next_event(channel.handle, QS_EVENT_DELIVERY, 0, &event, &error)
            channel.end(QS_OK if status == QS_EEMPTY else status, &error)
            if status == QS_EEMPTY:
                return
            size += event.message.body.bytes + event.message.properties.bytes
            items.append(self.item_of(&event.message))

    cdef object item_of(self, qs_message *source):
        cdef Channel channel = self.channel
        cdef Message message = channel.message_of(source)
        return self.item(message)

    def item(self, Message message not None):
        """The item of a message of the channel."""
        cdef bytes blob = message.encoded
        cdef bytes place = b""
        cdef uint64_t offset
        if self.is_stream:
            blob = cut_offset(blob, &offset)
            if offset != self.next:
                self.gap()
            self.next = offset + 1
        else:
            place = self.place_of(message)
        return new_item(message.body, blob, message.exchange, message.routing_key,
                        message.redelivered, message.delivery_tag, place)

    cdef bytes place_of(self, Message message):
        cdef Py_ssize_t head = PyBytes_GET_SIZE(self.store)
        cdef Py_ssize_t tail = 0
        cdef bytes place
        cdef unsigned char *data
        cdef bytes blob = message.encoded
        if not (self.keeps and len(blob) > 0 and is_persistent(blob)):
            tail = PyBytes_GET_SIZE(self.session)
        place = PyBytes_FromStringAndSize(NULL, head + 16 + tail)
        data = <unsigned char *>PyBytes_AS_STRING(place)
        memcpy(data, PyBytes_AS_STRING(self.store), head)
        qs_put_big(data + head, message.container, 8)
        qs_put_big(data + head + 8, message.sequence, 8)
        memcpy(data + head + 16, PyBytes_AS_STRING(self.session), tail)
        return place


cdef class ItemWriter:
    """Publishes items of a batch to a queue or a stream.

    - ``at``: the position in ``indices`` after the last item that was published; the caller may
      change it.
    - ``keeps_modes``: messages keep their delivery modes, as in a stream; others get mode 2.
    """
    cdef Channel channel
    cdef list items
    cdef list indices
    cdef object others
    cdef str name
    cdef bint keeps_modes
    cdef public Py_ssize_t at

    def __cinit__(self, Channel channel not None, list items not None, list indices not None,
                  others not None, str name not None, bint keeps_modes):
        self.channel = channel
        self.items = items
        self.indices = indices
        self.others = others
        self.name = name
        self.keeps_modes = keeps_modes

    def write(self, str exchange not None):
        """Publish items up to the end, up to an index in ``others``, or, if ``exchange`` is empty,
        up to an item that needs an exchange to keep its routing key.  False: all are published.
        Raises as basic_publish does, for the item at ``at``."""
        cdef Py_ssize_t count = len(self.indices)
        cdef bint has_others = len(self.others) > 0
        while self.at < count:
            index = self.indices[self.at]
            if has_others and index in self.others:
                return True
            if not self.publish(self.items[index], exchange):
                return True
            self.at += 1
        return False

    cdef bint publish(self, object item, str exchange) except -1:
        cdef bytes body = item[0]
        cdef bytes blob = item[1]
        cdef str route = ""
        cdef str key = self.name
        cdef EncodedProperties properties = None
        if not self.keeps_modes:
            blob = delivery_mode_kept(blob or b"\0\0")
        if item[2] or led_by_headers(blob):
            if not exchange:
                return False
            route = exchange
            key = item[3]
        if len(blob) > 0:
            properties = EncodedProperties.__new__(EncodedProperties, blob, ())
        self.channel.publish(route, key, properties, bytes_slice(body),
                             QS_MANDATORY | QS_BODY_CONSTANT, 0, None)
        return True
