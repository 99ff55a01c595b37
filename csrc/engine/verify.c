/* Verifying: everything that a store needs of its files is read and checked, and nothing is written.
 *
 * Which messages are needed must be known first: bodies of others may be gone.  So checkpoint and journal are read for queues and for
 * what was settled, and then once more for the bodies that live messages refer to.  Kept meanwhile: two numbers per settle. */
#include "alloc.h"
#include "check.h"
#include "checkpoint_format.h"
#include "engine.h"
#include "env_call.h"
#include "error.h"
#include "properties.h"
#include "scan.h"

#include <stdlib.h>
#include <string.h>

#define READ_HANDLES 64
#define REPORT_BYTES (4u << 20)
#define MESSAGE_FILE_BYTES (64u << 10) /* none is made */
#define ENTRIES_MIN 16
#define ENTRIES_MAX 65536
#define WORD_BITS 64
#define KEY_FILTER_BYTES 512u /* it is read, and not needed */

struct range { /* of sequences */
    uint64_t from, end;
};

struct known_queue {
    uint64_t id;
    bool gone;
    struct qsi_buf settled; /* struct range; in order once all were seen */
};

struct verify {
    qs_env *env;
    const qs_verify_callbacks *callbacks;
    qs_verified *verified;
    qs_error first; /* damage */
    qs_dir *root, *journal_dir, *messages_dir, *index_dir, *checkpoint_dir;
    qs_file *lock_file;
    struct qsi_manifest manifest;
    struct qsi_index *index;
    struct qsi_message_store *messages;
    struct qsi_map queues; /* u64 -> known_queue */
    struct qsi_map names;  /* -> the known_queue that has it */
    char checkpoint_path[QSI_CHECKPOINT_PATH_BYTES];
    uint8_t *checkpoint;
    size_t checkpoint_bytes;
    struct qsi_checkpoint_header header;
    uint64_t *settled, *live; /* bitmaps of a segment */
    uint64_t proven;          /* durable for certain: the journal says so */
    bool salvage;
    uint64_t bytes_done, bytes_before, bytes_reported, bytes_total;
    bool stopped;
};

/* ---- telling ---- */

/* Damage is told and passed over; everything else ends the verification. */
static qs_status found(struct verify *verify, qs_status status, const qs_error *detail,
                       qs_error *error)
{
    if (status == QS_OK || status == QS_ECORRUPT) {
        if (status == QS_ECORRUPT) {
            if (verify->verified->damages == 0) {
                verify->first = *detail;
            }
            verify->verified->damages += 1;
            if (verify->callbacks->damage != NULL) {
                verify->callbacks->damage(verify->callbacks->context, detail);
            }
        }
        return verify->stopped ? qsi_fail(error, QS_EINTR, "stopped") : QS_OK;
    }
    if (error != NULL) {
        *error = *detail;
    }
    return status;
}

static void report(struct verify *verify, uint64_t bytes_min)
{
    uint64_t done =
        verify->bytes_done < verify->bytes_total ? verify->bytes_done : verify->bytes_total;

    if (verify->callbacks->progress == NULL || verify->stopped ||
        done < verify->bytes_reported + bytes_min) {
        return;
    }
    verify->bytes_reported = done;
    verify->stopped =
        !verify->callbacks->progress(verify->callbacks->context, done, verify->bytes_total);
}

static void progress(struct verify *verify, uint64_t bytes)
{
    verify->bytes_done += bytes;
    report(verify, REPORT_BYTES);
}

/* ---- how much there is ---- */

struct measure {
    struct verify *verify;
    qs_dir *dir;
    uint64_t bytes;
};

static bool measure_file(void *context, const char *name)
{
    struct measure *measure = context;
    qs_env *env = measure->verify->env;
    qs_file *file = NULL;
    uint64_t bytes = 0;

    if (qsi_env_open(env, measure->dir, name, QS_OPEN_READ, &file, NULL) == QS_OK) {
        if (qsi_env_size(env, file, &bytes, NULL) == QS_OK) {
            measure->bytes += bytes;
        }
        env->close(env, file);
    }
    return true;
}

/* Only for the progress: what cannot be measured counts for nothing.  The journal is read twice. */
static qs_status measure_all(struct verify *verify, qs_error *error)
{
    qs_dir *dirs[] = {verify->journal_dir, verify->journal_dir, verify->index_dir,
                      verify->messages_dir, verify->checkpoint_dir};

    for (size_t i = 0; verify->callbacks->progress != NULL && i < sizeof dirs / sizeof dirs[0];
         i++) {
        struct measure measure = {verify, dirs[i], 0};
        QS_TRY(qsi_env_dir_list(verify->env, dirs[i], measure_file, &measure, error));
        verify->bytes_total += measure.bytes;
    }
    return QS_OK;
}

/* ---- queues, and what was settled in them ---- */

static struct known_queue *find_queue(const struct verify *verify, uint64_t id)
{
    struct known_queue *queue = qsi_map_get_number(&verify->queues, id);

    return queue != NULL && !queue->gone ? queue : NULL;
}

/* A queue, or one of its levels; NULL: the queue is gone. */
static const struct known_queue *find_level(const struct verify *verify, uint64_t id)
{
    static const struct known_queue untouched; /* nothing was settled in it */
    const struct known_queue *level;

    if (find_queue(verify, qsi_queue_in(id)) == NULL) {
        return NULL;
    }
    level = find_queue(verify, id);
    return level != NULL ? level : &untouched;
}

static qs_status add_queue(struct verify *verify, uint64_t id, struct known_queue **queue_out,
                           qs_error *error)
{
    *queue_out = qsi_zalloc(sizeof **queue_out);
    if (*queue_out == NULL || qsi_map_put_number(&verify->queues, id, *queue_out) != QS_OK) {
        qsi_free(*queue_out);
        return qsi_fail(error, QS_ENOMEM, "queue");
    }
    (*queue_out)->id = id;
    return QS_OK;
}

static qs_status declare(struct verify *verify, const struct qsi_topology *record, qs_error *error)
{
    struct qsi_slice name = record->strings[0];
    struct known_queue *before = qsi_map_get(&verify->names, name.data, name.bytes);
    struct known_queue *queue;

    if (qsi_map_get_number(&verify->queues, record->number) != NULL) {
        return QS_OK; /* the second reading of a damaged journal */
    }
    QS_TRY(add_queue(verify, record->number, &queue, error));
    if (before != NULL) { /* an auto-delete queue that ended without a record */
        before->gone = true;
    }
    if (qsi_map_put(&verify->names, name.data, name.bytes, queue) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "queue");
    }
    return QS_OK;
}

static qs_status note_settle(struct verify *verify, const uint8_t *record, qs_error *error)
{
    struct qsi_settle settle;
    struct known_queue *queue;
    struct range range;

    QS_TRY(qsi_settle_decode(&settle, record, error));
    queue = find_queue(verify, settle.queue_id);
    if (settle.kind != QSI_SETTLE_ACK || find_level(verify, settle.queue_id) == NULL) {
        return QS_OK;
    }
    if (queue == NULL) { /* the first of its level */
        QS_TRY(add_queue(verify, settle.queue_id, &queue, error));
    }
    range = (struct range){settle.first_seq, settle.first_seq + settle.count};
    return qsi_buf_append(&queue->settled, &range, sizeof range) == QS_OK
               ? QS_OK
               : qsi_fail(error, QS_ENOMEM, "settled messages");
}

static int compare_ranges(const void *left, const void *right)
{
    const struct range *a = left, *b = right;

    return a->from < b->from ? -1 : a->from > b->from;
}

/* Ranges in order that do not touch. */
static void merge_settled(struct known_queue *queue)
{
    struct range *ranges = (struct range *)(void *)queue->settled.data;
    size_t count = queue->settled.bytes / sizeof *ranges;
    size_t kept = 0;

    if (count == 0) {
        return;
    }
    qsort(ranges, count, sizeof *ranges, compare_ranges);
    for (size_t i = 1; i < count; i++) {
        if (ranges[i].from > ranges[kept].end) {
            ranges[++kept] = ranges[i];
        } else if (ranges[i].end > ranges[kept].end) {
            ranges[kept].end = ranges[i].end;
        }
    }
    queue->settled.bytes = (kept + 1) * sizeof *ranges;
}

/* Are these all settled? */
static bool are_settled(const struct known_queue *queue, uint64_t from, uint64_t end)
{
    const struct range *ranges = (const struct range *)(const void *)queue->settled.data;
    size_t low = 0, high = queue->settled.bytes / sizeof *ranges;

    while (low < high) { /* the first that ends behind from */
        size_t middle = low + (high - low) / 2;
        if (ranges[middle].end > from) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low < queue->settled.bytes / sizeof *ranges && ranges[low].from <= from &&
           ranges[low].end >= end;
}

static bool is_settled(const struct known_queue *queue, uint64_t seq)
{
    return are_settled(queue, seq, seq + 1);
}

static void end_notes(struct verify *verify)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&verify->queues);

    while (qsi_map_next(&verify->queues, &cursor)) {
        struct known_queue *queue = cursor.value;
        merge_settled(queue);
        verify->verified->queues += queue->gone || qsi_level_in(queue->id) != 0 ? 0 : 1;
    }
}

/* The first reading of a record: is it well formed, and what becomes of queues and messages? */
static qs_status note_record(struct verify *verify, const uint8_t *record, qs_error *error)
{
    struct qsi_topology topology;
    struct known_queue *queue;

    switch (qsi_record_type(record)) {
    case QSI_RECORD_MESSAGES:
        return qsi_messages_check(record, error);
    case QSI_RECORD_SETTLE:
        return note_settle(verify, record, error);
    case QSI_RECORD_QUEUE_DECLARE:
    case QSI_RECORD_PRIORITY_QUEUE_DECLARE:
        QS_TRY(qsi_topology_decode(&topology, record, error));
        return declare(verify, &topology, error);
    case QSI_RECORD_QUEUE_DELETE:
        QS_TRY(qsi_topology_decode(&topology, record, error));
        queue = find_queue(verify, topology.number);
        if (queue != NULL) {
            queue->gone = true;
        }
        return QS_OK;
    case QSI_RECORD_EXCHANGE_DECLARE:
    case QSI_RECORD_EXCHANGE_DELETE:
    case QSI_RECORD_BIND:
    case QSI_RECORD_UNBIND:
    case QSI_RECORD_EXCHANGE_BIND:
    case QSI_RECORD_EXCHANGE_UNBIND:
    case QSI_RECORD_TRANSACTION:
    case QSI_RECORD_TRANSACTION_FORGET:
    case QSI_RECORD_QUEUE_MODE:
        return qsi_topology_decode(&topology, record, error);
    default:
        return qsi_fail(error, QS_EVERSION, "record type %u: written by a newer version",
                        qsi_record_type(record));
    }
}

/* ---- bodies in the message store ---- */

/* is_certain: else a body that is not there is what a crash left, like the record that names it. */
static qs_status check_body(struct verify *verify, const struct qsi_body_ref *ref, bool is_certain,
                            qs_error *error)
{
    qs_error detail = {0};
    qs_status status = qsi_message_store_check(verify->messages, ref, &detail);

    verify->verified->bodies += 1;
    verify->verified->body_bytes += ref->body_bytes;
    progress(verify, (uint64_t)ref->envelope_bytes + ref->body_bytes);
    return found(verify, status == QS_ECORRUPT && !is_certain ? QS_OK : status, &detail, error);
}

/* Marks the rows that some durable queue still has. */
static qs_status find_live_rows(const struct verify *verify, const struct qsi_messages *view,
                                uint8_t *live, qs_error *error)
{
    for (uint32_t i = 0; i < view->destination_count; i++) {
        const struct known_queue *queue =
            find_level(verify, qsi_messages_destination_queue(view, i));
        uint64_t seq = qsi_messages_destination_seq(view, i);
        uint32_t count = qsi_messages_destination_rows(view, i);
        uint32_t *rows = NULL;
        if (queue == NULL) {
            continue;
        }
        QS_TRY(qsi_destination_rows(view, i, &rows, error));
        for (uint32_t k = 0; k < count; k++) {
            if (!is_settled(queue, seq + k)) {
                live[rows != NULL ? rows[k] : k] = 1;
            }
        }
        qsi_free(rows);
    }
    return QS_OK;
}

static bool ends_with_process(const struct qsi_messages *view, uint32_t row)
{
    struct qsi_slice properties;

    if ((view->flags & QSI_MESSAGES_HAS_TRANSIENT) == 0) {
        return false;
    }
    properties = qsi_messages_properties(view, row);
    return qsi_properties_delivery_mode(properties.data, properties.bytes) == 1;
}

static qs_status check_row_bodies(struct verify *verify, const struct qsi_messages *view,
                                  const uint8_t *live, bool is_certain, qs_error *error)
{
    for (uint32_t row = 0; row < view->row_count; row++) {
        struct qsi_slice cell = qsi_messages_body(view, row);
        struct qsi_body_ref ref;
        if (live[row] == 0 || !qsi_messages_is_stored(view, row) || ends_with_process(view, row)) {
            continue;
        }
        if (cell.bytes != QSI_BODY_REF_BYTES) {
            return qsi_fail(error, QS_ECORRUPT, "a body reference of %u bytes", cell.bytes);
        }
        qsi_body_ref_decode(&ref, cell.data);
        QS_TRY(check_body(verify, &ref, is_certain, error));
    }
    return QS_OK;
}

/* The second reading of a record.  One that is not well formed was told of already. */
static qs_status check_record_bodies(struct verify *verify, const uint8_t *record, bool is_certain,
                                     qs_error *error)
{
    struct qsi_messages view;
    uint8_t *live;
    qs_status status;

    if (qsi_record_type(record) != QSI_RECORD_MESSAGES ||
        qsi_messages_check(record, NULL) != QS_OK) {
        return QS_OK;
    }
    qsi_messages_view(&view, record);
    if (view.stored == NULL) {
        return QS_OK;
    }
    live = qsi_zalloc(view.row_count);
    if (live == NULL) {
        return qsi_fail(error, QS_ENOMEM, "%u messages", view.row_count);
    }
    status = find_live_rows(verify, &view, live, error);
    if (status == QS_OK) {
        status = check_row_bodies(verify, &view, live, is_certain, error);
    }
    qsi_free(live);
    return status;
}

/* ---- segments ---- */

struct ref_visit {
    struct verify *verify;
    qs_status status;
    qs_error *error;
};

static void visit_ref(void *context, uint32_t slot, const struct qsi_body_ref *ref)
{
    struct ref_visit *visit = context;

    (void)slot;
    if (visit->status == QS_OK) {
        visit->status = check_body(visit->verify, ref, true, visit->error);
    }
}

/* One slot after the other, where a word of them has something wrong. */
static qs_status check_slots(struct verify *verify, const struct qsi_segment_file *file,
                             uint64_t *wanted, uint32_t word, qs_error *error)
{
    for (uint32_t bit = 0; bit < WORD_BITS; bit++) {
        qs_error detail = {0};
        if ((verify->live[word] >> bit & 1) == 0) {
            continue;
        }
        wanted[word] = UINT64_C(1) << bit;
        QS_TRY(
            found(verify, qsi_segment_check(verify->index, file, wanted, &detail), &detail, error));
    }
    wanted[word] = 0;
    return QS_OK;
}

/* Slots and small bodies.  The file as a whole is right, so each slot that is not is told of. */
static qs_status check_words(struct verify *verify, const struct qsi_segment_file *file,
                             qs_error *error)
{
    uint32_t words = qsi_bitmap_words(verify->manifest.segment_entries);
    uint64_t *wanted = qsi_zalloc(words * sizeof *wanted);
    qs_error detail = {0};
    qs_status status;

    if (wanted == NULL) {
        return qsi_fail(error, QS_ENOMEM, "checking a segment");
    }
    status = qsi_segment_check(verify->index, file, wanted, &detail);
    if (status != QS_OK) { /* its header, or its state */
        qsi_free(wanted);
        return found(verify, status, &detail, error);
    }
    for (uint32_t word = 0; status == QS_OK && word < words; word++) {
        wanted[word] = verify->live[word];
        if (wanted[word] != 0 && qsi_segment_check(verify->index, file, wanted, &detail) != QS_OK) {
            status = check_slots(verify, file, wanted, word, error);
        }
        wanted[word] = 0;
    }
    qsi_free(wanted);
    return status;
}

/* Which slots of a segment are live: what its state says, and then what the journal says. */
static qs_status find_live_slots(struct verify *verify, const struct known_queue *queue,
                                 const struct qsi_segment_entry *entry, uint64_t base_seq,
                                 qs_error *error)
{
    uint32_t entries = verify->manifest.segment_entries;
    uint32_t words = qsi_bitmap_words(entries);
    uint64_t first_seq = entry->file.number * entries;
    /* Seen is of no interest, and its bitmap the same memory. */
    struct qsi_segment_state state = {.settled = verify->settled, .seen = verify->live};
    uint64_t count = 0;
    uint32_t columns;

    QS_TRY(qsi_segment_read_state(verify->index, &entry->file, &state, &columns, error));
    memset(verify->live, 0, words * sizeof *verify->live);
    for (uint32_t slot = 0; slot < entries && first_seq + slot < base_seq; slot++) {
        if (!qsi_bitmap_has(verify->settled, slot)) {
            count += 1;
            if (!is_settled(queue, first_seq + slot)) {
                verify->live[slot / WORD_BITS] |= UINT64_C(1) << slot % WORD_BITS;
            }
        }
    }
    if (count != entry->live_count) {
        char path[QSI_SEGMENT_PATH_BYTES];
        qsi_segment_path(path, &entry->file);
        return qsi_fail_corrupt(error, path, 0,
                                "its state has %llu messages; the checkpoint says %u",
                                (unsigned long long)count, entry->live_count);
    }
    return QS_OK;
}

static qs_status check_segment(struct verify *verify, const struct known_queue *queue,
                               const struct qsi_segment_entry *entry, uint64_t base_seq,
                               qs_error *error)
{
    uint32_t entries = verify->manifest.segment_entries;
    uint64_t first_seq = entry->file.number * entries;
    uint64_t end = first_seq + entries < base_seq ? first_seq + entries : base_seq;
    struct ref_visit visit = {verify, QS_OK, error};
    qs_error detail = {0};
    qs_status status;

    verify->verified->segments += 1;
    if (are_settled(queue, first_seq, end)) {
        return QS_OK; /* nobody reads it; whether a replay can do without it, opening tells */
    }
    status = find_live_slots(verify, queue, entry, base_seq, &detail);
    if (status != QS_OK) {
        return found(verify, status, &detail, error);
    }
    status = qsi_segment_check(verify->index, &entry->file, verify->live, &detail);
    if (status == QS_ECORRUPT) {
        status = check_words(verify, &entry->file, error);
    } else {
        status = found(verify, status, &detail, error);
    }
    QS_TRY(status);
    progress(verify, qsi_segment_disk_bytes(verify->index, &entry->file));
    if (entry->has_stored) {
        status = qsi_segment_read_refs(verify->index, &entry->file, verify->live, visit_ref, &visit,
                                       &detail);
        QS_TRY(visit.status);
        /* Damaged slots were told of. */
        return found(verify, status == QS_ECORRUPT ? QS_OK : status, &detail, error);
    }
    return QS_OK;
}

static qs_status check_queue_state(struct verify *verify, const uint8_t *record, qs_error *error)
{
    uint32_t entries = verify->manifest.segment_entries;
    const struct known_queue *queue;
    struct qsi_queue_state state;
    qs_error detail = {0};
    qs_status status = qsi_queue_state_decode(&state, record, &detail);

    if (status != QS_OK) {
        return found(verify, status, &detail, error);
    }
    queue = find_level(verify, state.queue_id);
    for (uint32_t i = 0; queue != NULL && i < state.segment_count; i++) {
        struct qsi_segment_entry entry;
        qsi_segment_entry_decode(&entry, record, i);
        if (entry.file.number > UINT64_MAX / 2 / entries || entry.file.heap_end == 0 ||
            entry.file.state_area > 2 || entry.live_count > entries) {
            qsi_fail_corrupt(&detail, verify->checkpoint_path,
                             (uint64_t)(record - verify->checkpoint), "an impossible segment");
            return found(verify, QS_ECORRUPT, &detail, error);
        }
        QS_TRY(check_segment(verify, queue, &entry, state.base_seq, error));
    }
    return QS_OK;
}

/* ---- the checkpoint ---- */

static qs_status check_key_file(struct verify *verify, const uint8_t *record, qs_error *error)
{
    struct qsi_key_dir dir = {
        .env = verify->env, .dir = verify->checkpoint_dir, .filter_bytes_max = KEY_FILTER_BYTES};
    struct qsi_key_file_entry entry;
    qs_error detail = {0};
    qs_status status = qsi_key_file_decode(&entry, record, &detail);

    memcpy(dir.uuid, verify->manifest.uuid, sizeof dir.uuid);
    if (status == QS_OK) {
        status = qsi_key_file_check(&dir, entry.number, entry.header_crc, &detail);
        progress(verify, entry.bytes);
    }
    return found(verify, status, &detail, error);
}

static qs_status note_checkpoint_record(struct verify *verify, const uint8_t *record,
                                        qs_error *error)
{
    struct qsi_key_file_entry keys;
    struct qsi_queue_state state;
    uint64_t next_queue_id;

    switch (qsi_record_type(record)) {
    case QSI_RECORD_QUEUE_STATE:
        return qsi_queue_state_decode(&state, record, error);
    case QSI_RECORD_STORE_STATE:
        return qsi_store_state_decode(&next_queue_id, record, error);
    case QSI_RECORD_KEY_FILE:
        return qsi_key_file_decode(&keys, record, error);
    case QSI_RECORD_MESSAGE_FILE:
        return qsi_message_store_restore(verify->messages, record, error);
    default:
        return note_record(verify, record, error);
    }
}

/* Its records, as far as they can be told apart. */
static qs_status note_checkpoint(struct verify *verify, qs_error *error)
{
    uint64_t at = QSI_CHECKPOINT_HEADER_BYTES;
    uint32_t count = 0;
    qs_error detail = {0};

    for (; at < verify->checkpoint_bytes; count++) {
        const uint8_t *record = verify->checkpoint + at;
        qs_status status;
        if (!qsi_record_fits(record, verify->checkpoint_bytes - at)) {
            qsi_fail_corrupt(&detail, verify->checkpoint_path, at, "a record leaves the file");
            return found(verify, QS_ECORRUPT, &detail, error);
        }
        status = note_checkpoint_record(verify, record, &detail);
        if (status == QS_ECORRUPT) {
            qs_error inner = detail;
            qsi_fail_corrupt(&detail, verify->checkpoint_path, at, "%s", inner.text);
        }
        QS_TRY(found(verify, status, &detail, error));
        verify->verified->checkpoint_records += 1;
        at += qsi_record_length(record);
    }
    if (count != verify->header.record_count) {
        qsi_fail_corrupt(&detail, verify->checkpoint_path, 48, "%u records; the header says %u",
                         count, verify->header.record_count);
        return found(verify, QS_ECORRUPT, &detail, error);
    }
    return QS_OK;
}

static qs_status load_checkpoint(struct verify *verify, qs_error *error)
{
    qs_error detail = {0};
    qs_status status;

    if (verify->manifest.checkpoint_number == 0) {
        return QS_OK;
    }
    qsi_checkpoint_path(verify->checkpoint_path, verify->manifest.checkpoint_number);
    status =
        qsi_checkpoint_load(verify->env, verify->checkpoint_dir, &verify->manifest, &verify->header,
                            &verify->checkpoint, &verify->checkpoint_bytes, &detail);
    if (status != QS_OK) {
        return found(verify, status, &detail, error);
    }
    progress(verify, verify->checkpoint_bytes);
    return note_checkpoint(verify, error);
}

/* Segments, files of transaction keys, and bodies of the messages that it carries. */
static qs_status check_checkpoint(struct verify *verify, qs_error *error)
{
    uint64_t at = QSI_CHECKPOINT_HEADER_BYTES;

    while (at < verify->checkpoint_bytes &&
           qsi_record_fits(verify->checkpoint + at, verify->checkpoint_bytes - at)) {
        const uint8_t *record = verify->checkpoint + at;
        if (qsi_record_type(record) == QSI_RECORD_QUEUE_STATE) {
            QS_TRY(check_queue_state(verify, record, error));
        } else if (qsi_record_type(record) == QSI_RECORD_KEY_FILE) {
            QS_TRY(check_key_file(verify, record, error));
        } else {
            qs_error detail = {0};
            qs_status status = check_record_bodies(verify, record, true, &detail);
            QS_TRY(found(verify, status, &detail, error));
        }
        at += qsi_record_length(record);
    }
    return QS_OK;
}

/* ---- the journal ---- */

static void blame_block(const struct qsi_scan_block *block, qs_status status, qs_error *detail)
{
    char path[QSI_JOURNAL_PATH_BYTES];
    qs_error inner = *detail;

    if (status == QS_ECORRUPT && detail->path[0] == 0) {
        qsi_journal_path(path, block->block.file_number);
        qsi_fail_corrupt(detail, path, block->offset, "%s", inner.text);
    }
}

/* Both readings of the journal: the records of a block that the checkpoint does not have. */
static qs_status walk_block(struct verify *verify, const struct qsi_scan_block *block,
                            bool of_bodies, bool is_certain, qs_error *error)
{
    uint64_t at = block->from;
    uint64_t end = block->from + block->block.payload_bytes;
    uint64_t needed_from = qsi_manifest_needed_from(&verify->manifest);

    for (; at < end; at += qsi_record_length(block->chunk->data + at)) {
        const uint8_t *record = block->chunk->data + at;
        qs_error detail = {0};
        qs_status status;
        if (block->block.lsn + (at - block->from) < needed_from) {
            continue;
        }
        status = of_bodies ? check_record_bodies(verify, record, is_certain, &detail)
                           : note_record(verify, record, &detail);
        blame_block(block, status, &detail);
        QS_TRY(found(verify, status, &detail, error));
    }
    return QS_OK;
}

static qs_status note_block(void *context, const struct qsi_scan_block *block, qs_error *error)
{
    struct verify *verify = context;

    verify->proven =
        block->block.durable_upto > verify->proven ? block->block.durable_upto : verify->proven;
    verify->verified->journal_records += block->block.record_count;
    verify->verified->journal_bytes += block->block.payload_bytes;
    return walk_block(verify, block, false, true, error);
}

static qs_status check_block(void *context, const struct qsi_scan_block *block, qs_error *error)
{
    struct verify *verify = context;
    bool is_certain = block->session + 1 < verify->manifest.session_count ||
                      qsi_manifest_is_ended(&verify->manifest) || block->block.lsn < verify->proven;

    return walk_block(verify, block, true, is_certain, error);
}

static void journal_progress(void *context, uint64_t bytes_done, uint64_t bytes_total)
{
    struct verify *verify = context;

    (void)bytes_total;
    verify->bytes_done = verify->bytes_before + bytes_done;
    report(verify, REPORT_BYTES);
}

static qs_status scan(struct verify *verify, qsi_scan_visitor *visit, qs_error *error)
{
    struct qsi_scan_options options = {
        .salvage = verify->salvage,
        .progress = visit == note_block ? journal_progress : NULL,
        .progress_context = verify,
    };
    struct qsi_scan_result result;

    verify->bytes_before = verify->bytes_done;
    QS_TRY(qsi_journal_scan(verify->env, verify->journal_dir, &verify->manifest, &options, visit,
                            verify, &result, error));
    return verify->salvage ? QS_OK
                           : qsi_check_checkpoints(verify->env, verify->checkpoint_dir,
                                                   &verify->manifest, result.end_lsn, error);
}

/* Damage of the journal is told once; what is whole behind it is read all the same. */
static qs_status note_journal(struct verify *verify, qs_error *error)
{
    qs_error detail = {0};
    qs_status status = scan(verify, note_block, &detail);

    if (status != QS_ECORRUPT) {
        return found(verify, status, &detail, error);
    }
    QS_TRY(found(verify, status, &detail, error));
    verify->salvage = true;
    verify->bytes_done = verify->bytes_before;
    verify->verified->journal_records = verify->verified->journal_bytes = 0;
    status = scan(verify, note_block, &detail);
    return found(verify, status == QS_ECORRUPT ? QS_OK : status, &detail, error);
}

/* ---- all of it ---- */

static qs_status open_root(struct verify *verify, const char *path, qs_error *error)
{
    uint64_t pid = 0;
    bool created;
    qs_status status =
        qsi_env_dir_open_root(verify->env, path, false, &verify->root, &created, error);

    if (status == QS_ENOENT) {
        return qsi_fail(error, QS_ESTORE_NOT_FOUND, "no such directory");
    }
    if (status == QS_OK) { /* leave no LOCK where there is no store */
        status = qsi_manifest_load(&verify->manifest, verify->env, verify->root, error);
        qsi_manifest_fini(&verify->manifest);
    }
    if (status == QS_ENOENT) {
        return qsi_fail_no_manifest(verify->env, verify->root, error);
    }
    QS_TRY(status);
    status =
        qsi_env_lock_shared(verify->env, verify->root, "LOCK", &verify->lock_file, &pid, error);
    return status == QS_ESTORE_LOCKED
               ? qsi_fail(error, status, "%s is open in process %llu: close it first", path,
                          (unsigned long long)pid)
               : status;
}

static qs_status load_manifest(struct verify *verify, qs_error *error)
{
    uint32_t entries;

    QS_TRY(qsi_manifest_load(&verify->manifest, verify->env, verify->root, error));
    if (verify->manifest.session_count == 0) {
        return qsi_fail_not_created(error);
    }
    entries = verify->manifest.segment_entries;
    if (entries < ENTRIES_MIN || entries > ENTRIES_MAX || (entries & (entries - 1)) != 0) {
        return qsi_fail_corrupt(error, "MANIFEST", 48, "segments of %u entries", entries);
    }
    return QS_OK;
}

static qs_status open_all(struct verify *verify, const char *path, qs_error *error)
{
    struct qsi_message_store_options options = {MESSAGE_FILE_BYTES, READ_HANDLES};
    uint32_t words;

    QS_TRY(open_root(verify, path, error));
    QS_TRY(load_manifest(verify, error));
    QS_TRY(
        qsi_require_directory(verify->env, verify->root, "journal", &verify->journal_dir, error));
    QS_TRY(
        qsi_require_directory(verify->env, verify->root, "messages", &verify->messages_dir, error));
    QS_TRY(qsi_require_directory(verify->env, verify->root, "index", &verify->index_dir, error));
    QS_TRY(qsi_require_directory(verify->env, verify->root, "checkpoint", &verify->checkpoint_dir,
                                 error));
    words = qsi_bitmap_words(verify->manifest.segment_entries);
    verify->settled = qsi_zalloc(words * sizeof *verify->settled);
    verify->live = qsi_zalloc(words * sizeof *verify->live);
    if (verify->settled == NULL || verify->live == NULL) {
        return qsi_fail(error, QS_ENOMEM, "bitmaps of a segment");
    }
    QS_TRY(qsi_message_store_open(&verify->messages, verify->env, verify->messages_dir,
                                  verify->manifest.uuid, &options, error));
    return qsi_index_open(&verify->index, verify->env, verify->index_dir, verify->manifest.uuid,
                          verify->manifest.segment_entries, error);
}

static qs_status run(struct verify *verify, const char *path, qs_error *error)
{
    qs_error detail = {0};
    qs_status status = open_all(verify, path, &detail);

    if (status != QS_OK) { /* without these nothing else can be judged */
        return found(verify, status, &detail, error);
    }
    QS_TRY(measure_all(verify, error));
    QS_TRY(load_checkpoint(verify, error));
    QS_TRY(note_journal(verify, error));
    end_notes(verify);
    /* Without the checkpoint nobody knows which generation of a message file counts. */
    if (verify->manifest.checkpoint_number != 0 && verify->checkpoint == NULL) {
        return QS_OK;
    }
    QS_TRY(check_checkpoint(verify, error));
    status = scan(verify, check_block, &detail);
    /* Damage of the journal itself was told. */
    QS_TRY(found(verify, status == QS_ECORRUPT ? QS_OK : status, &detail, error));
    if (verify->verified->damages == 0) { /* is there something that only an open meets? */
        status = qsi_store_judge(path, verify->env, &detail);
        QS_TRY(found(verify, status, &detail, error));
    }
    verify->bytes_done = verify->bytes_total;
    report(verify, 0);
    return found(verify, QS_OK, &detail, error);
}

static void end(struct verify *verify)
{
    qs_env *env = verify->env;
    struct qsi_map_cursor cursor = qsi_map_begin(&verify->queues);

    while (qsi_map_next(&verify->queues, &cursor)) {
        struct known_queue *queue = cursor.value;
        qsi_buf_fini(&queue->settled);
        qsi_free(queue);
    }
    qsi_map_fini(&verify->queues);
    qsi_map_fini(&verify->names);
    qsi_index_close(verify->index);
    qsi_message_store_close(verify->messages);
    qsi_free(verify->checkpoint);
    qsi_free(verify->settled);
    qsi_free(verify->live);
    qsi_manifest_fini(&verify->manifest);
    env->dir_close(env, verify->checkpoint_dir);
    env->dir_close(env, verify->index_dir);
    env->dir_close(env, verify->messages_dir);
    env->dir_close(env, verify->journal_dir);
    env->close(env, verify->lock_file);
    env->dir_close(env, verify->root);
}

qs_status qs_store_verify(const char *path, qs_env *env, const qs_verify_callbacks *callbacks,
                          qs_verified *verified_out, qs_error *error)
{
    static const qs_verify_callbacks nobody;
    struct verify verify = {
        .env = env != NULL ? env : qs_env_posix(),
        .callbacks = callbacks != NULL ? callbacks : &nobody,
        .verified = verified_out,
    };
    qs_error detail = {0};
    qs_status status;

    memset(verified_out, 0, sizeof *verified_out);
    status = run(&verify, path, &detail);
    if (status == QS_OK && verified_out->damages > 0) {
        detail = verify.first;
        status = QS_ECORRUPT;
    }
    end(&verify);
    if (status != QS_OK) {
        qsi_error_prefix(&detail, "verify store '%s'", path);
        if (error != NULL) {
            *error = detail;
        }
    }
    return status;
}
