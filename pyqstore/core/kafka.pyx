# Kafka's records as a shovel's messages, and back.  Unusual ones are left to
# shovelling/kafka_messages.py, which makes the same bytes and describes the translation.
from cpython.bytes cimport PyBytes_Check
from libc.stdint cimport int64_t

cdef enum:
    RECORD_FLAGS = 0x3040  # headers, delivery mode, timestamp
    IS_HEADERS = 2  # of the properties, in AMQP's order
    IS_DELIVERY_MODE = 3
    IS_PRIORITY = 4
    IS_TIMESTAMP = 9
    PROPERTY_COUNT = 14
    SHORT_BYTES_MAX = 255
    ENTRY_BYTES = 5  # of an entry of text, without its name and its text: a type, a length
    NUMBER_BYTES = 9  # of an entry of a number, without its name: a type, the number

cdef int64_t SECONDS_MAX = (2 ** 63 - 1) // 1000


cdef bint is_ascii(const unsigned char *data, Py_ssize_t size) noexcept:
    cdef uint64_t word
    cdef uint64_t all_bits = 0
    cdef Py_ssize_t at = 0
    while at + 8 <= size:
        memcpy(&word, data + at, 8)
        all_bits |= word
        at += 8
    while at < size:
        all_bits |= data[at]
        at += 1
    return (all_bits & 0x8080808080808080) == 0


cdef int type_of_text(bytes text) except -1:
    """The type of a header with these bytes: of text, or of bytes."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(text)
    if is_ascii(data_of(text), size):
        return c"S"
    try:
        PyUnicode_DecodeUTF8(PyBytes_AS_STRING(text), size, NULL)
    except UnicodeDecodeError:
        return c"x"
    return c"S"


cdef unsigned char *put_name(unsigned char *data, const char *name, Py_ssize_t size) noexcept:
    data[0] = <unsigned char>size
    memcpy(data + 1, name, size)
    return data + 1 + size


cdef unsigned char *put_text(unsigned char *data, bytes text) except NULL:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(text)
    data[0] = <unsigned char>type_of_text(text)
    qs_put_big(data + 1, size, 4)
    memcpy(data + ENTRY_BYTES, PyBytes_AS_STRING(text), size)
    return data + ENTRY_BYTES + size


cdef bytes record_place(int partition, int64_t offset):
    """A place in the form of ends.RECORD_PLACE."""
    cdef bytes place = PyBytes_FromStringAndSize(NULL, 12)
    cdef unsigned char *data = <unsigned char *>PyBytes_AS_STRING(place)
    qs_put_big(data, partition, 4)
    qs_put_big(data + 4, offset, 8)
    return place


cdef class Delivered:
    """A producer's callback for one record: counts the record, or calls ``answered`` with the
    error."""
    cdef object sent
    cdef set done
    cdef object index
    cdef object answered

    def __call__(self, error, message=None):
        if error is not None:
            self.answered(self.sent, self.index, error)
            return
        self.sent.open -= 1
        self.done.add(self.index)


cdef class Records:
    """Translates records to messages and messages to records.

    - ``key``, ``time``: a message's headers for a record's key and timestamp.
    - ``others``: names of further headers that have a meaning to the shovel.
    - ``envelope``: a record's header for a message's properties and route.
    - ``shown``: by property, the record's header that shows it; "": none does.
    """
    cdef bytes key
    cdef bytes time
    cdef bytes time_mark
    cdef frozenset special
    cdef str envelope
    cdef tuple shown

    def __cinit__(self, str key not None, str time not None, others, str envelope not None,
                  shown):
        self.key = key.encode()
        self.time = time.encode()
        self.time_mark = bytes([len(self.time)]) + self.time
        self.special = frozenset({key, time, envelope, *others})
        self.envelope = envelope
        self.shown = tuple(shown)

    def take(self, ready, list items not None, Py_ssize_t most, Py_ssize_t size,
             Py_ssize_t bytes_most, dict offsets not None):
        """Take messages of confluent-kafka from the front of ``ready``, a deque, and append their
        items, until there are ``most`` or their bytes, added to ``size``, reach ``bytes_most``.

        It ends before an error and before an unusual message.  ``offsets`` gets, by partition, the
        offset after the last message.  Returns the size, and what the next message raised, or
        None: a message raises only once, and must not be read again."""
        cdef bytes value
        cdef int64_t offset
        cdef int partition
        cdef bytes blob
        pop = ready.popleft
        while ready and len(items) < most and size < bytes_most:
            message = ready[0]
            if message.error() is not None:
                break
            try:
                kind, at = message.timestamp()
                value = message.value()
                blob = self.properties(message.key(), value, -1 if kind == 0 else at,
                                       message.headers())
            except Exception as error:
                return size, error
            if blob is None:
                break
            partition = message.partition()
            offset = message.offset()
            items.append(new_item(value, blob, "", "", False, 0, record_place(partition, offset)))
            size += PyBytes_GET_SIZE(value) + PyBytes_GET_SIZE(blob)
            offsets[partition] = offset + 1
            pop()
        return size, None

    def properties(self, key, value, int64_t timestamp, headers):
        """The encoded properties of a record's message; None: the record is unusual."""
        cdef Py_ssize_t table = TABLE_BYTES
        cdef bytes blob
        cdef unsigned char *data
        if value is None or timestamp < 0 or not (key is None or PyBytes_Check(key)):
            return None
        table = 1 + len(self.time) + NUMBER_BYTES
        if key is not None:
            table += 1 + len(self.key) + ENTRY_BYTES + len(<bytes>key)
        if headers is not None:
            if not self.measure(headers, &table):
                return None
        blob = PyBytes_FromStringAndSize(NULL, FLAGS_BYTES + TABLE_BYTES + table + 1 + 8)
        data = <unsigned char *>PyBytes_AS_STRING(blob)
        qs_put_big(data, RECORD_FLAGS, FLAGS_BYTES)
        qs_put_big(data + FLAGS_BYTES, table, TABLE_BYTES)
        data += FLAGS_BYTES + TABLE_BYTES
        if key is not None:
            data = put_name(data, PyBytes_AS_STRING(self.key), len(self.key))
            data = put_text(data, <bytes>key)
        data = put_name(data, PyBytes_AS_STRING(self.time), len(self.time))
        data[0] = c"l"
        qs_put_big(data + 1, timestamp, 8)
        data += NUMBER_BYTES
        if headers is not None:
            data = self.put_headers(data, headers)
        data[0] = PERSISTENT
        qs_put_big(data + 1, timestamp // 1000, 8)
        return blob

    cdef bint measure(self, list headers, Py_ssize_t *size) except -1:
        """Add the bytes of the headers' entries to ``size``.  False: a header is unusual."""
        cdef Py_ssize_t name_bytes
        cdef Py_ssize_t count = len(headers)
        if count > 1 and len({header[0] for header in headers}) < count:
            return False
        for name, said in headers:
            if not PyBytes_Check(said) or name in self.special:
                return False
            PyUnicode_AsUTF8AndSize(name, &name_bytes)
            if name_bytes > SHORT_BYTES_MAX:
                return False
            size[0] += 1 + name_bytes + ENTRY_BYTES + len(<bytes>said)
        return True

    cdef unsigned char *put_headers(self, unsigned char *data, list headers) except NULL:
        cdef Py_ssize_t size
        cdef const char *text
        for name, said in headers:
            text = PyUnicode_AsUTF8AndSize(name, &size)
            data = put_text(put_name(data, text, size), <bytes>said)
        return data

    def produce(self, producer, str topic not None, list items not None, list indices not None,
                Py_ssize_t at, sent, set done not None, answered):
        """Give a producer records of the items ``indices[at:]``, each with a Delivered.  Returns
        where it ended: at an item that is unusual, or that the producer did not take."""
        cdef Delivered delivered
        cdef tuple record
        produce = producer.produce
        while at < len(indices):
            index = indices[at]
            record = self.record(items[index])
            if record is None:
                break
            delivered = Delivered.__new__(Delivered)
            delivered.sent = sent
            delivered.done = done
            delivered.index = index
            delivered.answered = answered
            try:
                produce(topic, record[1], record[0], on_delivery=delivered, timestamp=record[2],
                        headers=record[3])
            except Exception:  # the caller gives it once more, and gets the exception
                break
            at += 1
        return at

    def record(self, item):
        """(key, value, timestamp, headers) of an item's record; None: the message is unusual."""
        cdef bytes blob = item[1]
        cdef str exchange = item[2]
        cdef list headers = []
        cdef int64_t timestamp = 0
        if not exchange and self.time_mark in blob:
            return None
        if len(blob) > 0 and not self.show(blob, headers, &timestamp):
            return None
        if not exchange:
            headers.append((self.envelope, b"\x01\0\0" + blob))
            return None, item[0], timestamp, headers
        route = exchange.encode("utf-8", "surrogateescape")
        key = (<str>item[3]).encode("utf-8", "surrogateescape")
        if len(route) > SHORT_BYTES_MAX or len(key) > SHORT_BYTES_MAX:
            return None
        packed = b"\x01%c%b%c%b%b" % (len(route), route, len(key), key, blob)
        headers.append((self.envelope, packed))
        return key, item[0], timestamp, headers

    cdef bint show(self, bytes blob, list headers, int64_t *timestamp) except -1:
        """Append headers that show the properties, and set ``timestamp``, in milliseconds.  False:
        the properties are unusual, or wrong."""
        cdef const unsigned char *data = data_of(blob)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(blob)
        cdef Py_ssize_t at = FLAGS_BYTES
        cdef Py_ssize_t table = 0
        cdef Py_ssize_t table_end = 0
        cdef Py_ssize_t count
        cdef uint64_t seconds
        cdef unsigned flags
        cdef int which
        if size < FLAGS_BYTES or data[1] & 3:
            return False
        flags = <unsigned>data[0] << 8 | data[1]
        for which in range(PROPERTY_COUNT):
            if not flags & (0x8000u >> which):
                continue
            if which == IS_HEADERS:
                if size - at < TABLE_BYTES or qs_big32(data + at) > size - at - TABLE_BYTES:
                    return False
                table = at + TABLE_BYTES
                at = table_end = table + qs_big32(data + at)
            elif which == IS_TIMESTAMP:
                if size - at < 8:
                    return False
                seconds = qs_big64(data + at)
                if seconds > <uint64_t>SECONDS_MAX:
                    return False
                timestamp[0] = seconds * 1000
                at += 8
            elif which == IS_DELIVERY_MODE or which == IS_PRIORITY:
                if at == size:
                    return False
                if which == IS_PRIORITY:
                    headers.append((self.shown[which], b"%d" % data[at]))
                at += 1
            else:
                if at == size or size - at - 1 < data[at]:
                    return False
                count = data[at]
                if not is_ascii(data + at + 1, count):
                    return False
                headers.append((self.shown[which], blob[at + 1:at + 1 + count]))
                at += 1 + count
        return at == size and self.show_table(blob, table, table_end, headers)

    cdef bint show_table(self, bytes blob, Py_ssize_t at, Py_ssize_t end, list headers) except -1:
        """Append the headers between ``at`` and ``end``.  False: one is unusual, or wrong."""
        cdef const unsigned char *data = data_of(blob)
        cdef Py_ssize_t before = len(headers)
        cdef Py_ssize_t count
        while at < end:
            count = data[at]
            if end - at - 1 < count + ENTRY_BYTES or not is_ascii(data + at + 1, count):
                return False
            name = blob[at + 1:at + 1 + count].decode()
            at += 1 + count
            if name in self.special or data[at] != c"S":
                return False
            count = qs_big32(data + at + 1)
            at += ENTRY_BYTES
            if end - at < count or not is_ascii(data + at, count):
                return False
            headers.append((name, blob[at:at + count]))
            at += count
        count = len(headers) - before
        return count < 2 or len({header[0] for header in headers[before:]}) == count
