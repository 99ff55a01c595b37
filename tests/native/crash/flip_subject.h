/* Stores to be damaged: their files, what they promise, and what the last commit wrote. */
#ifndef FLIP_SUBJECT_H
#define FLIP_SUBJECT_H

#include "block.h"
#include "crash_run.h"
#include "qs_test_dirs.h"

#define FILES_MAX 64
#define NAME_BYTES 64
#define COMMITS_TO_ROLL 18 /* fill the first file of a session */

struct damaged_file {
    const char *dir; /* "" or a directory below the store's */
    char name[NAME_BYTES];
    uint64_t bytes;
    uint64_t undecidable_from;   /* to undecidable_to: the last commit's */
    uint64_t undecidable_length; /* shorter, and something is lost that was there before it */
    uint64_t undecidable_to;
    bool is_continuation; /* a journal file that a session went on in */
};

/* A store on a disk, what it promises, and what it promises without its last commit. */
struct subject {
    const char *name;
    qs_env *mem;
    struct crash_model model;
    struct crash_model lenient;
    bool has_rolled; /* the last commit is in a file that its session went on in */
    struct damaged_file files[FILES_MAX];
    uint32_t file_count;
};

/* ---- files ---- */

struct listing {
    struct subject *subject;
    const char *dir;
};

static inline bool add_file(void *context, const char *name)
{
    struct listing *listing = context;
    struct subject *subject = listing->subject;
    struct damaged_file *file = &subject->files[subject->file_count];

    if (strchr(name, '.') != NULL || strcmp(name, "MANIFEST") == 0) { /* no directory, not LOCK */
        QS_CHECK(subject->file_count < FILES_MAX);
        file->dir = listing->dir;
        snprintf(file->name, sizeof file->name, "%s", name);
        subject->file_count++;
    }
    return true;
}

static inline void measure_file(qs_env *env, struct damaged_file *file)
{
    qs_dir *dir = qs_test_open_dir(env, CRASH_PATH, file->dir);

    file->bytes = qs_test_file_bytes(env, dir, file->name);
    env->dir_close(env, dir);
}

static inline void list_files(struct subject *subject)
{
    static const char *const dirs[] = {"", "journal", "messages", "index", "checkpoint"};

    for (int i = 0; i < 5; i++) {
        qs_env *mem = subject->mem;
        qs_dir *dir = qs_test_open_dir(mem, CRASH_PATH, dirs[i]);
        struct listing listing = {subject, dirs[i]};

        QS_CHECK_OK(mem->dir_list(mem, dir, add_file, &listing, QS_ERROR));
        mem->dir_close(mem, dir);
    }
    for (uint32_t i = 0; i < subject->file_count; i++) {
        measure_file(subject->mem, &subject->files[i]);
    }
}

/* ---- the stores ---- */

static inline void publish_and_sync(struct crash_work *work, int queue, uint32_t bytes)
{
    crash_publish(work, CRASH_PLAIN_CHANNEL, &work->model->queues[queue], bytes, true);
    crash_work_sync(work);
}

/* Two sessions, so that one is decided; acks, a transaction, a fan-out, bodies in the store. */
static inline void fill(struct crash_work *work, uint32_t commit_count)
{
    crash_set_up(work);
    crash_bind(work, &work->model->queues[0]);
    publish_and_sync(work, 0, 40);
    publish_and_sync(work, 1, 300);
    crash_work_reopen(work);
    crash_fan_out(work, CRASH_PLAIN_CHANNEL, 60);
    crash_work_sync(work);
    crash_get(work, &work->model->queues[0], CRASH_PLAIN_CHANNEL, QS_NO_ACK);
    for (uint32_t i = 0; i < commit_count; i++) {
        publish_and_sync(work, (int)(i % 4), i % 2 == 0 ? 50 : 260);
    }
    crash_tx(work, false);
}

static inline void set_lazy(struct crash_work *work, struct crash_queue *queue)
{
    CRASH_CHANGE(work, queue->is_lazy, CRASH_PRESENT, "set mode",
                 qs_store_set_queue_mode(work->store, crash_queue_name(queue), true, QS_ERROR));
}

/* Segments and message files, some of them written again with what was left in them, behind a
 * checkpoint that others name or carry; then more commits. */
static inline void fill_checkpointed(struct crash_work *work, uint32_t commit_count)
{
    crash_set_up(work);
    set_lazy(work, &work->model->queues[0]);
    set_lazy(work, &work->model->queues[1]);
    crash_publish_rows(work, CRASH_PLAIN_CHANNEL, &work->model->queues[0], 40, 120);
    for (int i = 0; i < 20; i++) {
        crash_publish(work, CRASH_PLAIN_CHANNEL, &work->model->queues[1], 900, true);
    }
    crash_work_reopen(work);
    for (int i = 0; i < 30; i++) {
        crash_get(work, &work->model->queues[0], CRASH_PLAIN_CHANNEL, i % 8 == 7 ? 0 : QS_NO_ACK);
    }
    for (int i = 0; i < 18; i++) {
        crash_get(work, &work->model->queues[1], CRASH_PLAIN_CHANNEL, i % 8 == 3 ? 0 : QS_NO_ACK);
    }
    crash_requeue_all(work, CRASH_PLAIN_CHANNEL);
    publish_and_sync(work, 2, 60);
    crash_work_checkpoint(work);
    QS_CHECK(crash_compact(work->store, CRASH_COMPACTIONS_MAX, &(qs_status){QS_OK}));
    crash_work_checkpoint(work);
    for (uint32_t i = 0; i < commit_count; i++) {
        publish_and_sync(work, (int)(i % 4), i % 2 == 0 ? 50 : 260);
    }
    crash_get(work, &work->model->queues[0], CRASH_PLAIN_CHANNEL, QS_NO_ACK);
    crash_tx(work, false);
}

static inline void last_commit(struct crash_work *work)
{
    crash_publish(work, CRASH_PLAIN_CHANNEL, &work->model->queues[2], 45, true);
    crash_publish(work, CRASH_PLAIN_CHANNEL, &work->model->queues[3], 400, true);
}

/* The last commit's messages may be there or not. */
static inline void make_lenient(struct crash_model *lenient, const struct crash_model *model)
{
    uint64_t first_id = model->next_id - 2;

    crash_model_copy(lenient, model);
    for (int i = 0; i < CRASH_QUEUES; i++) {
        for (uint32_t k = 0; k < lenient->queues[i].count; k++) {
            if (lenient->queues[i].copies[k].id >= first_id) {
                lenient->queues[i].copies[k].publish_lsn = CRASH_UNDER_WAY;
            }
        }
    }
}

/* Tells what a commit wrote from what differs on the disk before and after it; a block or body
 * may end in zeros, which differ from nothing. */
static inline void note_undecidable(struct subject *subject, qs_env *before)
{
    static uint8_t old_bytes[1 << 17], new_bytes[1 << 17];

    for (uint32_t i = 0; i < subject->file_count; i++) {
        struct damaged_file *file = &subject->files[i];
        qs_dir *old_dir = qs_test_open_dir(before, CRASH_PATH, file->dir);
        qs_dir *new_dir = qs_test_open_dir(subject->mem, CRASH_PATH, file->dir);
        size_t old_count = 0, new_count;
        qs_file *handle;

        if (before->open(before, old_dir, file->name, QS_OPEN_READ, &handle, NULL) == QS_OK) {
            before->read(before, handle, old_bytes, sizeof old_bytes, 0, &old_count, NULL);
            before->close(before, handle);
        }
        new_count =
            qs_test_read_file(subject->mem, new_dir, file->name, 0, new_bytes, sizeof new_bytes);
        before->dir_close(before, old_dir);
        subject->mem->dir_close(subject->mem, new_dir);
        file->undecidable_from = file->undecidable_length = UINT64_MAX;
        for (size_t at = 0; at < new_count; at++) {
            if (at >= old_count || old_bytes[at] != new_bytes[at]) {
                if (file->undecidable_from == UINT64_MAX) {
                    file->undecidable_from = file->undecidable_length = at;
                    /* Without the padding in front of it, what was there before is whole. */
                    while (file->undecidable_length > 0 &&
                           new_bytes[file->undecidable_length - 1] == 0) {
                        file->undecidable_length--;
                    }
                }
                file->is_continuation = subject->has_rolled && strcmp(file->dir, "journal") == 0;
                file->undecidable_to = (at / QSI_BLOCK_ALIGN + 1) * QSI_BLOCK_ALIGN;
            }
        }
    }
}

static inline bool has_file(const struct subject *subject, const char *dir, const char *part)
{
    for (uint32_t i = 0; i < subject->file_count; i++) {
        if (strcmp(subject->files[i].dir, dir) == 0 &&
            strstr(subject->files[i].name, part) != NULL) {
            return true;
        }
    }
    return false;
}

static inline void make_subject(struct subject *subject, const char *name, uint32_t commit_count,
                                bool is_closed, bool is_checkpointed)
{
    struct crash_report report = {.told_max = 10, .cut = "preparing"};
    struct crash_env env;
    struct crash_work work = {
        .env = &env, .model = &subject->model, .report = &report, .random = 5};
    qs_env *before;

    *subject = (struct subject){
        .name = name, .mem = qsi_env_mem_create(1), .has_rolled = commit_count >= COMMITS_TO_ROLL};
    crash_model_init(&subject->model);
    crash_env_init(&env, subject->mem, CRASH_NO_BUG);
    if (is_checkpointed) {
        work.options = crash_options();
        work.options.segment_entries = 16;
    }
    QS_CHECK(crash_open_store(&work));
    if (is_checkpointed) {
        fill_checkpointed(&work, commit_count);
    } else {
        fill(&work, commit_count);
    }
    before = qsi_env_mem_clone(subject->mem, 1);
    last_commit(&work);
    crash_work_sync(&work);
    QS_CHECK(!work.is_over && report.violations == 0 && before != NULL);
    env.is_dead = work.is_over = !is_closed;
    crash_close_store(&work);
    list_files(subject);
    QS_CHECK(!is_checkpointed || (has_file(subject, "index", "-00000001.seg") &&
                                  has_file(subject, "index", "-00000000.seg") &&
                                  has_file(subject, "messages", "-0001.msg")));
    make_lenient(&subject->lenient, &subject->model);
    if (is_closed) {
        for (uint32_t i = 0; i < subject->file_count; i++) {
            subject->files[i].undecidable_from = UINT64_MAX;
            subject->files[i].undecidable_length = UINT64_MAX;
        }
    } else {
        note_undecidable(subject, before);
    }
    qsi_env_mem_destroy(before);
}

#endif
