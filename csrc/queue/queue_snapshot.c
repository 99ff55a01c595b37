/* The parts of a queue in a checkpoint: its segments with the states in their files, and the
 * messages that are in no segment.  Invariants: messages below base_seq are in segments, those from
 * there on are carried; the bitmaps are those of one moment; nothing that a checkpoint names is
 * written afterwards: slots and bodies begin on pages of their own, states go to the other area. */
#include "alloc.h"
#include "check.h"
#include "queue_jobs.h"
#include "record.h"

#include <stdio.h>

#define FLUSH_ALL UINT64_MAX

/* A file that a segment had before. */
struct former_file {
    struct qsi_segment_file file;
    uint32_t end;
    bool is_dirty;
};

struct queue_snapshot {
    struct qsi_snapshot snapshot;
    struct qsi_queue_state state;
    struct qsi_buf files;   /* struct qsi_snapshot_file */
    struct qsi_buf formers; /* struct former_file: they come before the other files to be synced */
};

static struct queue_snapshot *self_of(struct qsi_snapshot *snapshot)
{
    return (struct queue_snapshot *)(void *)snapshot;
}

static struct qsi_queue *queue_of(const struct queue_snapshot *self)
{
    return (struct qsi_queue *)(void *)self->snapshot.container;
}

static struct qsi_snapshot_file *file_at(const struct queue_snapshot *self, uint32_t index)
{
    return &((struct qsi_snapshot_file *)(void *)self->files.data)[index];
}

static struct former_file *former_at(const struct queue_snapshot *self, uint32_t index)
{
    return &((struct former_file *)(void *)self->formers.data)[index];
}

static uint32_t former_count(const struct queue_snapshot *self)
{
    return (uint32_t)(self->formers.bytes / sizeof(struct former_file));
}

/* ---- segments ---- */

/* *delayed_out: how many of them are delayed. */
static uint32_t live_below(const struct qsi_queue *queue, const struct qsi_segment *segment,
                           uint64_t seq, uint32_t *delayed_out) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t first_seq = qsi_queue_first_seq(queue, segment);
    uint32_t count = 0;

    QS_DCHECK(segment->queue == queue);
    *delayed_out = 0;
    if (segment->settled == NULL) {
        uint32_t live = qsi_segment_live_count(segment) - segment->transient_count;
        *delayed_out = segment->delayed_count < live ? segment->delayed_count : live;
        return live;
    }
    for (uint32_t at = 0; at < segment->word_count; at++) {
        uint32_t word = segment->word_base + at;
        uint64_t word_seq = first_seq + (uint64_t)word * QSI_WORD_BITS;
        uint64_t live =
            qsi_segment_journalled(segment, word, qsi_segment_live(queue, segment, word));
        if (word_seq >= seq) {
            break;
        }
        if (seq - word_seq < QSI_WORD_BITS) {
            live &= (UINT64_C(1) << (seq - word_seq)) - 1;
        }
        count += qsi_popcount(live);
        *delayed_out += qsi_popcount(live & qsi_segment_delayed(segment, word));
    }
    return count;
}

/* Whether the area's state of the slots below end is still right: their messages had been handed
 * out when it was written, and transient messages among them count as settled. */
static bool is_told(const struct qsi_segment *segment, uint32_t end) QSI_REQUIRES(qsi_store_mutex)
{
    return segment->settled == NULL || segment->told_end == end || !segment->state_dirty;
}

/* The state of the segment's slots below end, to be written to the area that no checkpoint
 * names. */
static qs_status begin_state(struct queue_snapshot *self, struct qsi_segment *segment, uint32_t end,
                             struct qsi_snapshot_file *file) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_queue *queue = queue_of(self);
    uint64_t end_seq = qsi_queue_first_seq(queue, segment) + end;
    uint32_t entries = queue->shared->entries;
    struct qsi_state_job *job;
    struct qsi_segment_state *state;

    QS_DCHECK(segment->settled != NULL && end <= entries);
    QS_TRY(qsi_snapshot_reserve_job(&self->snapshot, QSI_SNAPSHOT_OTHERS));
    QS_TRY(qsi_state_job_begin(queue, segment, true, &job));
    qsi_snapshot_add_job(&self->snapshot, QSI_SNAPSHOT_OTHERS, &job->job);
    job->file = file;
    job->write.told_end = end;
    job->write.is_part = end < entries && end_seq < queue->container.next_seq;
    state = &job->write.state;
    /* Carried messages follow it like new publishes. */
    for (uint32_t slot = end; job->write.is_part && slot < entries; slot++) {
        state->settled[slot / QSI_WORD_BITS] &= ~(UINT64_C(1) << slot % QSI_WORD_BITS);
        state->seen[slot / QSI_WORD_BITS] &= ~(UINT64_C(1) << slot % QSI_WORD_BITS);
        if (state->deliveries != NULL) {
            state->deliveries[slot] = 0;
        }
        if (state->dues != NULL) {
            state->dues[slot] = 0;
        }
    }
    return QS_OK;
}

static qs_status put_formers(struct queue_snapshot *self, struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex)
{
    for (uint32_t i = 0; i < segment->former_count; i++) {
        struct qsi_former_file *former = &segment->formers[i];
        struct former_file noted = {former->file, former->end, former->is_dirty};
        former->named = true;
        if (!former->of_transients) {
            QS_TRY(qsi_buf_append(&self->formers, &noted, sizeof noted));
        }
    }
    return QS_OK;
}

/* REQUIRES room for one more file. */
static qs_status put_segment(struct queue_snapshot *self, struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_queue *queue = queue_of(self);
    struct qsi_snapshot_file *file = file_at(self, self->state.segment_count);
    struct qsi_segment_entry *entry = &file->entry;
    uint64_t below = self->state.base_seq - qsi_queue_first_seq(queue, segment);
    uint32_t entries = queue->shared->entries;
    uint32_t end = below < entries ? (uint32_t)below : entries;

    QS_DCHECK(qsi_queue_first_seq(queue, segment) < self->state.base_seq);
    *file = (struct qsi_snapshot_file){.is_wanted = segment->file_dirty,
                                       .has_content = segment->content_dirty};
    entry->file = segment->file;
    /* A carried message brings its own deliveries. */
    entry->seen_end = segment->seen_end < end ? segment->seen_end : end;
    entry->given_end = segment->given_end;
    entry->has_stored = segment->has_stored;
    entry->has_expiries = segment->expiries != NULL || segment->earliest != QSI_NEVER;
    entry->live_count = live_below(queue, segment, self->state.base_seq, &entry->delayed_count);
    entry->earliest_due = entry->delayed_count > 0 ? segment->earliest_due : 0;
    QS_DCHECK(entry->delayed_count <= entry->live_count && entry->live_count <= entries);
    if (segment->settled == NULL && segment->transient_count > 0 && entry->delayed_count > 0) {
        /* The next process finds out at once how many of them are transient. */
        entry->earliest_due = 1;
    }
    if (entry->live_count == 0) {
        return QS_OK;
    }
    if (!is_told(segment, end)) {
        QS_TRY(begin_state(self, segment, end, file));
        file->is_wanted = true;
    }
    QS_TRY(put_formers(self, segment));
    self->files.bytes += sizeof *file;
    self->state.segment_count += 1;
    segment->file_dirty = segment->content_dirty = false;
    segment->named = true;
    segment->page_aligned = true;
    return QS_OK;
}

/* ---- what is flushed, and what is carried ---- */

/* Whether the first unflushed message can go to a segment later without sharing a page of slots
 * with a flushed one. */
static bool ends_on_page(const struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = queue->shared->entries;
    const struct qsi_segment *segment =
        qsi_queue_find_segment(queue, queue->container.flushed_seq / entries);

    return (queue->container.flushed_seq & (entries - 1)) % QSI_SLOT_PAGE == 0 || segment == NULL ||
           segment->file.heap_end == 0;
}

/* The next message gets a slot on a page of its own: a checkpoint names the earlier slots from now
 * on. */
static qs_status end_page(struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t entries = queue->shared->entries;
    uint64_t next_seq = queue->container.next_seq;
    uint64_t segment_end = (next_seq / entries + 1) * entries;
    uint64_t page_end = (next_seq + QSI_SLOT_PAGE - 1) / QSI_SLOT_PAGE * QSI_SLOT_PAGE;

    if (ends_on_page(queue) && qsi_container_is_flushed(&queue->container)) {
        return QS_OK;
    }
    return qsi_container_skip_to(&queue->container,
                                 page_end < segment_end ? page_end : segment_end);
}

/* Jobs for everything from flushed_seq on. carried NULL: all of it is flushed. */
static qs_status begin_flushes(struct queue_snapshot *self, struct qsi_carried *carried)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_queue *queue = queue_of(self);
    enum qsi_snapshot_step step = carried != NULL ? QSI_SNAPSHOT_CARRIES : QSI_SNAPSHOT_FLUSHES;
    uint64_t seq = queue->container.flushed_seq;

    while (seq < queue->container.next_seq) {
        struct qsi_flush_job *job;
        qs_status status;
        QS_TRY(qsi_snapshot_reserve_job(&self->snapshot, step));
        status = qsi_flush_job_begin(queue, seq, FLUSH_ALL, carried, &job);
        if (status == QS_EEMPTY) {
            return QS_OK;
        }
        QS_TRY(status);
        qsi_snapshot_add_job(&self->snapshot, step, &job->job);
        job->flush.is_named = true;
        QS_DCHECK(job->flush.end_seq > seq);
        seq = job->flush.end_seq;
    }
    return QS_OK;
}

/* The file of the snapshot that a job writes to: none if the flushed messages are transient. */
static struct qsi_snapshot_file *find_file(const struct queue_snapshot *self, uint64_t number)
{
    for (uint32_t i = 0; i < self->state.segment_count; i++) {
        if (file_at(self, i)->entry.file.number == number) {
            return file_at(self, i);
        }
    }
    return NULL;
}

static void tell_flushes(struct queue_snapshot *self)
{
    struct qsi_snapshot *snapshot = &self->snapshot;

    for (uint32_t i = 0; i < qsi_snapshot_job_count(snapshot, QSI_SNAPSHOT_FLUSHES); i++) {
        struct qsi_flush_job *job =
            (struct qsi_flush_job *)(void *)*qsi_snapshot_job(snapshot, QSI_SNAPSHOT_FLUSHES, i);
        job->file = find_file(self, job->flush.segment->number);
        if (job->file != NULL) {
            job->file->is_wanted = true;
        }
    }
}

static qs_status put_messages(struct queue_snapshot *self, struct qsi_carried *carried)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_queue *queue = queue_of(self);
    uint64_t bytes = qsi_container_unflushed_bytes(&queue->container);
    uint8_t *room;

    if (ends_on_page(queue) && qsi_carried_take_room(carried, bytes)) {
        QS_TRY(begin_flushes(self, carried));
        self->state.base_seq = queue->container.flushed_seq;
    } else {
        QS_TRY(begin_flushes(self, NULL));
        QS_TRY(end_page(queue));
        self->state.base_seq = queue->container.next_seq;
    }
    self->state.next_seq = queue->container.next_seq;
    QS_DCHECK(self->state.base_seq <= queue->container.next_seq);
    QS_DCHECK(queue->container.flushed_seq <= self->state.base_seq);
    /* Jobs have pointers into it: it does not move. */
    QS_TRY(qsi_buf_reserve(&self->files, queue->segment_count * sizeof(struct qsi_snapshot_file),
                           &room));
    for (uint32_t i = 0; i < queue->segment_count; i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        if (qsi_queue_first_seq(queue, segment) < self->state.base_seq) {
            QS_TRY(put_segment(self, segment));
        }
    }
    tell_flushes(self);
    return QS_OK;
}

/* ---- syncs ---- */

/* The file, if it was left since the snapshot; NULL: it was not. */
static struct qsi_former_file *former_of(struct qsi_segment *segment,
                                         const struct qsi_segment_file *file)
    QSI_REQUIRES(qsi_store_mutex)
{
    for (uint32_t i = 0; segment != NULL && i < segment->former_count; i++) {
        struct qsi_former_file *former = &segment->formers[i];
        if (!former->of_transients && former->file.generation == file->generation) {
            return former;
        }
    }
    return NULL;
}

/* Whether the file exists, and is synced, unless syncs are off. */
static qs_status sync_file(const struct qsi_queue *queue, const struct qsi_segment_file *file,
                           bool reaches_disk, qs_error *error)
{
    return reaches_disk ? qsi_segment_sync(queue->shared->index, file, error)
                        : qsi_segment_find(queue->shared->index, file, error);
}

static qs_status sync_snapshot(struct qsi_snapshot *snapshot, uint32_t file, bool reaches_disk,
                               qs_error *error)
{
    const struct queue_snapshot *self = self_of(snapshot);
    const struct qsi_queue *queue = queue_of(self);
    const struct qsi_snapshot_file *written;

    QS_DCHECK(file < snapshot->file_count);
    if (file < former_count(self)) {
        const struct former_file *former = former_at(self, file);
        return former->is_dirty ? sync_file(queue, &former->file, reaches_disk, error) : QS_OK;
    }
    written = file_at(self, file - former_count(self));
    return written->is_wanted ? sync_file(queue, &written->entry.file, reaches_disk, error) : QS_OK;
}

/* Leaves a file that is not needed: only its state is new, and memory has that state.  The next try
 * writes a new file.  Any other file cannot be left: QS_ECORRUPT. */
static qs_status leave_file(struct qsi_snapshot *snapshot, uint32_t file)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct queue_snapshot *self = self_of(snapshot);
    const struct qsi_queue *queue = queue_of(self);
    const struct qsi_snapshot_file *written;
    struct qsi_segment *segment;
    uint64_t end;

    QS_DCHECK(file < snapshot->file_count);
    if (file < former_count(self)) {
        return QS_ECORRUPT;
    }
    written = file_at(self, file - former_count(self));
    segment = qsi_queue_find_segment(queue, written->entry.file.number);
    if (written->has_content || segment == NULL || segment->settled == NULL || segment->busy > 0 ||
        segment->file.generation != written->entry.file.generation) {
        return QS_ECORRUPT;
    }
    end = queue->container.flushed_seq - qsi_queue_first_seq(queue, segment);
    return qsi_segment_leave_file(
        segment, false, end < queue->shared->entries ? (uint32_t)end : queue->shared->entries);
}

static bool written_path(const struct qsi_snapshot *snapshot,
                         char path_out[QSI_CONTAINER_PATH_BYTES])
{
    const struct queue_snapshot *self = (const struct queue_snapshot *)(const void *)snapshot;

    _Static_assert(QSI_SEGMENT_PATH_BYTES <= QSI_CONTAINER_PATH_BYTES, "a path fits");
    for (uint32_t i = 0; i < self->state.segment_count; i++) {
        if (file_at(self, i)->is_wanted) {
            qsi_segment_path(path_out, &file_at(self, i)->entry.file);
            return true;
        }
    }
    return false;
}

/* ---- records ---- */

static qs_status encode(const struct qsi_snapshot *snapshot, struct qsi_buf *out,
                        uint32_t *record_count_io)
{
    const struct queue_snapshot *self = (const struct queue_snapshot *)(const void *)snapshot;

    QS_TRY(qsi_queue_state_begin(out, &self->state));
    for (uint32_t i = 0; i < self->state.segment_count; i++) {
        qsi_segment_entry_put(out, &file_at(self, i)->entry);
    }
    *record_count_io += 1;
    for (uint32_t i = 0; i < former_count(self); i++) {
        const struct former_file *former = former_at(self, i);
        QS_TRY(qsi_former_file_encode(out, &former->file, former->end));
        *record_count_io += 1;
    }
    return QS_OK;
}

/* ---- the end ---- */

/* From now on these areas must not be written. */
static void record_named(const struct queue_snapshot *self) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_queue *queue = queue_of(self);

    for (uint32_t i = 0; i < queue->segment_count; i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        segment->durable_area = segment->file.state_area;
    }
    for (uint32_t i = 0; i < former_count(self); i++) {
        const struct qsi_segment_file *file = &former_at(self, i)->file;
        struct qsi_former_file *former =
            former_of(qsi_queue_find_segment(queue, file->number), file);
        if (former != NULL) {
            former->is_dirty = false;
        }
    }
}

/* The next checkpoint syncs what this one was to sync. */
static void want_syncs(const struct queue_snapshot *self) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_queue *queue = queue_of(self);

    for (uint32_t i = 0; i < self->state.segment_count; i++) {
        const struct qsi_snapshot_file *written = file_at(self, i);
        const struct qsi_segment_file *file = &written->entry.file;
        struct qsi_segment *segment = qsi_queue_find_segment(queue, file->number);
        struct qsi_former_file *former = former_of(segment, file);
        if (former != NULL) {
            former->is_dirty = former->is_dirty || written->has_content;
        } else if (segment != NULL && written->is_wanted) {
            segment->file_dirty = true;
            segment->content_dirty = segment->content_dirty || written->has_content;
        }
    }
}

static void end_snapshot(struct qsi_snapshot *snapshot, bool counts) QSI_REQUIRES(qsi_store_mutex)
{
    struct queue_snapshot *self = self_of(snapshot);

    if (counts) {
        record_named(self);
    } else {
        want_syncs(self);
    }
    for (uint32_t step = 0; step < QSI_SNAPSHOT_STEPS; step++) {
        qsi_buf_fini(&snapshot->jobs[step]);
    }
    qsi_buf_fini(&self->files);
    qsi_buf_fini(&self->formers);
    qsi_free(self);
}

static const struct qsi_snapshot_kind snapshot_kind = {
    .sync = sync_snapshot,
    .leave_file = leave_file,
    .written_path = written_path,
    .encode = encode,
    .end = end_snapshot,
};

qs_status qsi_queue_snapshot(struct qsi_container *container, struct qsi_carried *carried,
                             struct qsi_snapshot **snapshot_out)
{
    struct qsi_queue *queue = qsi_as_queue(container);
    struct queue_snapshot *self = qsi_zalloc(sizeof *self);
    qs_status status;

    if (self == NULL) {
        return QS_ENOMEM;
    }
    self->snapshot.kind = &snapshot_kind;
    self->snapshot.container = &queue->container;
    self->state.queue_id = queue->container.id;
    *snapshot_out = &self->snapshot;
    status = put_messages(self, carried);
    self->snapshot.file_count = former_count(self) + self->state.segment_count;
    return status;
}
