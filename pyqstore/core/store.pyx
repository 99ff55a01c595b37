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
    cdef Notes notes  # None: the store is read-only, or the collector has cleared this
    cdef void *note_context  # the same object: its thread keeps it while the engine may write notes
    cdef object handles  # weak references to channels, connections, readers and traces
    cdef readonly object _listened  # by id, weak: channels that have outcome listeners
    cdef list servers  # what has threads that use the store, until they are stopped

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
            raise told.raised  # __dealloc__ closes the store if it was opened
        check(status, &error)

    def __dealloc__(self):
        if self.handle != NULL:
            with nogil:
                qs_store_close(self.handle, NULL)
            self.end_notes()

    cdef void end_notes(self) noexcept:
        """The engine writes no more notes.  In a child of fork() there is no thread that logs."""
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

    cdef list listed(self, Listing *listing, int fields, qs_status status, qs_error *error):
        """End a call that has filled a listing: its rows."""
        self.leave()
        rows = listing_rows(listing, fields)
        check(status, error)
        return rows

    cdef void await_close(self) noexcept:
        """Return when no other thread is closing the store."""
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
        """Raise ForkedStore or StoreClosed, for verbs that do not call the engine."""
        self.enter()
        self.leave()

    cdef int stop_servers(self) except -1:
        for server in self.servers:
            server._stop(SERVER_STOP_MS * 1_000_000)
        return 0

    def _close(self):
        """Wait for the calls of other threads, then close the store."""
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
        # Files are closed with the last handle; a message keeps its channel's.
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
        """Copy the store to path with qs_store_copy.  Returns (files, linked, bytes).  OSError: the
        copy cannot be written there."""
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
        """Keep the journal from now on, with qs_store_keep.  Returns (lsn, durable_lsn, file,
        file_salt, file_lsn).  FileExistsError: it is kept already."""
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
        """Stop keeping the journal before lsn, which was read.  Returns the LSN up to which it is
        durable, and whether the journal is no longer kept."""
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
        """Read the record of a message file that a reference in the journal names.
        CorruptionError: the record is damaged or gone."""
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
        """Set the store's clock to the machine's.  Messages that have expired by it expire.

        Messages expire by a clock of the store's own.  Changes of the machine's clock do not affect
        it while the store is open.  Opening sets it to the machine's clock, unless it would go
        back, or ahead by more than 30 days.  In that case it continues from the time at which the
        store was last open, the warning ClockJump is given, and ``recovery_report.clock_ahead_s``
        is the difference.  The change is durable when this returns.  Raises StoreFull, StoreFailed.
        """
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_accept_clock(self.handle, &error)
        self.end(status, &error)

    def _wait_durable(self, uint64_t lsn, uint64_t timeout_ns):
        """Wait for at most timeout_ns.  Returns whether the journal is durable up to lsn."""
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
        """The exception that says why the store failed.  REQUIRES that it has failed."""
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
        """Six lists of the names of counters: for a channel, an exchange, a queue, an exchange with
        a queue, all channels together, and a connection."""
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
        """(of, channel, exchange, queue, values) for each thing that has counters.

        ``of`` is the index of its names in _count_names().  Numbers are 8 bytes in the machine's
        order.
        """
        cdef Listing listing = Listing(NULL, 0, 0, False)
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_visit_counts(self.handle, visit_counts, &listing)
        return self.listed(&listing, 5, status, &error)

    def _latencies(self, bint confirm):
        """(most microseconds, commits) for each bucket that is not empty, the shortest latencies
        first.  The latencies are those of commits, or of their confirms.  Numbers are 8 bytes in
        the machine's order.
        """
        cdef Listing listing = Listing(NULL, 0, 0, False)
        cdef uint32_t of = QS_LATENCY_CONFIRM if confirm else QS_LATENCY_COMMIT
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_visit_latencies(self.handle, of, visit_latency, &listing)
        return self.listed(&listing, 2, status, &error)

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
        """(name, durable, exclusive, auto_delete, arguments, messages ready, numbers) of each
        queue.

        Flags are b"1" or b"".  Counts are 8 bytes in the machine's order.  ``numbers`` are five:
        messages unacked, messages delayed, consumers, bytes of memory, and for an exclusive queue
        its connection's number.
        """
        cdef Listing listing = Listing(NULL, 0, 0, False)
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_visit_queues(self.handle, visit_queue, &listing)
        return self.listed(&listing, 7, status, &error)

    def _connections(self):
        """(numbers, peer, user, mechanism, properties) of each open connection; visit_connection
        has the numbers."""
        cdef Listing listing = Listing(NULL, 0, 0, False)
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_visit_connections(self.handle, visit_connection, &listing)
        return self.listed(&listing, 5, status, &error)

    def _channels(self):
        """(numbers,) of each open channel; visit_channel has the numbers."""
        cdef Listing listing = Listing(NULL, 0, 0, False)
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_visit_channels(self.handle, visit_channel, &listing)
        return self.listed(&listing, 1, status, &error)

    def _consumers(self):
        """(numbers, queue, tag) of each consumer; visit_consumer has the numbers."""
        cdef Listing listing = Listing(NULL, 0, 0, False)
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_visit_consumers(self.handle, visit_consumer, &listing)
        return self.listed(&listing, 3, status, &error)

    def _exchanges(self):
        """(name, type, durable, auto_delete, internal, arguments) of each exchange."""
        cdef Listing listing = Listing(NULL, 0, 0, False)
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_visit_exchanges(self.handle, visit_exchange, &listing)
        return self.listed(&listing, 6, status, &error)

    def _bindings(self):
        """(source, destination, routing_key, arguments, to_exchange) of each binding."""
        cdef Listing listing = Listing(NULL, 0, 0, False)
        cdef qs_error error
        cdef qs_status status
        self.begin(&error)
        with nogil:
            status = qs_store_visit_bindings(self.handle, visit_binding, &listing)
        return self.listed(&listing, 5, status, &error)

    def transaction_known(self, key):
        """Whether a transaction with this key was committed, durably; ``tx_commit(key=...)`` asks
        this first.

        Keys are kept until ``forget_transaction``.  StoreCorrupt: the file of the keys is damaged.
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
