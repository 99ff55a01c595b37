"""The C functions the stateful extension calls: qstore/qstore.h and nothing else."""
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

cdef extern from "qstore/arrow.h" nogil:
    cdef struct ArrowSchema:
        void (*release)(ArrowSchema *) noexcept nogil
    cdef struct ArrowArray:
        int64_t length
        const void **buffers
        ArrowArray **children
        void (*release)(ArrowArray *) noexcept nogil
    cdef struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream *, ArrowSchema *) noexcept nogil
        int (*get_next)(ArrowArrayStream *, ArrowArray *) noexcept nogil
        const char *(*get_last_error)(ArrowArrayStream *) noexcept nogil
        void (*release)(ArrowArrayStream *) noexcept nogil

cdef extern from "qstore/status.h" nogil:
    ctypedef enum qs_status:
        QS_OK
        QS_EIO
        QS_ECORRUPT
        QS_ENOENT
        QS_EEXIST
        QS_EINTR
        QS_ENOSPC
        QS_EEMPTY
        QS_EWOULDBLOCK
        QS_ETIMEDOUT
        QS_EOFFSET
        QS_EQUEUE_FULL
        QS_ESTORE_CLOSED
        QS_ESTORE_FULL
        QS_ECHANNEL_CLOSED
        QS_PRECONDITION_FAILED
    ctypedef struct qs_error:
        int os_errno
        uint64_t offset
        uint64_t pid
        char path[256]
        char text[512]
    const char *qs_status_name(qs_status status)
    const char *qs_status_text(qs_status status)

cdef extern from "qstore/qstore.h" nogil:
    ctypedef bint c_bool "bool"
    ctypedef struct qs_env
    ctypedef struct qs_store
    ctypedef struct qs_connection
    ctypedef struct qs_channel
    ctypedef struct qs_slice:
        const void *data
        size_t bytes

    # The store.
    ctypedef struct qs_options:
        uint64_t memory_budget
        uint64_t embed_below
        uint64_t journal_file_bytes
        uint64_t message_file_bytes
        uint64_t body_bytes_max
        uint32_t segment_entries
        uint64_t checkpoint_bytes
        uint32_t checkpoint_interval_ms
        uint32_t commit_delay_us
        uint32_t sync
        uint32_t recovery
        c_bool create
        c_bool read_only
        c_bool background
        void (*progress)(void *context, uint64_t bytes_done, uint64_t bytes_total) noexcept nogil
        void *progress_context
        void (*note)(void *context, uint32_t level, const char *text) noexcept nogil
        void *note_context
    void qs_options_default(qs_options *options_out)
    qs_status qs_store_open(qs_store **store_out, const char *path, const qs_options *options,
                            qs_env *env, qs_error *error)
    qs_status qs_store_close(qs_store *store, qs_error *error)
    qs_status qs_store_sync(qs_store *store, qs_error *error)
    qs_status qs_store_checkpoint(qs_store *store, qs_error *error)
    ctypedef struct qs_copied:
        uint64_t files
        uint64_t linked
        uint64_t bytes
    ctypedef c_bool (*qs_copy_goes_on)(void *context) noexcept nogil
    qs_status qs_store_copy(qs_store *store, const char *path, qs_copy_goes_on goes_on,
                            void *context, qs_copied *copied_out, qs_error *error)
    ctypedef struct qs_kept:
        uint64_t lsn
        uint64_t durable_lsn
        uint64_t file_salt
        uint64_t file_lsn
        uint32_t file
        c_bool is_lost
    qs_status qs_store_keep(qs_store *store, uint64_t bytes_max, qs_kept *kept_out, qs_error *error)
    qs_status qs_store_keep_from(qs_store *store, uint64_t lsn, qs_kept *kept_out, qs_error *error)
    void qs_store_keep_end(qs_store *store)
    qs_status qs_store_read_body(qs_store *store, const void *reference, void *data,
                                 size_t data_bytes, qs_error *error)
    qs_status qs_store_wait_durable(qs_store *store, uint64_t lsn, uint64_t timeout_ns,
                                    qs_error *error)
    uint64_t qs_store_durable_lsn(qs_store *store)
    qs_status qs_store_failure(qs_store *store, qs_error *error)
    uint64_t qs_store_topology(qs_store *store)

    ctypedef struct qs_file_system:
        char name[16]
        uint32_t kind
    # Of the other members qs_stats_at tells.
    ctypedef struct qs_stats:
        qs_file_system file_system
        char inbox_error[512]
    enum:
        QS_STAT_FLAG
    ctypedef struct qs_stat:
        const char *name
        uint32_t kind
        int64_t value
    c_bool qs_stats_at(const qs_stats *stats, uint32_t index, qs_stat *stat_out)
    ctypedef struct qs_count:
        const char *name
    c_bool qs_count_at(uint32_t of, uint32_t index, qs_count *count_out)
    ctypedef struct qs_counts:
        uint32_t of
        uint32_t length
        uint64_t channel
        qs_slice exchange
        qs_slice queue
        const uint64_t *values
    qs_status qs_store_visit_counts(
        qs_store *store, void (*visit)(void *context, const qs_counts *counts) noexcept nogil,
        void *context)
    uint32_t QS_LATENCY_COMMIT
    uint32_t QS_LATENCY_CONFIRM
    qs_status qs_store_visit_latencies(
        qs_store *store, uint32_t of,
        void (*visit)(void *context, uint64_t most_us, uint64_t count) noexcept nogil,
        void *context)
    uint64_t qs_channel_number(const qs_channel *channel)
    qs_status qs_store_accept_clock(qs_store *store, qs_error *error)
    void qs_store_stats(qs_store *store, qs_stats *stats_out)
    void qs_store_options(qs_store *store, qs_options *options_out)

    ctypedef struct qs_queue_status:
        uint64_t messages_ready
        uint64_t messages_unacked
        uint64_t messages_delayed
        uint64_t consumers
        uint64_t messages_passed
        uint64_t slow_consumers
        uint64_t alpha
        uint64_t beta
        uint64_t gamma
        uint64_t delta
        uint64_t q1
        uint64_t q2
        uint64_t delta_len
        uint64_t q3
        uint64_t q4
        uint64_t ram_bytes
        uint64_t disk_bytes
        double target_ram_count
        double ingress_rate
        double egress_rate
        c_bool durable
        c_bool exclusive
        c_bool auto_delete
        c_bool lazy
        c_bool stream
        uint64_t first
        uint64_t next
        uint64_t segments
    qs_status qs_store_queue_status(qs_store *store, qs_slice queue, qs_queue_status *status_out,
                                    qs_error *error)
    qs_status qs_store_set_queue_mode(qs_store *store, qs_slice queue, c_bool lazy, qs_error *error)

    ctypedef struct qs_exchange_info:
        qs_slice name
        qs_slice type
        c_bool durable
        c_bool auto_delete
        c_bool internal
        qs_slice arguments
    ctypedef struct qs_queue_info:
        qs_slice name
        c_bool durable
        c_bool exclusive
        c_bool auto_delete
        uint64_t messages_ready
        uint64_t messages_delayed
        uint64_t messages_unacked
        uint64_t consumers
        uint64_t ram_bytes
        uint64_t owner
        qs_slice arguments
    ctypedef struct qs_binding_info:
        qs_slice source
        qs_slice destination
        qs_slice routing_key
        qs_slice arguments
        c_bool to_exchange
    qs_status qs_store_visit_queues(
        qs_store *store, void (*visit)(void *context, const qs_queue_info *info) noexcept nogil,
        void *context)
    qs_status qs_store_visit_exchanges(
        qs_store *store, void (*visit)(void *context, const qs_exchange_info *info) noexcept nogil,
        void *context)
    qs_status qs_store_visit_bindings(
        qs_store *store, void (*visit)(void *context, const qs_binding_info *info) noexcept nogil,
        void *context)
    ctypedef struct qs_client:
        uint64_t number
        qs_slice peer
        qs_slice user
        qs_slice mechanism
        qs_slice properties
        uint32_t frame_max
        uint16_t channel_max
        uint16_t heartbeat_s
    ctypedef struct qs_connection_info:
        uint64_t number
        uint64_t opened_us
        uint64_t channels
        qs_client client
    ctypedef struct qs_channel_info:
        uint64_t number
        uint64_t connection
        uint64_t client_number
        uint64_t prefetch
        uint64_t prefetch_channel
        uint64_t consumers
        uint64_t unacked
        uint64_t unconfirmed
        uint64_t messages_uncommitted
        uint64_t acks_uncommitted
        c_bool confirms
        c_bool transactional
    ctypedef struct qs_consumer_info:
        uint64_t channel
        qs_slice queue
        qs_slice tag
        int64_t priority
        uint64_t prefetch
        uint64_t unacked
        c_bool no_ack
        c_bool exclusive
        c_bool is_active
        c_bool is_slow
    qs_status qs_store_visit_connections(
        qs_store *store,
        void (*visit)(void *context, const qs_connection_info *info) noexcept nogil, void *context)
    qs_status qs_store_visit_channels(
        qs_store *store, void (*visit)(void *context, const qs_channel_info *info) noexcept nogil,
        void *context)
    qs_status qs_store_visit_consumers(
        qs_store *store, void (*visit)(void *context, const qs_consumer_info *info) noexcept nogil,
        void *context)
    ctypedef struct qs_verify_callbacks:
        c_bool (*progress)(void *context, uint64_t bytes_done, uint64_t bytes_total) noexcept nogil
        void (*damage)(void *context, const qs_error *what) noexcept nogil
        void *context
    ctypedef struct qs_verified:
        uint64_t journal_records
        uint64_t journal_bytes
        uint64_t checkpoint_records
        uint64_t segments
        uint64_t bodies
        uint64_t body_bytes
        uint64_t queues
        uint64_t damages
    qs_status qs_store_verify(const char *path, qs_env *env, const qs_verify_callbacks *callbacks,
                              qs_verified *verified_out, qs_error *error)
    qs_status qs_store_transaction_known(qs_store *store, qs_slice key, c_bool *known_out,
                                         qs_error *error)
    qs_status qs_store_forget_transaction(qs_store *store, qs_slice key, uint64_t *count_out,
                                          qs_error *error)
    qs_status qs_store_forget_transactions(qs_store *store, uint64_t older_than_us,
                                           uint64_t *count_out, qs_error *error)

    # Connections.
    qs_status qs_connection_open(qs_connection **connection_out, qs_store *store, qs_error *error)
    void qs_connection_close(qs_connection *connection)
    c_bool qs_connection_is_closed(qs_connection *connection)
    qs_status qs_connection_channel(qs_channel **channel_out, qs_connection *connection,
                                    qs_error *error)

    # Channels.
    qs_status qs_channel_open(qs_channel **channel_out, qs_store *store, qs_error *error)
    void qs_channel_close(qs_channel *channel)
    enum:
        QS_PASSIVE
        QS_DURABLE
        QS_EXCLUSIVE
        QS_AUTO_DELETE
        QS_INTERNAL
        QS_IF_UNUSED
        QS_IF_EMPTY
        QS_NO_ACK
        QS_MANDATORY
        QS_GLOBAL
        QS_MULTIPLE
        QS_REQUEUE
        QS_NO_WAIT
        QS_REJECT
        QS_IN_TX
        QS_WITHHELD
        QS_IMMEDIATE
        QS_BODY_CONSTANT
        QS_NO_SYNC
        QS_TO_EXCHANGE
        QS_UNBIND
        QS_AUTO_ACK
    qs_status qs_channel_exchange_declare(qs_channel *channel, qs_slice exchange, qs_slice type,
                                          uint32_t flags, qs_slice arguments, qs_error *error)
    qs_status qs_channel_exchange_delete(qs_channel *channel, qs_slice exchange, uint32_t flags,
                                         qs_error *error)
    ctypedef struct qs_declare_ok:
        char queue[256]
        uint64_t message_count
        uint64_t consumer_count
    qs_status qs_channel_queue_declare(qs_channel *channel, qs_slice queue, uint32_t flags,
                                       qs_slice arguments, qs_declare_ok *ok_out, qs_error *error)
    qs_status qs_channel_change_binding(qs_channel *channel, qs_slice destination,
                                        qs_slice source, qs_slice routing_key, qs_slice arguments,
                                        uint32_t flags, qs_error *error)
    qs_status qs_channel_queue_discard(qs_channel *channel, qs_slice queue, uint64_t position,
                                       qs_error *error)
    qs_status qs_channel_queue_purge(qs_channel *channel, qs_slice queue, uint32_t flags,
                                     uint64_t *count_out, qs_error *error)
    qs_status qs_channel_queue_delete(qs_channel *channel, qs_slice queue, uint32_t flags,
                                      uint64_t *count_out, qs_error *error)

    # Publishing.
    qs_status qs_channel_confirm_select(qs_channel *channel, qs_error *error)
    const char *qs_queue_argument_name(uint32_t index)
    uint64_t qs_channel_next_publish_number(qs_channel *channel)
    ctypedef struct qs_unconfirmed:
        uint64_t first_number
        uint64_t last_number
        c_bool has_queue
        qs_slice exchange
        qs_slice queue
    qs_status qs_channel_visit_unconfirmed(
        qs_channel *channel,
        void (*visit)(void *context, const qs_unconfirmed *info) noexcept nogil,
        void *context, qs_error *error)
    enum:
        QS_RECEIPT_ROWS
    ctypedef struct qs_receipt:
        uint64_t first_number
        uint64_t last_number
        uint64_t count
        uint64_t lsn
        uint64_t unrouted_count
        uint64_t refused_count
        uint64_t refused_rows[8]
        char refused_queue[256]
    qs_status qs_channel_publish(qs_channel *channel, qs_slice exchange,
                                 qs_slice routing_key, qs_slice properties, qs_slice body,
                                 uint32_t flags, uint64_t delay_us,
                                 qs_receipt *receipt_out, qs_error *error)
    ctypedef struct qs_batch:
        const ArrowSchema *schema
        const ArrowArray *const *arrays
        size_t array_count
        const char *body_column
        qs_slice exchange
        qs_slice routing_key
        qs_slice properties
        uint32_t flags
        int64_t (*utc_of)(int64_t) noexcept nogil
    qs_status qs_channel_publish_batch(qs_channel *channel, const qs_batch *batch,
                                       qs_receipt *receipt_out, qs_error *error)
    qs_status qs_channel_wait_confirms(qs_channel *channel, uint64_t timeout_ns, c_bool *nacked_out,
                                       qs_error *error)

    # Transactions.
    qs_status qs_channel_tx_select(qs_channel *channel, qs_error *error)
    qs_status qs_channel_tx_begin(qs_channel *channel, qs_error *error)
    qs_status qs_channel_tx_end(qs_channel *channel, qs_error *error)
    qs_status qs_channel_tx_commit(qs_channel *channel, qs_slice key, uint32_t flags,
                                   c_bool *repeated_out, qs_error *error)
    qs_status qs_channel_tx_rollback(qs_channel *channel, qs_error *error)

    # Receiving.
    ctypedef struct qs_message:
        uint64_t delivery_tag
        uint32_t delivery_count
        c_bool redelivered
        uint64_t container
        uint64_t sequence
        qs_slice exchange
        qs_slice routing_key
        qs_slice properties
        qs_slice body
        qs_slice queue
        qs_slice consumer_tag
        void *hold
    qs_status qs_store_browse(qs_store *store, qs_slice queue, uint64_t *position_io,
                              uint64_t messages_max, uint64_t bytes_max, ArrowSchema *schema_out,
                              ArrowArray *array_out, qs_error *error)
    qs_status qs_store_peek(qs_store *store, qs_slice queue, uint64_t *position_io,
                            uint32_t *state_out, qs_message *message_out, qs_error *error)
    void qs_message_release(qs_message *message)
    qs_status qs_channel_get(qs_channel *channel, qs_slice queue, uint32_t flags,
                             qs_message *message_out, qs_error *error)
    qs_status qs_channel_get_batch(qs_channel *channel, qs_slice queue, uint64_t max_messages,
                                   uint64_t bytes_max, uint32_t flags, uint64_t timeout_ns,
                                   ArrowSchema *schema_out, ArrowArray *array_out, qs_error *error)
    qs_status qs_channel_qos(qs_channel *channel, uint32_t prefetch_count, uint32_t prefetch_bytes,
                             uint32_t flags, qs_error *error)
    qs_status qs_channel_consume(qs_channel *channel, qs_slice queue, qs_slice consumer_tag,
                                 uint32_t flags, qs_slice arguments, char *tag_out, qs_error *error)
    qs_status qs_channel_pause(qs_channel *channel, qs_slice consumer_tag, c_bool paused,
                               qs_error *error)
    qs_status qs_channel_ignore_returns(qs_channel *channel, c_bool ignored, qs_error *error)
    qs_status qs_channel_cancel(qs_channel *channel, qs_slice consumer_tag, qs_error *error)
    qs_status qs_channel_ack(qs_channel *channel, uint64_t delivery_tag, uint32_t flags,
                             qs_error *error)
    qs_status qs_channel_nack(qs_channel *channel, uint64_t delivery_tag, uint32_t flags,
                              uint64_t delay_us, qs_error *error)
    qs_status qs_channel_recover(qs_channel *channel, uint32_t flags, qs_error *error)

    qs_status qs_channel_withhold(qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                                  qs_error *error) nogil
    qs_status qs_channel_settle_range(qs_channel *channel, uint64_t first_tag,
                                      uint64_t last_tag, uint32_t flags, uint64_t delay_us,
                                      qs_error *error)

    # Events.
    enum:
        QS_EVENT_RETURN
        QS_EVENT_ACK
        QS_EVENT_NACK
        QS_EVENT_DELIVERY
        QS_EVENT_CANCEL
        QS_EVENT_CHANGE
        QS_EVENT_ARM
    ctypedef struct qs_event:
        uint32_t kind
        uint64_t publish_number
        c_bool multiple
        uint64_t count
        qs_status reason
        uint32_t reply_code
        const char *reply_text
        qs_message message
    qs_status qs_channel_next_event(qs_channel *channel, uint32_t kinds, uint64_t timeout_ns,
                                    qs_event *event_out, qs_error *error)
    qs_status qs_channel_take_ignored(qs_channel *channel, qs_event *first_out, uint64_t *count_out,
                                      qs_error *error)
    qs_status qs_channel_event_fd(qs_channel *channel, int *fd_out, qs_error *error)

cdef extern from "qstore/stream.h" nogil:
    ctypedef struct qs_stream_status:
        uint64_t first
        uint64_t next
        uint64_t durable
        uint64_t last_time_us
        uint64_t segments
        uint64_t disk_bytes
        uint64_t ram_bytes
        uint64_t flushed
        uint64_t cursors
        uint64_t id
    qs_status qs_store_stream_status(qs_store *store, qs_slice stream,
                                     qs_stream_status *status_out, qs_error *error)
    qs_status qs_store_stream_offset_at(qs_store *store, qs_slice stream, uint64_t time_us,
                                        uint64_t *offset_out, qs_error *error)

    ctypedef struct qs_stream_reader
    enum:
        QS_STREAM_FIRST
        QS_STREAM_LAST
        QS_STREAM_NEXT
        QS_STREAM_OFFSET
        QS_STREAM_TIME
        QS_STREAM_COLUMN_TIMESTAMP
        QS_STREAM_COLUMN_EXCHANGE
        QS_STREAM_COLUMN_ROUTING_KEY
        QS_STREAM_COLUMN_BODY
        QS_STREAM_COLUMN_PROPERTIES
    ctypedef struct qs_stream_start:
        uint32_t at
        uint64_t offset
        uint64_t time_us
    ctypedef struct qs_stream_read:
        qs_stream_start start
        uint32_t columns
        const qs_slice *routing_keys
        size_t routing_key_count
        c_bool clamps
    qs_status qs_stream_reader_open(qs_stream_reader **reader_out, qs_store *store,
                                    qs_slice stream, const qs_stream_read *read, qs_error *error)
    qs_status qs_stream_reader_next(qs_stream_reader *reader, uint64_t rows_max,
                                    uint64_t bytes_max, uint64_t timeout_ns,
                                    ArrowSchema *schema_out, ArrowArray *array_out,
                                    qs_error *error)
    ctypedef struct qs_trace:
        pass
    enum:
        QS_TRACE_DELIVER
        QS_TRACE_CONTENT
    ctypedef struct qs_traced_content:
        qs_slice properties
        qs_slice body
        qs_slice peer
        qs_slice user
        uint64_t connection
        uint64_t client
        uint64_t client_channel
        c_bool redelivered
    ctypedef struct qs_trace_event:
        uint32_t step
        uint64_t time_us
        uint64_t lsn
        uint64_t number
        uint64_t count
        uint64_t channel
        qs_slice exchange
        qs_slice routing_key
        qs_slice queues
        const qs_traced_content *content
    qs_status qs_trace_open(qs_trace **trace_out, qs_store *store, const qs_slice *exchange,
                            const qs_slice *queue, uint32_t flags, qs_error *error)
    qs_status qs_trace_next(qs_trace *trace, uint64_t timeout_ns, qs_trace_event *event_out,
                            qs_error *error)
    void qs_trace_end(qs_trace *trace)
    uint64_t qs_trace_dropped(qs_trace *trace)
    void qs_trace_close(qs_trace *trace)
    qs_status qs_stream_readers_wait(qs_stream_reader **readers, size_t count,
                                     uint64_t timeout_ns, qs_error *error)
    uint64_t qs_stream_reader_position(const qs_stream_reader *reader)
    qs_status qs_stream_reader_seek(qs_stream_reader *reader, const qs_stream_start *start,
                                    qs_error *error)
    void qs_stream_reader_close(qs_stream_reader *reader)

    ctypedef struct qs_cursor:
        uint64_t offset
    ctypedef struct qs_cursor_info:
        qs_slice group
        uint64_t offset
    qs_status qs_channel_commit_offset(qs_channel *channel, qs_slice stream, qs_slice group,
                                       uint64_t offset, qs_slice own, uint32_t flags,
                                       uint64_t *lsn_out, qs_error *error)
    qs_status qs_channel_forget_offset(qs_channel *channel, qs_slice stream, qs_slice group,
                                       uint32_t flags, uint64_t *lsn_out, qs_error *error)
    qs_status qs_store_cursor(qs_store *store, qs_slice stream, qs_slice group,
                              qs_cursor *cursor_out, qs_error *error)
    qs_status qs_store_visit_cursors(
        qs_store *store, qs_slice stream,
        void (*visit)(void *context, const qs_cursor_info *info) noexcept nogil, void *context,
        qs_error *error)

    # Staged files.
    ctypedef struct qs_staged_writer
    ctypedef struct qs_staged_reader
    ctypedef struct qs_staged_options:
        const char *body_column
        qs_slice exchange
        qs_slice routing_key
        qs_slice properties
        uint64_t body_bytes_max
        int64_t (*utc_of)(int64_t) noexcept nogil
    ctypedef struct qs_staged_info:
        uint64_t rows
        uint64_t bytes
        uint64_t body_bytes
        uint32_t routes
    ctypedef struct qs_adoption:
        c_bool committed
        uint64_t rows
        uint64_t unroutable
        uint32_t files
        uint32_t linked
        c_bool excluded
    qs_status qs_staged_writer_open(qs_staged_writer **writer_out, const char *folder,
                                    const char *name, const qs_staged_options *options, qs_env *env,
                                    qs_error *error)
    qs_status qs_staged_writer_put(qs_staged_writer *writer, const ArrowSchema *schema,
                                   const ArrowArray *array, qs_error *error)
    qs_status qs_staged_writer_close(qs_staged_writer *writer, c_bool keep,
                                     qs_staged_info *info_out, qs_error *error)
    qs_status qs_staged_reader_open(qs_staged_reader **reader_out, const char *folder,
                                    const char *name, qs_env *env, qs_error *error)
    void qs_staged_reader_info(const qs_staged_reader *reader, qs_staged_info *info_out)
    qs_status qs_staged_reader_next(qs_staged_reader *reader, ArrowSchema *schema_out,
                                    ArrowArray *array_out, qs_error *error)
    void qs_staged_reader_close(qs_staged_reader *reader)
    qs_status qs_store_adopt(qs_store *store, const char *const *paths, size_t path_count,
                             qs_slice key, uint32_t flags, qs_adoption *adoption_out,
                             qs_error *error)
    ctypedef struct qs_request
    ctypedef struct qs_ask:
        const char *const *paths
        size_t path_count
        qs_slice key
        const qs_slice *unless
        size_t unless_count
        const qs_slice *forget
        size_t forget_count
        uint32_t flags
        uint64_t timeout_ns
    qs_status qs_request_open(qs_request **request_out, const char *path, const qs_ask *ask,
                              qs_env *env, qs_error *error)
    qs_status qs_request_look(qs_request *request, c_bool *answered_out,
                              qs_adoption *adoption_out, qs_error *error)
    qs_status qs_request_take_back(qs_request *request, qs_error *error)
    void qs_request_close(qs_request *request)

cdef extern from "qstore/server.h" nogil:
    ctypedef struct qs_server
    ctypedef struct qs_server_options:
        uint32_t connections_max
        uint16_t channel_max
        uint16_t heartbeat_s
        uint32_t frame_max
        const char *product
        const char *mechanisms
        c_bool asks_permissions
        c_bool quorum_as_classic
        c_bool proxy_protocol
        void (*note)(void *context, uint32_t level, const char *text) noexcept nogil
        void *note_context
    ctypedef struct qs_proxy_header:
        size_t bytes
        c_bool has_peer
        c_bool is_loopback
        char peer[128]
    qs_status qs_proxy_header_read(const void *data, size_t bytes, qs_proxy_header *header_out,
                                   qs_error *error)
    ctypedef struct qs_question:
        uint64_t number
        uint32_t kind
        c_bool is_loopback
        qs_slice mechanism
        qs_slice user
        qs_slice password
        qs_slice peer
        qs_slice certified
        qs_slice vhost
        qs_slice name
    enum:
        QS_MAY_LOG_IN
    ctypedef struct qs_server_counts:
        uint64_t connections
        uint64_t connections_accepted
        uint64_t connections_turned_away
        uint64_t logins_refused
        uint64_t heartbeats_missed
        uint64_t handovers
        uint64_t bytes_received
        uint64_t bytes_sent
    void qs_server_options_default(qs_server_options *options_out)
    qs_status qs_server_open(qs_server **server_out, qs_store *store,
                             const qs_server_options *options, qs_error *error)
    qs_status qs_server_add_vhost(qs_server *server, const char *name, qs_store *store,
                                  qs_error *error)
    void qs_server_end_vhost(qs_server *server, const char *name, uint64_t timeout_ns)
    qs_status qs_server_listen(qs_server *server, const char *address, char *bound_out,
                               qs_error *error)
    qs_status qs_server_bind(const char *address, int *fd_out, char *bound_out, qs_error *error)
    qs_status qs_server_adopt(qs_server *server, int fd, const char *peer, const char *user,
                              c_bool is_loopback, qs_error *error)
    qs_status qs_server_next_question(qs_server *server, uint64_t timeout_ns,
                                      qs_question *question_out, qs_error *error)
    void qs_server_answer(qs_server *server, uint64_t number, uint32_t answer, qs_slice user)
    void qs_server_forget_permissions(qs_server *server)
    qs_status qs_server_end_connection(qs_server *server, uint64_t number, qs_error *error)
    void qs_server_get_counts(qs_server *server, qs_server_counts *counts_out)
    void qs_server_stop(qs_server *server, uint64_t timeout_ns)
    void qs_server_close(qs_server *server)
