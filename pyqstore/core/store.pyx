# The store's handle.
from libc.stdint cimport uint32_t, uint64_t
from posix.unistd cimport usleep

import errno
from weakref import WeakSet, WeakValueDictionary

from .errors import ForkedStore, StoreClosed, StoreFailed

cdef enum:
    CLOSE_POLL_US = 200
    SERVER_STOP_MS = 5000  # for clients to say that they have heard


cdef class Store:
    """An open store: the handle under ``pyqstore.Store``.  Numbers are the engine's, names are
    bytes."""
    cdef qs_store *handle
    cdef unsigned long generation
    cdef int active
    cdef bint closing
    cdef Notes notes  # None: there are none to tell, or the collector was here
    cdef void *note_context  # the same: its thread keeps it until the engine tells no more
    cdef object handles  # channels and connections, weakly
    cdef readonly object _listened  # by id, weakly: channels whose outcomes are told
    cdef list servers  # of threads that use the store, until they are stopped

    def __cinit__(self, bytes path not None, *, uint64_t memory_budget, uint64_t embed_below,
                  uint64_t journal_file_bytes, uint64_t message_file_bytes, uint64_t body_bytes_max,
                  uint32_t segment_entries, uint64_t checkpoint_bytes,
                  uint32_t checkpoint_interval_ms, uint32_t commit_delay_us, uint32_t sync,
                  uint32_t recovery, bint create, bint read_only=False, progress=None):
        cdef qs_options options
        cdef Progress told = None
        cdef const char *directory = path
        cdef qs_error error
        cdef qs_status status
        self.handles = WeakSet()
        self._listened = WeakValueDictionary()
        self.servers = []
        qs_options_default(&options)
        options.memory_budget = memory_budget
        options.embed_below = embed_below
        options.journal_file_bytes = journal_file_bytes
        options.message_file_bytes = message_file_bytes
        options.body_bytes_max = body_bytes_max
        options.segment_entries = segment_entries
        options.checkpoint_bytes = checkpoint_bytes
        options.checkpoint_interval_ms = checkpoint_interval_ms
        options.commit_delay_us = commit_delay_us
        options.sync = sync
        options.recovery = recovery
        options.create = create
        options.read_only = read_only
        if not read_only:
            self.notes = Notes()
            self.notes.begin()
            options.note = put_note
            options.note_context = self.note_context = <void *>self.notes
        if progress is not None:
            told = Progress.__new__(Progress)
            told.callback = progress
            options.progress = tell_progress
            options.progress_context = <void *>told
        self.generation = fork_generation
        clear(&error)
        with nogil:
            status = qs_store_open(&self.handle, directory, &options, NULL, &error)
        if status != QS_OK:
            self.handle = NULL
            self.end_notes()
        if told is not None and told.raised is not None:
            raise told.raised  # __dealloc__ closes what was opened all the same
        check(status, &error)

    def __dealloc__(self):
        if self.handle != NULL:
            with nogil:
                qs_store_close(self.handle, NULL)
            self.end_notes()

    cdef void end_notes(self) noexcept:
        """Nothing tells any more.  In a child of fork() the thread that logs is not there."""
        if self.note_context != NULL and self.generation == fork_generation:
            (<Notes>self.note_context).close()
        self.note_context = NULL

    cdef int enter(self) except -1:
        if self.generation != fork_generation:
            raise ForkedStore("the store was opened before fork(); open it in this process")
        if self.closing or self.handle == NULL:
            raise StoreClosed("the store is closed")
        self.active += 1
        return 0

    cdef void leave(self) noexcept:
        self.active -= 1

    cdef int begin(self, qs_error *error) except -1:
        self.enter()
        clear(error)
        return 0

    cdef int end(self, qs_status status, qs_error *error) except -1:
        self.leave()
        return check(status, error)

    cdef void await_close(self) noexcept:
        """Return when no close is under way in another thread."""
        while self.closing and self.handle != NULL and self.generation == fork_generation:
            with nogil:
                usleep(CLOSE_POLL_US)

    @property
    def closed(self):
        """Whether the store was closed.  In a child of fork() it is not open."""
        return self.closing or self.handle == NULL or self.generation != fork_generation

    @property
    def _forked(self):
        return self.generation != fork_generation

    def _check(self):
        """ForkedStore, StoreClosed: what is no call into the engine, and to be refused all the
        same."""
        self.enter()
        self.leave()

    cdef int stop_servers(self) except -1:
        for server in self.servers:
            server._stop(SERVER_STOP_MS * 1_000_000)
        return 0

    def _close(self):
        """Wait for calls that other threads have under way, and give the store up."""
        cdef qs_error error
        cdef qs_status status
        cdef bint forked = self.generation != fork_generation
        if self.handle == NULL:
            return
        if self.closing and not forked:
            self.await_close()
            return
        self.stop_servers()
        if self.closing and not forked:  # another thread was faster
            self.await_close()
            return
        self.closing = True
        while self.active > 0 and not forked:
            with nogil:
                usleep(CLOSE_POLL_US)
        self.stop_servers()  # of calls that were under way
        clear(&error)
        with nogil:
            status = qs_store_close(self.handle, &error)
        self.handle = NULL
        self.end_notes()
        if self.notes is not None and not forked:
            self.notes.await_end()
        # Files are closed with the last handle, which may be kept for as long as a message is.
        for handle in list(self.handles):
            handle._free()
        if not forked:
            check(status, &error)

    def sync(self):
        """Return when everything published so far, by any channel, is durable.

        Raises StoreFailed after an input/output error.
        """
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_sync(self.handle, &error)
        self.end(status, &error)

    def checkpoint(self):
        """Make a checkpoint: the journal's files are used again, and opening begins here.

        The content of queues and messages is written to other files; publishers and consumers go on
        meanwhile.  Space of consumed messages is freed.  Returns when everything published before
        is on the disk.  Raises StoreFull (no space: the journal still has everything), StoreFailed.
        """
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_checkpoint(self.handle, &error)
        self.end(status, &error)

    def _copy(self, bytes path not None, Copying copying not None):
        """Another store at path, as of qs_store_copy: (files, linked, bytes).  OSError where the
        copy cannot be."""
        cdef const char *place = path
        cdef volatile bint *is_given_up = &copying.is_given_up
        cdef qs_copied copied
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_copy(self.handle, place, copy_goes_on, <void *>is_given_up, &copied,
                                   &error)
        self.leave()
        if status == QS_EINTR:
            raise InterruptedError(errno.EINTR, error.text.decode("utf-8", "replace"))
        if status == QS_ESTORE_FULL:  # for the checkpoint
            check(status, &error)
        check_file_status(status, &error)
        return copied.files, copied.linked, copied.bytes

    def _keep(self, uint64_t bytes_max):
        """The journal is kept from now on, as of qs_store_keep: (lsn, durable_lsn, file, file_salt,
        file_lsn).  FileExistsError: it is kept already."""
        cdef qs_kept kept
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_keep(self.handle, bytes_max, &kept, &error)
        self.leave()
        if status != QS_EEXIST:
            check(status, &error)
        check_file_status(status, &error)
        return kept.lsn, kept.durable_lsn, kept.file, kept.file_salt, kept.file_lsn

    def _keep_from(self, uint64_t lsn):
        """The journal before lsn was read: up to which LSN it is durable, and whether nothing is
        kept any more."""
        cdef qs_kept kept
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_keep_from(self.handle, lsn, &kept, &error)
        self.end(status, &error)
        return kept.durable_lsn, kept.is_lost

    def _keep_end(self):
        self.enter()
        with nogil:
            qs_store_keep_end(self.handle)
        self.leave()

    def _read_body(self, bytes reference not None, size_t data_bytes):
        """A record of a message file, by its reference in the journal.  CorruptionError: it is
        damaged, or gone."""
        cdef const char *where = reference
        cdef bytearray data = bytearray(data_bytes)
        cdef char *room = data
        cdef qs_error error
        cdef qs_status status
        if len(reference) != 28:
            raise ValueError(f"a reference has 28 bytes, not {len(reference)}")
        self.begin(&error)
        with nogil:
            status = qs_store_read_body(self.handle, where, room, data_bytes, &error)
        self.end(status, &error)
        return data

    def accept_clock(self):
        """Go by the machine's clock from now on: what it says has expired expires.

        Messages expire by a clock of the store's own.  While the store is open it goes on whatever
        is done to the machine's; at open it is set by that, unless it would go back, or ahead by
        more than 30 days: then time goes on from when the store was last open, a ClockJump is
        warned of, and ``recovery_report.clock_ahead_s`` tells by how much the two differ.  Durable
        when this returns.  Raises StoreFull, StoreFailed.
        """
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_accept_clock(self.handle, &error)
        self.end(status, &error)

    def _wait_durable(self, uint64_t lsn, uint64_t timeout_ns):
        """Whether the journal is durable up to lsn, after timeout_ns at the latest."""
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_wait_durable(self.handle, lsn, timeout_ns, &error)
        self.leave()
        if status == QS_ETIMEDOUT:
            return False
        check(status, &error)
        return True

    def _durable_lsn(self):
        cdef uint64_t lsn
        self.enter()
        with nogil:
            lsn = qs_store_durable_lsn(self.handle)
        self.leave()
        return lsn

    def _failure(self):
        """The exception for what it failed with.  REQUIRES that it has failed."""
        cdef qs_error error
        cdef qs_status status
        try:
            self.begin(&error)
        except StoreClosed:
            return StoreFailed("the store failed, and was closed meanwhile")
        with nogil:
            status = qs_store_failure(self.handle, &error)
        self.leave()
        return error_of(status, &error)

    def _topology(self):
        cdef uint64_t version
        self.enter()
        with nogil:
            version = qs_store_topology(self.handle)
        self.leave()
        return version

    def _stats(self):
        """The members of qs_stats by name, as stats.def has them."""
        cdef qs_stats stats
        cdef qs_stat stat
        cdef uint32_t index = 0
        cdef dict numbers = {}
        self.enter()
        with nogil:
            qs_store_stats(self.handle, &stats)
        self.leave()
        while qs_stats_at(&stats, index, &stat):
            value = stat.value
            numbers[stat.name.decode()] = value != 0 if stat.kind == QS_STAT_FLAG else value
            index += 1
        numbers["file_system"] = stats.file_system
        numbers["inbox_error"] = (<bytes>stats.inbox_error).decode("utf-8", "replace")
        return numbers

    def _count_names(self):
        """The names of counters: of channels, exchanges, queues, exchange and queue, all channels
        together, and connections."""
        cdef qs_count count
        cdef list names = []
        cdef list each
        cdef uint32_t of
        while qs_count_at(<uint32_t>len(names), 0, &count):
            of = <uint32_t>len(names)
            each = []
            while qs_count_at(of, <uint32_t>len(each), &count):
                each.append(count.name.decode())
            names.append(each)
        return names

    def _counts(self):
        """(of, channel, exchange, queue, values) of each that has counters.

        ``of`` is an index in _count_names().  Numbers are 8 bytes in the machine's order.
        """
        cdef Listing listing = Listing(NULL, 0, 0, False)
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_visit_counts(self.handle, visit_counts, &listing)
        self.leave()
        rows = listing_rows(&listing, 5)
        check(status, &error)
        return rows

    def _latencies(self, bint confirm):
        """(most microseconds, commits) of each bucket of latencies that is not empty, the shortest
        first: of commits, or of their confirms.  Numbers are 8 bytes in the machine's order.
        """
        cdef Listing listing = Listing(NULL, 0, 0, False)
        cdef uint32_t of = QS_LATENCY_CONFIRM if confirm else QS_LATENCY_COMMIT
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_visit_latencies(self.handle, of, visit_latency, &listing)
        self.leave()
        rows = listing_rows(&listing, 2)
        check(status, &error)
        return rows

    def _options(self):
        cdef qs_options options
        self.enter()
        with nogil:
            qs_store_options(self.handle, &options)
        self.leave()
        return {
            "memory_budget": options.memory_budget,
            "embed_below": options.embed_below,
            "segment_entries": options.segment_entries,
            "journal_file_bytes": options.journal_file_bytes,
            "message_file_bytes": options.message_file_bytes,
            "body_bytes_max": options.body_bytes_max,
            "checkpoint_bytes": options.checkpoint_bytes,
            "checkpoint_interval_ms": options.checkpoint_interval_ms,
            "commit_delay_us": options.commit_delay_us,
            "sync": options.sync,
            "recovery": options.recovery,
            "read_only": options.read_only,
        }

    def _queue_status(self, queue):
        cdef qs_slice name
        cdef qs_queue_status queue_status
        cdef qs_error error
        cdef qs_status status
        name_slice(queue, "queue", &name)
        self.begin(&error)
        with nogil:
            status = qs_store_queue_status(self.handle, name, &queue_status, &error)
        self.end(status, &error)
        return queue_status

    def _browse(self, queue, uint64_t position, uint64_t messages_max, uint64_t bytes_max):
        """(position to go on at, ArrowBatch or None at the end, error or None)."""
        cdef qs_slice name
        cdef ArrowBatch batch = ArrowBatch.__new__(ArrowBatch)
        cdef qs_error error
        cdef qs_status status
        name_slice(queue, "queue", &name)
        self.begin(&error)
        with nogil:
            status = qs_store_browse(self.handle, name, &position, messages_max, bytes_max,
                                     &batch.schema, &batch.array, &error)
        self.leave()
        if status == QS_OK:
            return position, batch, None
        batch.schema.release = NULL
        batch.array.release = NULL
        return position, None, None if status == QS_EEMPTY else error_of(status, &error)

    def _peek(self, queue, uint64_t position):
        """(position to go on at, Message or None at the end, its state, error)."""
        cdef qs_slice name
        cdef qs_message source
        cdef Message message
        cdef uint32_t state = 0
        cdef qs_error error
        cdef qs_status status
        name_slice(queue, "queue", &name)
        self.begin(&error)
        with nogil:
            status = qs_store_peek(self.handle, name, &position, &state, &source, &error)
        self.leave()
        if status != QS_OK:
            ended = None if status == QS_EEMPTY else error_of(status, &error)
            return position, None, "ready", ended
        try:
            message = Message.__new__(Message)
            message.delivery_tag = source.delivery_tag
            message.redelivered = source.redelivered
            message.delivery_count = source.delivery_count
            message.exchange = text_of(&source.exchange)
            message.routing_key = text_of(&source.routing_key)
            message.queue = queue
            message.consumer_tag = ""
            message.encoded = bytes_of(&source.properties)
            message.body = bytes_of(&source.body)
        finally:
            qs_message_release(&source)
        return position, message, ("ready", "unacked", "delayed")[state], None

    def _set_queue_mode(self, queue, bint lazy):
        cdef qs_slice name
        cdef qs_error error
        cdef qs_status status
        name_slice(queue, "queue", &name)
        self.begin(&error)
        with nogil:
            status = qs_store_set_queue_mode(self.handle, name, lazy, &error)
        self.end(status, &error)

    def _queues(self):
        """(name, durable, exclusive, auto_delete, arguments, messages ready, numbers) of each.

        Flags are b"1" or b"", the count is 8 bytes in the machine's order.  numbers are so as
        well: messages unacked and delayed, consumers, bytes of memory, and the connection's number
        of an exclusive queue.
        """
        cdef Listing listing = Listing(NULL, 0, 0, False)
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_visit_queues(self.handle, visit_queue, &listing)
        self.leave()
        rows = listing_rows(&listing, 7)
        check(status, &error)
        return rows

    def _connections(self):
        """(numbers, peer, user, mechanism, properties) of each that is open: visit_connection."""
        cdef Listing listing = Listing(NULL, 0, 0, False)
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_visit_connections(self.handle, visit_connection, &listing)
        self.leave()
        rows = listing_rows(&listing, 5)
        check(status, &error)
        return rows

    def _channels(self):
        """(numbers,) of each that is open: see visit_channel."""
        cdef Listing listing = Listing(NULL, 0, 0, False)
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_visit_channels(self.handle, visit_channel, &listing)
        self.leave()
        rows = listing_rows(&listing, 1)
        check(status, &error)
        return rows

    def _consumers(self):
        """(numbers, queue, tag) of each: see visit_consumer."""
        cdef Listing listing = Listing(NULL, 0, 0, False)
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_visit_consumers(self.handle, visit_consumer, &listing)
        self.leave()
        rows = listing_rows(&listing, 3)
        check(status, &error)
        return rows

    def _exchanges(self):
        """(name, type, durable, auto_delete, internal, arguments) of each."""
        cdef Listing listing = Listing(NULL, 0, 0, False)
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_visit_exchanges(self.handle, visit_exchange, &listing)
        self.leave()
        rows = listing_rows(&listing, 6)
        check(status, &error)
        return rows

    def _bindings(self):
        """(source, destination, routing_key, arguments, to_exchange) of each."""
        cdef Listing listing = Listing(NULL, 0, 0, False)
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_visit_bindings(self.handle, visit_binding, &listing)
        self.leave()
        rows = listing_rows(&listing, 5)
        check(status, &error)
        return rows

    def transaction_known(self, key):
        """Whether a transaction was committed, durably, with this key: what ``tx_commit(key=...)``
        asks first.

        Keys are kept until ``forget_transaction``.  StoreCorrupt: the file that would tell is
        damaged.
        """
        cdef qs_slice name
        cdef c_bool known = False
        cdef qs_error error
        cdef qs_status status
        text_slice(key, "key", &name)
        self.begin(&error)
        with nogil:
            status = qs_store_transaction_known(self.handle, name, &known, &error)
        self.end(status, &error)
        return <bint>known

    def _adopt(self, list paths not None, key, bint mandatory):
        """(committed, rows, unroutable, files, linked)."""
        return adopt_paths(self, paths, key, mandatory)

    def _forget_key(self, key):
        """How many keys were forgotten: 0 or 1."""
        cdef qs_slice name
        cdef uint64_t count = 0
        cdef qs_error error
        cdef qs_status status
        text_slice(key, "key", &name)
        if name.bytes == 0:
            raise ValueError("key must not be empty")
        self.begin(&error)
        with nogil:
            status = qs_store_forget_transaction(self.handle, name, &count, &error)
        self.end(status, &error)
        return count

    def _forget_older(self, uint64_t older_than_us):
        """How many keys were forgotten."""
        cdef uint64_t count = 0
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_forget_transactions(self.handle, older_than_us, &count, &error)
        self.end(status, &error)
        return count

    def __reduce__(self):
        raise TypeError("a store belongs to its process and cannot be pickled")
