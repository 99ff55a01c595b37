/* What a checkpoint says of a work queue: the bitmaps of segments that have messages which are not
 * settled, and counts and times that do not follow from them.
 *
 * Invariants: a snapshot is the records themselves, made at the moment that it tells of; bits of
 * messages that have no state yet are 0; what is out is told as ready. */
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "queue_internal.h"
#include "queue_replay.h"
#include "queue_settle.h"
#include "queue_take.h"
#include "work.h"
#include "work_kind.h"
#include "work_record.h"

#include <string.h>

struct work_snapshot {
    struct qsi_snapshot snapshot;
    struct qsi_buf records;
    uint32_t record_count;
};

static struct work_snapshot *self_of(struct qsi_snapshot *snapshot)
{
    return (struct work_snapshot *)(void *)snapshot;
}

static struct qsi_queue *queue_of(struct qsi_container *container)
{
    return (struct qsi_queue *)(void *)container;
}

/* ---- the snapshot ---- */

/* The words from the first that has live messages to the last; in the segment that grows, to the
 * last that was given out, since nothing but the bitmap says what is settled there. */
static void live_words(const struct qsi_queue *queue, const struct qsi_segment *segment,
                       uint32_t *first_out, uint32_t *end_out) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = queue->shared->entries;
    uint64_t next_seq = queue->container.next_seq;
    uint32_t end = segment->word_base;

    *first_out = segment->word_base + segment->word_count;
    for (uint32_t at = segment->word_count; at-- > 0;) {
        uint32_t word = segment->word_base + at;
        if (qsi_segment_live(queue, segment, word) != 0) {
            *first_out = word;
            end = word + 1 > end ? word + 1 : end;
        }
    }
    if (segment->number == next_seq / entries) {
        uint32_t given = qsi_bitmap_words((uint32_t)(next_seq & (entries - 1)));
        end = given > end ? given : end;
    }
    *end_out = end;
}

/* What the bitmaps do not tell of a message; false: they tell all. */
static bool note_of(const struct qsi_segment *segment, uint32_t slot, uint64_t seen,
                    struct qsi_work_note *note_out) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t word = slot / QSI_WORD_BITS, bit = slot % QSI_WORD_BITS;
    uint32_t known = (uint32_t)(seen >> bit & 1);
    bool is_delayed = (qsi_segment_delayed(segment, word) >> bit & 1) != 0;

    *note_out = (struct qsi_work_note){
        .slot = slot,
        .deliveries = segment->deliveries != NULL
                          ? segment->deliveries[slot - segment->word_base * QSI_WORD_BITS]
                          : known,
        .due_us = is_delayed ? qsi_segment_due(segment, slot) : 0,
    };
    return note_out->deliveries != known || is_delayed;
}

/* Puts the notes behind the words, unless record is NULL.  Returns how many. */
static uint32_t put_notes(const struct qsi_queue *queue, const struct qsi_segment *segment,
                          uint8_t *record) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t count = 0;

    if (segment->deliveries == NULL && segment->delayed_count == 0) {
        return 0;
    }
    for (uint32_t at = 0; at < segment->word_count; at++) {
        uint32_t word = segment->word_base + at;
        uint64_t live = qsi_segment_live(queue, segment, word);
        uint64_t seen = qsi_segment_seen_before(segment, word);
        for (; live != 0; live &= live - 1) {
            struct qsi_work_note note;
            uint32_t slot = word * QSI_WORD_BITS + (uint32_t)__builtin_ctzll(live);
            if (!note_of(segment, slot, seen, &note)) {
                continue;
            }
            if (record != NULL) {
                qsi_work_segment_put_note(record, count, &note);
            }
            count += 1;
        }
    }
    return count;
}

static qs_status put_segment(struct work_snapshot *self, const struct qsi_queue *queue,
                             const struct qsi_segment *segment) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_work_segment told = {.queue_id = queue->container.id,
                                    .number = segment->number,
                                    .note_count = put_notes(queue, segment, NULL),
                                    .keeps_deliveries = segment->deliveries != NULL};
    uint32_t end;
    uint64_t bytes;
    uint8_t *record;

    live_words(queue, segment, &told.word_base, &end);
    told.word_count = end - told.word_base;
    bytes = qsi_work_segment_bytes(told.word_count, told.note_count);
    QS_TRY(qsi_buf_reserve(&self->records, bytes, &record));
    qsi_work_segment_encode(record, &told);
    for (uint32_t word = told.word_base; word < end; word++) {
        uint64_t live = qsi_segment_live(queue, segment, word);
        qsi_work_segment_put_word(record, word - told.word_base,
                                  qsi_segment_assigned(queue, segment, word) & ~live,
                                  qsi_segment_seen_before(segment, word) & live);
    }
    (void)put_notes(queue, segment, record);
    self->records.bytes += bytes;
    self->record_count += 1;
    return QS_OK;
}

static qs_status put_state(struct work_snapshot *self, const struct qsi_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_work_state state = {
        .queue_id = queue->container.id,
        .next_seq = queue->container.next_seq,
        .seen_upto = queue->work.seen_upto,
        .passed_count = queue->work.passed_count,
    };
    uint8_t *record;

    QS_TRY(qsi_buf_reserve(&self->records, QSI_WORK_STATE_BYTES, &record));
    qsi_work_state_encode(record, &state);
    self->records.bytes += QSI_WORK_STATE_BYTES;
    self->record_count += 1;
    for (uint32_t i = 0; i < queue->segment_count; i++) {
        const struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        if (qsi_segment_live_count(segment) > 0) {
            QS_TRY(put_segment(self, queue, segment));
        }
    }
    return QS_OK;
}

static qs_status sync_nothing(struct qsi_snapshot *snapshot, uint32_t file, bool reaches_disk,
                              qs_error *error)
{
    (void)snapshot;
    (void)file;
    (void)reaches_disk;
    (void)error;
    QS_ASSERT(!"a work queue has no files");
    return QS_OK;
}

static bool no_path(const struct qsi_snapshot *snapshot, char path_out[QSI_CONTAINER_PATH_BYTES])
{
    (void)snapshot;
    path_out[0] = '\0';
    return false;
}

static qs_status encode(const struct qsi_snapshot *snapshot, struct qsi_buf *out,
                        uint32_t *record_count_io)
{
    const struct work_snapshot *self = (const struct work_snapshot *)(const void *)snapshot;

    QS_TRY(qsi_buf_append(out, self->records.data, self->records.bytes));
    *record_count_io += self->record_count;
    return QS_OK;
}

static void end_snapshot(struct qsi_snapshot *snapshot, bool counts) QSI_REQUIRES(qsi_store_mutex)
{
    (void)counts;
    qsi_buf_fini(&self_of(snapshot)->records);
    qsi_free(snapshot);
}

static const struct qsi_snapshot_kind snapshot_kind = {
    .sync = sync_nothing,
    .written_path = no_path,
    .encode = encode,
    .end = end_snapshot,
};

qs_status qsi_work_snapshot(struct qsi_container *container, struct qsi_carried *carried,
                            struct qsi_snapshot **snapshot_out)
{
    struct work_snapshot *self = qsi_zalloc(sizeof *self);
    qs_status status;

    (void)carried;
    if (self == NULL) {
        return QS_ENOMEM;
    }
    self->snapshot.kind = &snapshot_kind;
    self->snapshot.container = container;
    status = put_state(self, queue_of(container));
    *snapshot_out = &self->snapshot;
    return status;
}

/* ---- open ---- */

static qs_status restore_state(struct qsi_queue *queue, const uint8_t *record, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_work_state state;

    QS_TRY(qsi_work_state_decode(&state, record, error));
    if (queue->segment_count > 0 || state.next_seq < queue->container.next_seq ||
        state.next_seq > UINT64_MAX / 4) {
        return qsi_fail(error, QS_ECORRUPT, "the state of a work queue at %llu comes twice",
                        (unsigned long long)state.next_seq);
    }
    qsi_work_start_at(&queue->container, state.next_seq);
    queue->work.seen_upto = state.seen_upto;
    queue->work.passed_count = state.passed_count;
    return QS_OK;
}

static qs_status restore_dues(struct qsi_queue *queue, struct qsi_segment *segment,
                              const struct qsi_work_segment *told) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t *dues = NULL;
    qs_status status;

    for (uint32_t i = 0; i < told->note_count; i++) {
        struct qsi_work_note note;
        qsi_work_segment_note(told, i, &note);
        if (note.due_us != 0 && dues == NULL) {
            dues = qsi_zalloc((size_t)segment->word_count * QSI_WORD_BITS * sizeof *dues);
            if (dues == NULL) {
                return QS_ENOMEM;
            }
        }
        if (note.due_us != 0) {
            dues[note.slot - segment->word_base * QSI_WORD_BITS] = note.due_us;
        }
    }
    if (dues == NULL) {
        return QS_OK;
    }
    status = qsi_queue_install_dues(queue, segment, dues);
    qsi_free(dues);
    return status;
}

/* The bitmaps, and what is told of single messages. */
static qs_status fill_segment(struct qsi_queue *queue, struct qsi_segment *segment,
                              const struct qsi_work_segment *told) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t live = 0;

    QS_TRY(qsi_segment_make_state(queue, segment, told->word_base, told->word_count));
    for (uint32_t at = 0; at < told->word_count; at++) {
        segment->settled[at] = qsi_work_segment_settled(told, at);
        segment->seen[at] = qsi_work_segment_seen(told, at);
        live += qsi_popcount(qsi_segment_live(queue, segment, told->word_base + at));
    }
    segment->ready_count = live;
    qsi_queue_more_ready(queue, live);
    if (told->keeps_deliveries) {
        QS_TRY(qsi_segment_keep_deliveries(queue, segment));
    }
    for (uint32_t i = 0; told->keeps_deliveries && i < told->note_count; i++) {
        struct qsi_work_note note;
        qsi_work_segment_note(told, i, &note);
        segment->deliveries[note.slot - segment->word_base * QSI_WORD_BITS] =
            (uint8_t)note.deliveries;
    }
    return restore_dues(queue, segment, told);
}

static qs_status restore_segment(struct qsi_queue *queue, const uint8_t *record, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_work_segment told;
    struct qsi_segment *segment;
    const struct qsi_segment *last = qsi_queue_last_segment(queue);
    uint32_t entries = queue->shared->entries;
    qs_status status;

    QS_TRY(qsi_work_segment_decode(&told, record, error));
    if (told.number > queue->container.next_seq / entries ||
        (last != NULL && told.number <= last->number) ||
        (uint64_t)told.word_base + told.word_count > qsi_queue_words(queue)) {
        return qsi_fail(error, QS_ECORRUPT, "segment %llu of a work queue at %llu",
                        (unsigned long long)told.number,
                        (unsigned long long)queue->container.next_seq);
    }
    status = qsi_queue_append_segment(queue, told.number, &segment);
    if (status == QS_OK) {
        status = fill_segment(queue, segment, &told);
    }
    return status == QS_OK ? QS_OK : qsi_fail(error, status, "states of a work queue");
}

qs_status qsi_work_restore(struct qsi_container *container, const uint8_t *record,
                           uint64_t *next_seq_io, qs_error *error)
{
    struct qsi_queue *queue = queue_of(container);

    (void)next_seq_io; /* its sequences are its source's */
    switch (qsi_record_type(record)) {
    case QSI_RECORD_WORK_STATE:
        return restore_state(queue, record, error);
    case QSI_RECORD_WORK_SEGMENT:
        return restore_segment(queue, record, error);
    default:
        return qsi_fail(error, QS_ECORRUPT, "a work queue with the state of another queue");
    }
}
