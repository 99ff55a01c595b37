/* A queue's jobs in one call each, and the references of what was settled on the disk. */
#ifndef QUEUE_JOBS_FIXTURE_H
#define QUEUE_JOBS_FIXTURE_H

#include "queue_fixture.h"

/* ---- jobs in one call ---- */

static inline qs_status flush_some(struct fixture *fixture, uint64_t bytes_max)
{
    struct qsi_flush flush;
    qs_status status =
        qsi_flush_begin(&flush, &fixture->queue, fixture->queue.container.flushed_seq, bytes_max);

    if (status == QS_OK) {
        QS_CHECK_OK(qsi_flush_run(&flush, own_index(fixture), fixture->transient_index, QS_ERROR));
        qsi_flush_end(&flush, true);
    }
    return status;
}

static inline void flush_all(struct fixture *fixture)
{
    qs_status status;

    do {
        status = flush_some(fixture, UINT64_MAX);
    } while (status == QS_OK);
    QS_CHECK(status == QS_EEMPTY &&
             fixture->queue.container.flushed_seq == fixture->queue.container.next_seq);
}

static inline void page_in(struct fixture *fixture, uint64_t bytes_max)
{
    struct qsi_page_in job;

    QS_CHECK(qsi_page_in_begin(&job, &fixture->queue, bytes_max) == QSI_PAGE_IN_BEGUN);
    QS_CHECK_OK(qsi_page_in_run(&job, own_index(fixture), fixture->transient_index, QS_ERROR));
    QS_CHECK_OK(qsi_page_in_end(&job, true));
}

static inline void load_state(struct fixture *fixture, struct qsi_segment *segment)
{
    struct qsi_page_in job;

    QS_CHECK_OK(qsi_page_in_state(&job, segment));
    QS_CHECK_OK(qsi_page_in_run(&job, own_index(fixture), fixture->transient_index, QS_ERROR));
    QS_CHECK_OK(qsi_page_in_end(&job, true));
}

/* All states that could be dropped are written, and dropped. */
static inline void drop_states(struct fixture *fixture)
{
    struct qsi_segment *segment;

    while ((segment = qsi_queue_dirty_state(&fixture->queue)) != NULL) {
        struct qsi_state_write write;
        QS_CHECK_OK(qsi_state_write_begin(&write, &fixture->queue, segment));
        QS_CHECK_OK(
            qsi_state_write_run(&write, own_index(fixture), fixture->transient_index, QS_ERROR));
        qsi_state_write_end(&write, true);
    }
    qsi_queue_drop_states(&fixture->queue.container);
}

/* ---- references of what was settled on the disk ---- */

struct releasing {
    struct fixture *fixture;
    bool transient;
};

static inline void release_ref(void *context, uint32_t slot, const struct qsi_body_ref *ref)
{
    struct releasing *releasing = context;

    (void)slot;
    qsi_message_store_drop_ref(releasing->fixture->messages, ref, releasing->transient);
}

/* A slot that lies in the other file counts as damaged. */
static inline void release_from(struct fixture *fixture, struct qsi_index *index,
                                const struct qsi_segment_file *file, const uint64_t *wanted,
                                bool transient)
{
    struct releasing releasing = {fixture, transient};
    qs_status status;

    if (file->heap_end > 0) {
        status = qsi_segment_read_refs(index, file, wanted, release_ref, &releasing, NULL);
        QS_CHECK(status == QS_OK || status == QS_ECORRUPT);
    }
}

static inline void add_rest(struct qsi_index *index, const struct qsi_segment_file *file,
                            uint64_t *wanted, uint32_t words)
{
    struct qsi_segment_state state = {.settled = qsi_zalloc(words * sizeof(uint64_t)),
                                      .seen = qsi_zalloc(words * sizeof(uint64_t))};
    uint32_t columns;

    QS_CHECK(state.settled != NULL && state.seen != NULL);
    QS_CHECK_OK(qsi_segment_read_state(index, file, &state, &columns, QS_ERROR));
    for (uint32_t i = 0; i < words; i++) {
        wanted[i] |= ~state.settled[i];
    }
    qsi_free(state.settled);
    qsi_free(state.seen);
}

/* As the pager does. */
static inline void release_segment(struct fixture *fixture, struct qsi_segment *segment)
{
    struct qsi_index *index = segment->is_durable ? fixture->index : fixture->transient_index;
    uint32_t words = qsi_bitmap_words(fixture->shared.entries);
    uint64_t *wanted = qsi_zalloc(words * sizeof *wanted);

    QS_CHECK(wanted != NULL);
    if (segment->has_releases) {
        memcpy(wanted, segment->releases, words * sizeof *wanted);
    }
    if (segment->release_rest) {
        add_rest(index, &segment->file, wanted, words);
    }
    if (segment->release_transients) {
        add_rest(fixture->transient_index, &segment->transient_file, wanted, words);
    }
    if (segment->has_releases) {
        memset(segment->releases, 0, words * sizeof *wanted);
        segment->has_releases = false;
    }
    release_from(fixture, index, &segment->file, wanted, !segment->is_durable);
    release_from(fixture, fixture->transient_index, &segment->transient_file, wanted, true);
    qsi_free(wanted);
}

static inline void remove_file(struct qsi_index *index, const struct qsi_segment_file *file)
{
    if (file->heap_end > 0) {
        QS_CHECK_OK(qsi_segment_remove(index, file, QS_ERROR));
    }
}

/* keep: retired files stay where they are, because somebody names them. */
static inline void release_all(struct fixture *fixture, bool keep)
{
    struct qsi_queue_shared *shared = &fixture->shared;

    while (!qsi_list_is_empty(&shared->releasing)) {
        struct qsi_segment *segment =
            QSI_LIST_OWNER(shared->releasing.next, struct qsi_segment, in_shared);
        qsi_list_remove(&segment->in_shared);
        QS_CHECK(segment->queue == &fixture->queue && segment->has_releases);
        release_segment(fixture, segment);
    }
    while (!qsi_list_is_empty(&shared->retired)) {
        struct qsi_segment *segment =
            QSI_LIST_OWNER(shared->retired.next, struct qsi_segment, in_shared);
        qsi_list_remove(&segment->in_shared);
        QS_CHECK(segment->queue == NULL && segment->busy == 0);
        release_segment(fixture, segment);
        if (!keep || !segment->named || !segment->is_durable) {
            remove_file(segment->is_durable ? fixture->index : fixture->transient_index,
                        &segment->file);
        }
        remove_file(fixture->transient_index, &segment->transient_file);
        qsi_segment_free(segment);
    }
}

static inline uint64_t referenced_bytes(struct fixture *fixture)
{
    struct qsi_message_space space;

    qsi_message_store_space(fixture->messages, &space);
    return space.live_bytes;
}

#endif
