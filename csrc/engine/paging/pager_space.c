/* Freeing space on the disk: references of settled messages are dropped, and files of segments that
 * ended are removed. */
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "pager.h"
#include "queue_life.h"
#include "store.h"

#include <string.h>

/* ---- files of segments that ended ---- */

/* Uses memory that was reserved before the file ended, because nothing else names the file. */
static void add_dead_file(struct qs_store *store, struct qsi_dead_file *dead,
                          const struct qsi_segment_file *file) QSI_REQUIRES(qsi_store_mutex)
{
    dead->file = *file;
    qsi_list_push_back(&store->paging.dead_files, &dead->in_store);
    store->paging.dead_bytes += qsi_segment_disk_bytes(store->index, file);
    if (store->paging.dead_since_ns == 0) {
        store->paging.dead_since_ns = store->env->monotonic_ns(store->env);
    }
}

void qsi_forget_dead_files(struct qs_store *store)
{
    while (store->paging.dead_files.next != NULL && !qsi_list_is_empty(&store->paging.dead_files)) {
        struct qsi_dead_file *dead =
            QSI_LIST_OWNER(store->paging.dead_files.next, struct qsi_dead_file, in_store);
        qsi_list_remove(&dead->in_store);
        qsi_free(dead);
    }
}

struct release {
    struct qs_store *store;
    uint32_t entries; /* of a segment */
    struct qsi_body_ref *refs;
    uint32_t count, capacity;
    bool out_of_memory;
};

static void collect_ref(void *context, uint32_t slot, const struct qsi_body_ref *ref)
{
    struct release *release = context;

    (void)slot;
    if (release->count == release->capacity) {
        struct qsi_body_ref *grown =
            qsi_grow(release->refs, &release->capacity, 256, sizeof *grown);
        if (grown == NULL) {
            release->out_of_memory = true;
            return;
        }
        release->refs = grown;
    }
    release->refs[release->count++] = *ref;
}

/* Which messages of a retired segment were settled without their state in memory. */
static qs_status add_rest(struct qs_store *store, struct qsi_index *index, uint32_t entries,
                          const struct qsi_segment_file *file, uint32_t given_end, uint64_t *wanted,
                          qs_error *error)
{
    uint32_t words = qsi_bitmap_words(entries);
    struct qsi_segment_state state = {.settled = qsi_zalloc(words * sizeof(uint64_t)),
                                      .seen = qsi_zalloc(words * sizeof(uint64_t))};
    uint32_t end = given_end > 0 ? given_end : entries;
    uint32_t columns;
    qs_status status = QS_ENOMEM;

    if (state.settled != NULL && state.seen != NULL) {
        status = qsi_segment_read_state(index, file, &state, &columns, error);
    }
    for (uint32_t i = 0; status == QS_OK && i < words; i++) {
        uint32_t first = i * QSI_WORD_BITS;
        wanted[i] |= ~state.settled[i] & qsi_low_bits(end > first ? end - first : 0);
    }
    qsi_free(state.settled);
    qsi_free(state.seen);
    return qsi_pass_over(store, status);
}

/* What cannot be read refers to nothing: its bodies stay until the store is salvaged. */
static qs_status read_file_refs(struct qsi_index *index, const struct qsi_segment_file *file,
                                const uint64_t *wanted, struct release *release, qs_error *error)
{
    qs_status status = QS_OK;

    if (file->heap_end > 0) {
        status = qsi_segment_read_refs(index, file, wanted, collect_ref, release, error);
    }
    return qsi_pass_over(release->store, status);
}

/* Copies of a segment's file descriptions, and of what is read from them: both may change while the
 * lock is released. */
struct segment_files {
    struct qsi_segment_file file, transient_file;
    struct qsi_former_file *formers;
    uint32_t former_count;
    uint32_t given_end;
    bool of_rest, of_transients; /* wants also unsettled messages */
};

static qs_status copy_files(struct segment_files *files, const struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex)
{
    size_t bytes = segment->former_count * sizeof *files->formers;

    *files = (struct segment_files){.file = segment->file,
                                    .transient_file = segment->transient_file,
                                    .former_count = segment->former_count,
                                    .given_end = segment->given_end,
                                    .of_rest = segment->release_rest,
                                    .of_transients = segment->release_transients};
    if (bytes > 0) {
        files->formers = qsi_alloc(bytes);
        if (files->formers == NULL) {
            return QS_ENOMEM;
        }
        memcpy(files->formers, segment->formers, bytes);
    }
    return QS_OK;
}

/* Slots [from, to) alone. */
static void cut_bitmap(uint64_t *bits, const uint64_t *all, uint32_t words, uint32_t from,
                       uint32_t to)
{
    for (uint32_t i = 0; i < words; i++) {
        uint32_t first = i * QSI_WORD_BITS;
        bits[i] = all[i] & qsi_low_bits(to > first ? to - first : 0) &
                  ~qsi_low_bits(from > first ? from - first : 0);
    }
}

/* In the segment's file and its former files, each of which has slots of its own; or in the
 * transient ones. */
static qs_status read_refs(struct qsi_index *index, const struct segment_files *files,
                           bool of_transients, const uint64_t *wanted, uint32_t words,
                           struct release *release, qs_error *error)
{
    uint64_t *some = qsi_alloc(words * sizeof *some);
    qs_status status = QS_OK;
    uint32_t from = 0;

    if (some == NULL) {
        return qsi_fail(error, QS_ENOMEM, "references");
    }
    for (uint32_t i = 0; status == QS_OK && i < files->former_count; i++) {
        const struct qsi_former_file *former = &files->formers[i];
        if (former->of_transients == of_transients) {
            cut_bitmap(some, wanted, words, from, former->end);
            from = former->end > from ? former->end : from;
            status = read_file_refs(index, &former->file, some, release, error);
        }
    }
    if (status == QS_OK) {
        cut_bitmap(some, wanted, words, from, words * QSI_WORD_BITS);
        status = read_file_refs(index, of_transients ? &files->transient_file : &files->file, some,
                                release, error);
    }
    qsi_free(some);
    return status;
}

/* Takes the notes: messages that are settled from now on are noted anew.  NULL: there is no memory,
 * and the notes stay. */
static uint64_t *take_releases(struct qsi_segment *segment, uint32_t words)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t *wanted = qsi_zalloc(words * sizeof *wanted);

    if (wanted != NULL && segment->has_releases) {
        memcpy(wanted, segment->releases, words * sizeof *wanted);
        memset(segment->releases, 0, words * sizeof *wanted);
        segment->has_releases = false;
    }
    return wanted;
}

/* Messages that could not be read are dropped another time, with those settled since. */
static void want_again(struct qsi_segment *segment, const uint64_t *wanted, uint32_t words)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (segment->releases == NULL) { /* nothing was noted: the rest will be read again */
        return;
    }
    for (uint32_t i = 0; i < words; i++) {
        segment->releases[i] |= wanted[i];
    }
    segment->has_releases = true;
}

/* Without the lock.  The references of settled messages of a segment; the first *durable_count_out
 * are those of journalled ones. */
static qs_status read_released(struct release *release, const struct segment_files *files,
                               bool is_durable, uint64_t *wanted, uint32_t *durable_count_out,
                               qs_error *error)
{
    struct qs_store *store = release->store;
    struct qsi_index *index = is_durable ? store->index : store->transient_index;
    uint32_t entries = release->entries;
    uint32_t words = qsi_bitmap_words(entries);

    *durable_count_out = 0;
    if (files->of_rest) {
        QS_TRY(add_rest(store, index, entries, &files->file, files->given_end, wanted, error));
    }
    if (files->of_transients) {
        QS_TRY(add_rest(store, store->transient_index, entries, &files->transient_file, 0, wanted,
                        error));
    }
    QS_TRY(read_refs(index, files, false, wanted, words, release, error));
    if (is_durable) { /* the others of a durable queue end with the process */
        *durable_count_out = release->count;
        QS_TRY(read_refs(store->transient_index, files, true, wanted, words, release, error));
    }
    return release->out_of_memory ? qsi_fail(error, QS_ENOMEM, "references of settled messages")
                                  : QS_OK;
}

/* Releases the lock meanwhile.  Reads the references of settled messages of a segment, and
 * drops them: all or none. */
static qs_status release_segment(struct qs_store *store, struct qsi_segment *segment,
                                 bool is_durable, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t words = qsi_bitmap_words(store->shared.entries);
    struct release release = {.store = store, .entries = store->shared.entries};
    struct segment_files files;
    uint32_t durable_count;
    uint64_t *wanted;
    qs_status status;

    if (!segment->has_releases && !segment->release_rest && !segment->release_transients) {
        return QS_OK;
    }
    if (copy_files(&files, segment) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "references");
    }
    wanted = take_releases(segment, words);
    if (wanted == NULL) {
        qsi_free(files.formers);
        return qsi_fail(error, QS_ENOMEM, "references");
    }
    segment->busy += 1;
    store->paging.releasing += 1;
    qsi_store_unlock(store);
    status = read_released(&release, &files, is_durable, wanted, &durable_count, error);
    qsi_free(files.formers);
    qsi_store_lock(store);
    QS_DCHECK(segment->busy > 0);
    segment->busy -= 1;
    QS_DCHECK(store->paging.releasing > 0);
    store->paging.releasing -= 1;
    qsi_cond_broadcast(&store->paging.done);
    if (status == QS_OK) {
        for (uint32_t i = 0; i < release.count; i++) {
            qsi_message_store_drop_ref(store->messages, &release.refs[i], i >= durable_count);
        }
    } else {
        want_again(segment, wanted, words);
    }
    qsi_free(wanted);
    qsi_free(release.refs);
    return status;
}

void qsi_bury_file(struct qs_store *store, struct qsi_index *index,
                   const struct qsi_segment_file *file, struct qsi_dead_file *dead)
{
    QS_ASSERT_HELD(&store->mutex);
    if (file->heap_end == 0) {
        qsi_free(dead);
        return;
    }
    if (dead != NULL) {
        add_dead_file(store, dead, file);
        return;
    }
    qsi_store_unlock(store);
    if (qsi_segment_remove(index, file, NULL) != QS_OK) {
        /* The next open removes what no checkpoint names. */
    }
    qsi_store_lock(store);
}

/* Releases the lock meanwhile.  For segments that still have live messages. */
static qs_status release_settled(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_list *releasing = &store->shared.releasing;
    qs_status status = QS_OK;

    while (status == QS_OK && !qsi_list_is_empty(releasing)) {
        struct qsi_segment *segment =
            QSI_LIST_OWNER(releasing->next, struct qsi_segment, in_shared);
        struct qsi_queue *queue = segment->queue;
        struct qsi_store_queue *owner = qsi_queue_of_container(&queue->container);
        qsi_list_remove(&segment->in_shared);
        owner->jobs += 1;
        status = release_segment(store, segment, queue->container.durable, error);
        if (status != QS_OK && qsi_list_is_empty(&segment->in_shared)) {
            qsi_list_push_back(releasing, &segment->in_shared);
        }
        qsi_segment_retire_if_done(queue, segment);
        qsi_pager_job_end(store, owner);
    }
    return status;
}

/* Reserves memory to note that these files are dead, if a checkpoint names them. */
static qs_status reserve_dead_files(struct qsi_list *reserve, const struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t count = segment->named && segment->file.heap_end > 0 ? 1 : 0;

    for (uint32_t i = 0; i < segment->former_count; i++) {
        count += segment->formers[i].named && !segment->formers[i].of_transients ? 1 : 0;
    }
    while (count-- > 0) {
        struct qsi_dead_file *dead = qsi_zalloc(sizeof *dead);
        if (dead == NULL) {
            return QS_ENOMEM;
        }
        qsi_list_push_back(reserve, &dead->in_store);
    }
    return QS_OK;
}

static struct qsi_dead_file *take_reserved(struct qsi_list *reserve)
{
    struct qsi_dead_file *dead = QSI_LIST_OWNER(reserve->next, struct qsi_dead_file, in_store);

    qsi_list_remove(&dead->in_store);
    return dead;
}

/* Releases the lock meanwhile. */
static void bury_all(struct qs_store *store, const struct qsi_segment *segment,
                     struct qsi_list *reserve) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_index *index = segment->is_durable ? store->index : store->transient_index;
    bool is_named = segment->named && segment->file.heap_end > 0;

    qsi_bury_file(store, index, &segment->file, is_named ? take_reserved(reserve) : NULL);
    qsi_bury_file(store, store->transient_index, &segment->transient_file, NULL);
    for (uint32_t i = 0; i < segment->former_count; i++) {
        const struct qsi_former_file *former = &segment->formers[i];
        is_named = former->named && !former->of_transients;
        qsi_bury_file(store, former->of_transients ? store->transient_index : index, &former->file,
                      is_named ? take_reserved(reserve) : NULL);
    }
}

/* Releases the lock meanwhile.  Without memory everything stays, to be tried again. */
static qs_status retire(struct qs_store *store, struct qsi_segment *segment, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_list reserve;
    qs_status status;

    qsi_list_init(&reserve);
    status = reserve_dead_files(&reserve, segment);
    if (status != QS_OK) {
        qsi_fail(error, status, "a segment without messages");
    } else {
        status = release_segment(store, segment, segment->is_durable, error);
    }
    if (status == QS_OK) {
        bury_all(store, segment, &reserve);
        qsi_segment_free(segment);
    }
    while (!qsi_list_is_empty(&reserve)) {
        qsi_free(take_reserved(&reserve));
    }
    return status;
}

/* Releases the lock meanwhile.  For segments without live messages, whose files are removed. */
static qs_status release_retired(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_list *retired = &store->shared.retired;
    qs_status status = QS_OK;

    while (status == QS_OK && !qsi_list_is_empty(retired)) {
        struct qsi_segment *segment = QSI_LIST_OWNER(retired->next, struct qsi_segment, in_shared);
        qsi_list_remove(&segment->in_shared);
        status = retire(store, segment, error);
        if (status != QS_OK) {
            qsi_list_push_back(retired, &segment->in_shared);
        }
    }
    return status;
}

qs_status qsi_pager_release(struct qs_store *store, qs_error *error)
{
    qs_status status = release_settled(store, error);

    QS_ASSERT_HELD(&store->mutex);
    if (status == QS_OK) {
        status = release_retired(store, error);
    }
    return status;
}
