# The server's handle.
from libc.stdint cimport UINT64_MAX, uint16_t, uint32_t, uint64_t

from .errors import ForkedStore, StoreClosed

cdef enum:
    ADDRESS_BYTES = 128


cdef int check_listening(qs_status status, qs_error *error) except -1:
    if status != QS_OK and error.os_errno != 0:
        raise OSError(error.os_errno, error.text.decode("utf-8", "replace"))
    check(status, error)
    return 0


def _bind(str address not None):
    """Listen at an address.  Returns the descriptor and the address in numbers, or raises
    OSError."""
    cdef bytes encoded = address.encode()
    cdef const char *name = encoded
    cdef char bound[ADDRESS_BYTES]
    cdef int fd
    cdef qs_error error
    cdef qs_status status
    check_address(encoded)
    clear(&error)
    with nogil:
        status = qs_server_bind(name, &fd, bound, &error)
    check_listening(status, &error)
    return fd, bound.decode()


def _proxy_header(bytes data not None):
    """Read the header of the PROXY protocol at the beginning of ``data``.  Returns (its bytes, the
    client's address or None, whether that is loopback), or None if the header is not complete.
    ValueError: it is no such header."""
    cdef qs_proxy_header header
    cdef qs_error error
    cdef const char *first = data
    cdef qs_status status
    clear(&error)
    status = qs_proxy_header_read(first, len(data), &header, &error)
    if status != QS_OK:
        raise ValueError(error.text.decode("utf-8", "replace"))
    if header.bytes == 0:
        return None
    peer = header.peer.decode() if header.has_peer else None
    return header.bytes, peer, <bint>header.is_loopback


cdef int check_address(bytes encoded) except -1:
    if 0 in encoded:
        raise ValueError("address with a NUL: no address has one")
    return 0


cdef class Server:
    """A server of a store: the handle under ``pyqstore.Listener``.  Its threads are the engine's,
    and none of them enters Python."""
    cdef qs_server *handle
    cdef readonly Store store
    cdef list stores  # of other vhosts: they must live as long as the handle
    cdef unsigned long generation
    cdef int active
    cdef bint stopping, has_stopped
    cdef public object bridge  # accepts connections for the server; None: there is none
    cdef object __weakref__

    def __cinit__(self, Store store not None, *, uint32_t connections_max, uint16_t channel_max,
                  uint32_t frame_max, uint16_t heartbeat_s, bytes product not None,
                  bytes mechanisms not None, bint asks_permissions=False,
                  bint quorum_as_classic=False, bint proxy_protocol=False):
        cdef qs_server_options options
        cdef qs_error error
        cdef qs_status status
        self.store = store
        self.stores = []
        qs_server_options_default(&options)
        options.connections_max = connections_max
        options.channel_max = channel_max
        options.frame_max = frame_max
        options.heartbeat_s = heartbeat_s
        options.product = product
        options.mechanisms = mechanisms
        options.asks_permissions = asks_permissions
        options.quorum_as_classic = quorum_as_classic
        options.proxy_protocol = proxy_protocol
        if store.note_context != NULL:
            options.note = put_note
            options.note_context = store.note_context
        self.generation = fork_generation
        store.begin(&error)
        with nogil:
            status = qs_server_open(&self.handle, store.handle, &options, &error)
        if status == QS_OK:
            store.servers.append(self)  # closing the store stops the server first
        else:
            self.handle = NULL
        store.end(status, &error)

    def __dealloc__(self):
        if self.handle != NULL:
            with nogil:
                qs_server_close(self.handle)

    cdef int enter(self, qs_error *error) except -1:
        if self.generation != fork_generation:
            raise ForkedStore("the store was opened before fork(); open it in this process")
        if self.stopping:
            raise StoreClosed("the listener is closed")
        self.active += 1
        clear(error)
        return 0

    @property
    def closed(self):
        """Whether the listener accepts no more connections.  In a child of fork() it never does."""
        return self.stopping or self.generation != fork_generation

    def _add_vhost(self, bytes name not None, Store store not None):
        """Serve another store as the vhost ``name``, until that store or the server is closed."""
        cdef const char *text = name
        cdef qs_error error
        cdef qs_status status
        store.enter()
        try:
            self.enter(&error)
            with nogil:
                status = qs_server_add_vhost(self.handle, text, store.handle, &error)
            self.active -= 1
            if status == QS_OK:
                self.stores = [each for each in self.stores if not each.closed] + [store]
                store.servers.append(Vhost(self, name))
        finally:
            store.leave()
        check(status, &error)

    cdef void end_vhost(self, bytes name, uint64_t timeout_ns):
        """End the connections of a vhost; its store is not used any more."""
        cdef const char *text = name
        if self.generation == fork_generation:
            with nogil:
                qs_server_end_vhost(self.handle, text, timeout_ns)

    def _listen(self, str address not None):
        """Listen at an address.  Returns the address in numbers, or raises OSError."""
        cdef bytes encoded = address.encode()
        cdef const char *name = encoded
        cdef char bound[ADDRESS_BYTES]
        cdef qs_error error
        cdef qs_status status
        check_address(encoded)
        self.enter(&error)
        with nogil:
            status = qs_server_listen(self.handle, name, bound, &error)
        self.active -= 1
        check_listening(status, &error)
        return bound.decode()

    def _keep_bridge(self, bridge not None):
        """Have ``bridge`` end with the server.  StoreClosed: the server has ended, and the caller
        keeps the bridge."""
        if self.stopping:
            raise StoreClosed("the listener is closed")
        self.bridge = bridge

    def _adopt(self, int fd, str peer not None, str user not None, bint is_loopback):
        """Serve a connection by its descriptor, which the server closes in any case."""
        cdef bytes encoded_peer, encoded_user
        cdef const char *peer_text
        cdef const char *user_text
        cdef qs_error error
        cdef qs_status status
        try:
            encoded_peer, encoded_user = peer.encode(), user.encode()
            peer_text, user_text = encoded_peer, encoded_user
            if 0 in encoded_peer or 0 in encoded_user:
                raise ValueError("peer or user with a NUL: none has one")
            self.enter(&error)
        except BaseException:
            close(fd)
            raise
        with nogil:
            status = qs_server_adopt(self.handle, fd, peer_text, user_text, is_loopback, &error)
        self.active -= 1
        check(status, &error)

    def _next_question(self, uint64_t timeout_ns=UINT64_MAX):
        """The next question for the caller: (number, kind, user, peer, whether the peer is on this
        machine) and, for a login, (mechanism, password, the name in a certificate), or, for a
        permission, (vhost, name, "").  (): none came in time.  None: there will be none."""
        cdef qs_question question
        cdef qs_error error
        cdef qs_status status
        try:
            self.enter(&error)
        except (ForkedStore, StoreClosed):
            return None
        with nogil:
            status = qs_server_next_question(self.handle, timeout_ns, &question, &error)
        self.active -= 1
        if status == QS_ETIMEDOUT:
            return ()
        if status == QS_ESTORE_CLOSED:
            return None
        check(status, &error)
        known = (question.number, question.kind, text_of(&question.user), text_of(&question.peer),
                 <bint>question.is_loopback)
        if question.kind == QS_MAY_LOG_IN:
            return (*known, text_of(&question.mechanism), text_of(&question.password),
                    text_of(&question.certified))
        return (*known, text_of(&question.vhost), text_of(&question.name), "")

    def _forget_permissions(self):
        """Have connections ask again what their users may do."""
        cdef qs_error error
        try:
            self.enter(&error)
        except (ForkedStore, StoreClosed):
            return
        qs_server_forget_permissions(self.handle)
        self.active -= 1

    def _answer(self, uint64_t number, uint32_t answer, str user not None=""):
        """Answer a question: 0 is no, 1 yes, 2 yes for every name.  ``user`` is the name of the
        client from now on, "" the name it gave."""
        cdef bytes encoded = user.encode("utf-8", "surrogateescape")
        cdef qs_slice name
        cdef qs_error error
        name.data = <const char *>encoded
        name.bytes = len(encoded)
        try:
            self.enter(&error)
        except (ForkedStore, StoreClosed):
            return
        with nogil:
            qs_server_answer(self.handle, number, answer, name)
        self.active -= 1

    def _end_connection(self, uint64_t number):
        """End a connection, with reply code 320.  It may have ended already."""
        cdef qs_error error
        cdef qs_status status
        self.enter(&error)
        status = qs_server_end_connection(self.handle, number, &error)
        self.active -= 1
        check(status, &error)

    def _counts(self):
        cdef qs_server_counts counts
        if self.generation != fork_generation:
            raise ForkedStore("the store was opened before fork(); open it in this process")
        with nogil:
            qs_server_get_counts(self.handle, &counts)
        return {
            "connections": counts.connections,
            "connections_accepted": counts.connections_accepted,
            "connections_turned_away": counts.connections_turned_away,
            "logins_refused": counts.logins_refused,
            "heartbeats_missed": counts.heartbeats_missed,
            "handovers": counts.handovers,
            "bytes_received": counts.bytes_received,
            "bytes_sent": counts.bytes_sent,
        }

    def _stop(self, uint64_t timeout_ns):
        """Accept no more connections, and end all.  It may be called twice; both calls return when
        the connections have ended."""
        if self.generation != fork_generation:
            self.stopping = True
            return
        if self.stopping:
            while not self.has_stopped:
                with nogil:
                    usleep(CLOSE_POLL_US)
            return
        self.stopping = True
        try:  # each step is made, even if Ctrl-C ended the wait of the one before
            if self.bridge is not None:
                self.bridge.accept_no_more()
        finally:
            with nogil:
                qs_server_stop(self.handle, timeout_ns)
            try:
                if self.bridge is not None:
                    self.bridge.end()
            finally:
                while self.active > 0:
                    with nogil:
                        usleep(CLOSE_POLL_US)
                self.has_stopped = True

    def __reduce__(self):
        raise TypeError("a listener belongs to its process and cannot be pickled")


cdef class Vhost:
    """A store that the server of another store serves; closing it ends its connections."""
    cdef Server server
    cdef bytes name

    def __cinit__(self, Server server not None, bytes name not None):
        self.server = server
        self.name = name

    def _stop(self, uint64_t timeout_ns):
        """End its connections; it may be called twice."""
        self.server.end_vhost(self.name, timeout_ns)

    def __reduce__(self):
        raise TypeError("a listener belongs to its process and cannot be pickled")
