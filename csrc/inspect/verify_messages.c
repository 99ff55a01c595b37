/* Verifying: live messages, in message files and in segments. */
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "properties.h"
#include "replay.h"
#include "stream_record.h"
#include "verify_internal.h"

#include <string.h>

#define WORD_BITS 64

/* ---- bodies in the message store ---- */

/* is_certain: if false, a missing body may be the result of a crash, like the record that names
 * it. */
static qs_status check_body(struct qsi_verify *verify, const struct qsi_body_ref *ref,
                            bool is_certain, qs_error *error)
{
    qs_error detail = {0};
    qs_status status = qsi_message_store_check(verify->messages, ref, &detail);

    verify->verified->bodies += 1;
    verify->verified->body_bytes += ref->body_bytes;
    qsi_verify_progress(verify, (uint64_t)ref->envelope_bytes + ref->body_bytes);
    return qsi_verify_found(verify, status == QS_ECORRUPT && !is_certain ? QS_OK : status, &detail,
                            error);
}

/* Marks the rows that some durable queue still has. */
static qs_status find_live_rows(const struct qsi_verify *verify, const struct qsi_messages *view,
                                uint8_t *live, qs_error *error)
{
    for (uint32_t i = 0; i < view->destination_count; i++) {
        const struct qsi_known_queue *queue =
            qsi_verify_find_subqueue(verify, qsi_messages_destination_queue(view, i));
        uint64_t seq = qsi_messages_destination_seq(view, i);
        uint32_t count = qsi_messages_destination_rows(view, i);
        uint32_t *rows = NULL;
        if (queue == NULL) {
            continue;
        }
        QS_TRY(qsi_destination_rows(view, i, &rows, error));
        for (uint32_t k = 0; k < count; k++) {
            if (!qsi_verify_is_settled(queue, seq + k)) {
                QS_DCHECK((rows != NULL ? rows[k] : k) < view->row_count);
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

static qs_status check_row_bodies(struct qsi_verify *verify, const struct qsi_messages *view,
                                  const uint8_t *live, bool is_certain, qs_error *error)
{
    for (uint32_t row = 0; row < view->row_count; row++) {
        struct qsi_body_ref ref;
        if (live[row] == 0 || !qsi_messages_is_stored(view, row) || ends_with_process(view, row)) {
            continue;
        }
        ref = qsi_messages_body_ref(view, row);
        QS_TRY(check_body(verify, &ref, is_certain, error));
    }
    return QS_OK;
}

qs_status qsi_verify_record_bodies(struct qsi_verify *verify, const uint8_t *record,
                                   bool is_certain, qs_error *error)
{
    struct qsi_messages view;
    uint8_t *live;
    qs_status status;

    if (qsi_is_stream_written(record)) {
        return qsi_verify_written(verify, record, is_certain, error);
    }
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
    struct qsi_verify *verify;
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

/* Checks the slots of a word one by one, since some of them are damaged. */
static qs_status check_slots(struct qsi_verify *verify, const struct qsi_segment_file *file,
                             uint64_t *wanted, uint32_t word, qs_error *error)
{
    QS_DCHECK(wanted[word] == verify->live[word]);
    for (uint32_t bit = 0; bit < WORD_BITS; bit++) {
        qs_error detail = {0};
        if ((verify->live[word] >> bit & 1) == 0) {
            continue;
        }
        wanted[word] = UINT64_C(1) << bit;
        QS_TRY(qsi_verify_found(verify, qsi_segment_check(verify->index, file, wanted, &detail),
                                &detail, error));
    }
    wanted[word] = 0;
    return QS_OK;
}

/* Checks slots and small bodies.  The file as a whole is valid, so each damaged slot is
 * reported. */
static qs_status check_words(struct qsi_verify *verify, const struct qsi_segment_file *file,
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
    if (status != QS_OK) { /* header or state are damaged */
        qsi_free(wanted);
        return qsi_verify_found(verify, status, &detail, error);
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

/* Finds the live slots of a segment: from its state, and then from the journal. */
static qs_status find_live_slots(struct qsi_verify *verify, const struct qsi_known_queue *queue,
                                 const struct qsi_segment_entry *entry, uint64_t base_seq,
                                 qs_error *error)
{
    uint32_t entries = verify->manifest.segment_entries;
    uint32_t words = qsi_bitmap_words(entries);
    uint64_t first_seq = entry->file.number * entries;
    /* The seen bitmap is not used, so it shares the memory of live. */
    struct qsi_segment_state state = {.settled = verify->settled, .seen = verify->live};
    uint32_t end = entry->given_end > 0 ? entry->given_end : entries;
    uint64_t count = 0;
    uint32_t columns;

    QS_TRY(qsi_segment_read_state(verify->index, &entry->file, &state, &columns, error));
    memset(verify->live, 0, words * sizeof *verify->live);
    for (uint32_t slot = 0; slot < end && first_seq + slot < base_seq; slot++) {
        if (!qsi_bitmap_has(verify->settled, slot)) {
            count += 1;
            if (!qsi_verify_is_settled(queue, first_seq + slot)) {
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

/* Checks slots and bodies of the live messages in this file. */
static qs_status check_file(struct qsi_verify *verify, const struct qsi_segment_file *file,
                            bool has_stored, qs_error *error)
{
    struct ref_visit visit = {verify, QS_OK, error};
    qs_error detail = {0};
    qs_status status = qsi_segment_check(verify->index, file, verify->live, &detail);

    if (status == QS_ECORRUPT) {
        status = check_words(verify, file, error);
    } else {
        status = qsi_verify_found(verify, status, &detail, error);
    }
    QS_TRY(status);
    qsi_verify_progress(verify, qsi_segment_disk_bytes(verify->index, file));
    if (has_stored) {
        status =
            qsi_segment_read_refs(verify->index, file, verify->live, visit_ref, &visit, &detail);
        QS_TRY(visit.status);
        /* Damaged slots were reported before. */
        return qsi_verify_found(verify, status == QS_ECORRUPT ? QS_OK : status, &detail, error);
    }
    return QS_OK;
}

/* Checks earlier files of the segment: each has slots of its own, which are not in the others. */
static qs_status check_formers(struct qsi_verify *verify, const struct qsi_segment_entry *entry,
                               qs_error *error)
{
    const struct qsi_known_former *formers =
        (const struct qsi_known_former *)(const void *)verify->formers.data;
    uint32_t words = qsi_bitmap_words(verify->manifest.segment_entries);
    size_t bytes = words * sizeof(uint64_t);
    uint64_t *rest = qsi_alloc(bytes);
    qs_status status = QS_OK;

    if (rest == NULL) {
        return qsi_fail(error, QS_ENOMEM, "checking a segment");
    }
    memcpy(rest, verify->live, bytes);
    for (size_t i = 0; status == QS_OK && i < verify->formers.bytes / sizeof *formers; i++) {
        bool has_live = false;
        if (formers[i].file.queue_id != entry->file.queue_id ||
            formers[i].file.number != entry->file.number) {
            continue;
        }
        for (uint32_t word = 0; word < words; word++) {
            uint32_t first = word * WORD_BITS;
            uint64_t here = qsi_low_bits(formers[i].end > first ? formers[i].end - first : 0);
            verify->live[word] = rest[word] & here;
            rest[word] &= ~here;
            has_live = has_live || verify->live[word] != 0;
        }
        QS_DCHECK(formers[i].end <= verify->manifest.segment_entries);
        if (has_live) {
            status = check_file(verify, &formers[i].file, entry->has_stored, error);
        }
    }
    memcpy(verify->live, rest, bytes);
    qsi_free(rest);
    return status;
}

static qs_status check_segment(struct qsi_verify *verify, const struct qsi_known_queue *queue,
                               const struct qsi_segment_entry *entry, uint64_t base_seq,
                               qs_error *error)
{
    uint32_t entries = verify->manifest.segment_entries;
    uint64_t first_seq = entry->file.number * entries;
    uint64_t end = first_seq + entries < base_seq ? first_seq + entries : base_seq;
    qs_error detail = {0};
    qs_status status;

    QS_DCHECK(entry->file.number <= UINT64_MAX / 2 / entries);
    verify->verified->segments += 1;
    if (qsi_verify_are_settled(queue, first_seq, end)) {
        /* Its messages are not read; opening checks whether replay works without it. */
        return QS_OK;
    }
    status = find_live_slots(verify, queue, entry, base_seq, &detail);
    if (status != QS_OK) {
        return qsi_verify_found(verify, status, &detail, error);
    }
    QS_TRY(check_formers(verify, entry, error));
    return check_file(verify, &entry->file, entry->has_stored, error);
}

qs_status qsi_verify_queue_state(struct qsi_verify *verify, const uint8_t *record, qs_error *error)
{
    uint32_t entries = verify->manifest.segment_entries;
    const struct qsi_known_queue *queue;
    struct qsi_queue_state state;
    qs_error detail = {0};
    qs_status status = qsi_queue_state_decode(&state, record, &detail);

    if (status != QS_OK) {
        return qsi_verify_found(verify, status, &detail, error);
    }
    queue = qsi_verify_find_subqueue(verify, state.queue_id);
    for (uint32_t i = 0; queue != NULL && i < state.segment_count; i++) {
        struct qsi_segment_entry entry;
        qsi_segment_entry_decode(&entry, record, i);
        if (entry.file.number > UINT64_MAX / 2 / entries || entry.file.heap_end == 0 ||
            entry.file.state_area > 2 || entry.live_count > entries) {
            qsi_fail_corrupt(&detail, verify->checkpoint_path,
                             (uint64_t)(record - verify->checkpoint), "an impossible segment");
            return qsi_verify_found(verify, QS_ECORRUPT, &detail, error);
        }
        QS_TRY(check_segment(verify, queue, &entry, state.base_seq, error));
    }
    return QS_OK;
}
