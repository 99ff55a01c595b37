/* The parts of a verification: verify.c begins and ends it, verify_records.c reads checkpoint and
 * journal, verify_queues.c records settled messages, verify_messages.c checks the others. */
#ifndef QSI_VERIFY_INTERNAL_H
#define QSI_VERIFY_INTERNAL_H

#include "checkpoint_format.h"
#include "queue_records.h"
#include "store.h"

#define QSI_VERIFY_REPORT_BYTES (4u << 20) /* bytes read between two reports of the progress */

struct qsi_range { /* of sequences */
    uint64_t from, end;
};

struct qsi_known_queue {
    uint64_t id;
    bool gone;
    struct qsi_buf settled; /* struct qsi_range; sorted after the first reading */
};

struct qsi_known_former { /* an earlier file of a segment */
    struct qsi_segment_file file;
    uint32_t end;
};

struct qsi_verify {
    qs_env *env;
    const qs_verify_callbacks *callbacks;
    qs_verified *verified;
    qs_error first; /* the first damage */
    qs_dir *root, *journal_dir, *messages_dir, *index_dir, *checkpoint_dir, *streams_dir;
    qs_file *lock_file;
    struct qsi_manifest manifest;
    struct qsi_index *index;
    struct qsi_block_dir *blocks;
    struct qsi_message_store *messages;
    struct qsi_map queues; /* by id: struct qsi_known_queue */
    struct qsi_map names;  /* by name: struct qsi_known_queue */
    char checkpoint_path[QSI_CHECKPOINT_PATH_BYTES];
    uint8_t *checkpoint;
    size_t checkpoint_bytes;
    struct qsi_checkpoint_header header;
    struct qsi_buf formers;   /* struct qsi_known_former */
    struct qsi_buf written;   /* files that the journal names */
    uint64_t *settled, *live; /* bitmaps of a segment */
    uint64_t proven;          /* LSN up to which the journal was certainly durable */
    bool salvage;
    uint64_t bytes_done, bytes_before, bytes_reported, bytes_total;
    bool stopped;
};

/* ---- verify_report.c ---- */

/* Reports damage and returns QS_OK; returns every other error, which ends the verification. */
qs_status qsi_verify_found(struct qsi_verify *verify, qs_status status, const qs_error *detail,
                           qs_error *error) QS_MUST_CHECK;
void qsi_verify_report(struct qsi_verify *verify, uint64_t bytes_min);
void qsi_verify_progress(struct qsi_verify *verify, uint64_t bytes);

/* ---- verify_queues.c ---- */

/* Finds a queue, or one of its priorities; NULL: the queue was deleted. */
const struct qsi_known_queue *qsi_verify_find_subqueue(const struct qsi_verify *verify,
                                                       uint64_t id);
/* Whether all of them are settled. */
bool qsi_verify_are_settled(const struct qsi_known_queue *queue, uint64_t from, uint64_t end);
bool qsi_verify_is_settled(const struct qsi_known_queue *queue, uint64_t seq);
/* The first reading of a record: checks that it is well-formed, and records queues and settled
 * messages. */
qs_status qsi_verify_collect_record(struct qsi_verify *verify, const uint8_t *record,
                                    qs_error *error) QS_MUST_CHECK;
void qsi_verify_collect_end(struct qsi_verify *verify);

/* ---- verify_messages.c ---- */

/* The second reading of a record: checks bodies.  A malformed record was reported before.
 * is_certain: if false, a missing body may be the result of a crash, like the record that names
 * it. */
qs_status qsi_verify_record_bodies(struct qsi_verify *verify, const uint8_t *record,
                                   bool is_certain, qs_error *error) QS_MUST_CHECK;
/* Checks the segments of a queue. */
qs_status qsi_verify_queue_state(struct qsi_verify *verify, const uint8_t *record,
                                 qs_error *error) QS_MUST_CHECK;

/* ---- verify_streams.c ---- */

/* Checks the files of a stream. */
qs_status qsi_verify_stream_state(struct qsi_verify *verify, const uint8_t *record,
                                  qs_error *error) QS_MUST_CHECK;

/* Check files that the journal names: those of a record, and afterwards all of them. */
qs_status qsi_verify_written(struct qsi_verify *verify, const uint8_t *record, bool is_certain,
                             qs_error *error) QS_MUST_CHECK;
qs_status qsi_verify_written_files(struct qsi_verify *verify, qs_error *error) QS_MUST_CHECK;

/* ---- verify_records.c ---- */

/* The first reading. */
qs_status qsi_verify_load_checkpoint(struct qsi_verify *verify, qs_error *error) QS_MUST_CHECK;
qs_status qsi_verify_read_journal(struct qsi_verify *verify, qs_error *error) QS_MUST_CHECK;
/* The second. */
qs_status qsi_verify_checkpoint(struct qsi_verify *verify, qs_error *error) QS_MUST_CHECK;
qs_status qsi_verify_journal(struct qsi_verify *verify, qs_error *error) QS_MUST_CHECK;

#endif
