/* A work queue in a checkpoint: the bitmaps of segments with unsettled messages, and counts and
 * times that do not follow from them.
 *
 * Invariants: a snapshot is the records themselves, made at its moment; bits of messages that have
 * no state yet are 0; messages that are out are recorded as ready. */
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "queue_delays.h"
#include "queue_internal.h"
#include "queue_take.h"
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

/* ---- the snapshot ---- */

/* The words from the first that has live messages to the last; in the growing segment, to the last
 * assigned one, since only the bitmap says what is settled there. */
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

/* A segment while it is encoded: encoded has the bitmaps' size, and how many planes they are. */
struct encoding {
    const struct qsi_queue *queue;
    const struct qsi_segment *segment;
    struct qsi_work_segment encoded;
    uint8_t *record;                        /* NULL: notes are counted */
    uint32_t wide[QSI_WORK_PLANES_MAX + 1]; /* messages whose counts need so many planes */
};

static uint32_t deliveries_of(const struct qsi_segment *segment, uint32_t slot)
    QSI_REQUIRES(qsi_store_mutex)
{
    return segment->deliveries[slot - segment->word_base * QSI_WORD_BITS];
}

/* The values of a message that the bitmaps do not have; false: they have all. */
static bool note_of(const struct encoding *encoding, uint32_t slot, uint64_t seen,
                    struct qsi_work_note *note_out) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_segment *segment = encoding->segment;
    uint32_t word = slot / QSI_WORD_BITS, bit = slot % QSI_WORD_BITS;
    uint32_t known = (uint32_t)(seen >> bit & 1);
    uint32_t deliveries = segment->deliveries != NULL ? deliveries_of(segment, slot) : known;
    bool is_delayed = (qsi_segment_delayed(segment, word) >> bit & 1) != 0;

    *note_out = (struct qsi_work_note){
        .slot = slot,
        .deliveries = deliveries,
        .due_us = is_delayed ? qsi_segment_due(segment, slot) : 0,
    };
    return is_delayed ||
           (encoding->encoded.plane_count > 0 ? deliveries >> encoding->encoded.plane_count != 0
                                              : deliveries != known);
}

/* Writes or counts the notes. */
static void put_notes(struct encoding *encoding) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_segment *segment = encoding->segment;
    uint32_t count = 0;

    for (uint32_t at = 0; at < segment->word_count; at++) {
        uint32_t word = segment->word_base + at;
        uint64_t live = qsi_segment_live(encoding->queue, segment, word);
        uint64_t seen = live != 0 ? qsi_segment_seen_before(segment, word) : 0;
        for (; live != 0; live &= live - 1) {
            struct qsi_work_note note;
            uint32_t slot = word * QSI_WORD_BITS + (uint32_t)__builtin_ctzll(live);
            if (!note_of(encoding, slot, seen, &note)) {
                continue;
            }
            if (encoding->record != NULL) {
                qsi_work_segment_put_note(encoding->record, count, &note);
            }
            count += 1;
        }
    }
    QS_DCHECK(encoding->record == NULL || count == encoding->encoded.note_count);
    encoding->encoded.note_count = count;
}

/* The number of planes that takes the fewest bytes, including the remaining notes. */
static void choose_planes(struct encoding *encoding) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_segment *segment = encoding->segment;
    uint64_t best = (uint64_t)encoding->encoded.note_count * QSI_WORK_NOTE_BYTES, wider = 0;

    for (uint32_t at = 0; at < segment->word_count; at++) {
        uint32_t word = segment->word_base + at;
        for (uint64_t live = qsi_segment_live(encoding->queue, segment, word); live != 0;
             live &= live - 1) {
            uint32_t slot = word * QSI_WORD_BITS + (uint32_t)__builtin_ctzll(live);
            uint32_t deliveries = deliveries_of(segment, slot);
            encoding->wide[deliveries == 0 ? 0 : 32 - (uint32_t)__builtin_clz(deliveries)] += 1;
        }
    }
    for (uint32_t planes = QSI_WORK_PLANES_MAX; planes > 0; planes--) {
        uint64_t bytes =
            (uint64_t)encoding->encoded.word_count * planes * 8 + wider * QSI_WORK_NOTE_BYTES;
        if (bytes < best) {
            best = bytes;
            encoding->encoded.plane_count = planes;
        }
        wider += encoding->wide[planes];
    }
}

static void put_words(const struct encoding *encoding) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_segment *segment = encoding->segment;

    for (uint32_t index = 0; index < encoding->encoded.word_count; index++) {
        uint32_t word = encoding->encoded.word_base + index;
        uint64_t live = qsi_segment_live(encoding->queue, segment, word);
        uint64_t planes[QSI_WORK_PLANES_MAX] = {0};
        qsi_work_segment_put_word(encoding->record, QSI_WORK_SETTLED, index,
                                  qsi_segment_assigned(encoding->queue, segment, word) & ~live);
        qsi_work_segment_put_word(encoding->record, QSI_WORK_SEEN, index,
                                  qsi_segment_seen_before(segment, word) & live);
        for (; encoding->encoded.plane_count > 0 && live != 0; live &= live - 1) {
            uint32_t slot = word * QSI_WORD_BITS + (uint32_t)__builtin_ctzll(live);
            uint32_t deliveries = deliveries_of(segment, slot);
            for (uint32_t plane = 0; deliveries >> plane != 0; plane++) {
                planes[plane] |= (deliveries >> plane & 1) != 0 ? live & -live : 0;
            }
        }
        for (uint32_t plane = 0; plane < encoding->encoded.plane_count; plane++) {
            qsi_work_segment_put_word(encoding->record, QSI_WORK_PLANES + plane, index,
                                      planes[plane]);
        }
    }
}

static qs_status put_segment(struct work_snapshot *self, const struct qsi_queue *queue,
                             const struct qsi_segment *segment) QSI_REQUIRES(qsi_store_mutex)
{
    struct encoding encoding = {.queue = queue,
                                .segment = segment,
                                .encoded = {.queue_id = queue->container.id,
                                            .number = segment->number,
                                            .keeps_deliveries = segment->deliveries != NULL}};
    bool has_notes = segment->deliveries != NULL || segment->delayed_count > 0;
    uint32_t end;
    uint64_t bytes;

    live_words(queue, segment, &encoding.encoded.word_base, &end);
    encoding.encoded.word_count = end - encoding.encoded.word_base;
    if (has_notes) {
        put_notes(&encoding);
    }
    if (segment->deliveries != NULL && encoding.encoded.note_count > 0) {
        choose_planes(&encoding);
        put_notes(&encoding);
    }
    bytes = qsi_work_segment_bytes(&encoding.encoded);
    QS_TRY(qsi_buf_reserve(&self->records, bytes, &encoding.record));
    qsi_work_segment_encode(encoding.record, &encoding.encoded);
    put_words(&encoding);
    if (has_notes) {
        put_notes(&encoding);
    }
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
    status = put_state(self, qsi_as_queue(container));
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
                              const struct qsi_work_segment *encoded) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t *dues = NULL;
    qs_status status;

    for (uint32_t i = 0; i < encoded->note_count; i++) {
        struct qsi_work_note note;
        qsi_work_segment_note(encoded, i, &note);
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

/* Memory for them was zeroed; the others are not read. */
static void restore_deliveries(const struct qsi_queue *queue, struct qsi_segment *segment,
                               const struct qsi_work_segment *encoded) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t base = segment->word_base * QSI_WORD_BITS;

    for (uint32_t at = 0; encoded->plane_count > 0 && at < encoded->word_count; at++) {
        uint32_t word = encoded->word_base + at;
        uint64_t live = qsi_segment_live(queue, segment, word);
        for (; live != 0; live &= live - 1) {
            uint32_t slot = word * QSI_WORD_BITS + (uint32_t)__builtin_ctzll(live);
            segment->deliveries[slot - base] = (uint8_t)qsi_work_segment_deliveries(encoded, slot);
        }
    }
    for (uint32_t i = 0; i < encoded->note_count; i++) {
        struct qsi_work_note note;
        qsi_work_segment_note(encoded, i, &note);
        segment->deliveries[note.slot - base] = (uint8_t)note.deliveries;
    }
}

/* The bitmaps, and what is encoded of single messages. */
static qs_status fill_segment(struct qsi_queue *queue, struct qsi_segment *segment,
                              const struct qsi_work_segment *encoded) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t live = 0;

    QS_TRY(qsi_segment_make_state(queue, segment, encoded->word_base, encoded->word_count));
    for (uint32_t at = 0; at < encoded->word_count; at++) {
        segment->settled[at] = qsi_work_segment_word(encoded, QSI_WORK_SETTLED, at);
        segment->seen[at] = qsi_work_segment_word(encoded, QSI_WORK_SEEN, at);
        live += qsi_popcount(qsi_segment_live(queue, segment, encoded->word_base + at));
    }
    segment->ready_count = live;
    qsi_queue_more_ready(queue, live);
    if (encoded->keeps_deliveries) {
        QS_TRY(qsi_segment_keep_deliveries(queue, segment));
        restore_deliveries(queue, segment, encoded);
    }
    return restore_dues(queue, segment, encoded);
}

static qs_status restore_segment(struct qsi_queue *queue, const uint8_t *record, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_work_segment encoded;
    struct qsi_segment *segment;
    const struct qsi_segment *last = qsi_queue_last_segment(queue);
    uint32_t entries = queue->shared->entries;
    qs_status status;

    QS_TRY(qsi_work_segment_decode(&encoded, record, error));
    if (encoded.number > queue->container.next_seq / entries ||
        (last != NULL && encoded.number <= last->number) ||
        (uint64_t)encoded.word_base + encoded.word_count > qsi_queue_words(queue)) {
        return qsi_fail(error, QS_ECORRUPT, "segment %llu of a work queue at %llu",
                        (unsigned long long)encoded.number,
                        (unsigned long long)queue->container.next_seq);
    }
    status = qsi_queue_append_segment(queue, encoded.number, &segment);
    if (status == QS_OK) {
        status = fill_segment(queue, segment, &encoded);
    }
    return status == QS_OK ? QS_OK : qsi_fail(error, status, "states of a work queue");
}

qs_status qsi_work_restore(struct qsi_container *container, const uint8_t *record,
                           uint64_t *next_seq_io, qs_error *error)
{
    struct qsi_queue *queue = qsi_as_queue(container);

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
