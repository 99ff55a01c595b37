/* A stream with rows that were published, then some of two staged files, then others. */
#ifndef ADOPTION_SCENE_H
#define ADOPTION_SCENE_H

#include "qs_test_dirs.h"
#include "stream_scene.h"

#define BEFORE 10
#define IN_FILE 20
#define ADOPTED_END (BEFORE + 2 * IN_FILE)
#define ADOPTION_BUDGET (64 << 20)
_Static_assert(ADOPTED_END < ROWS, "some come behind");

#ifndef STAGE
#define STAGE "stage"
#endif

static const char *const staged_paths[] = {STAGE "/a.qsb", STAGE "/b.qsb"};

/* That the rows are published to. */
static const char *staged_exchange = "";

static inline qs_slice adoption_key(void)
{
    return text("key");
}

static inline void make_stage(qs_env *env)
{
    env->dir_close(env, qs_test_make_root(env, STAGE));
}

static inline void remove_staged(qs_env *env)
{
    qs_dir *dir = qs_test_open_dir(env, STAGE, "");

    for (int i = 0; i < 2; i++) {
        QS_CHECK_OK(env->remove(env, dir, strrchr(staged_paths[i], '/') + 1, QS_ERROR));
    }
    env->dir_close(env, dir);
}

static inline qs_status put_rows(qs_staged_writer *writer, uint64_t first, uint64_t count)
{
    struct qs_test_batch rows;
    qs_status status;

    qs_test_batch_init(&rows);
    for (uint64_t id = first; id < first + count; id++) {
        crash_body_fill(qs_test_batch_add(&rows, "s", ROW_BYTES), id, ROW_BYTES);
    }
    (void)qs_test_batch_finish(&rows);
    status = qs_staged_writer_put(writer, &rows.schema, &rows.array, QS_ERROR);
    qs_test_batch_fini(&rows);
    return status;
}

/* In two blocks. */
static inline qs_status stage_file(qs_env *env, int file)
{
    const qs_staged_options options = {.exchange = text(staged_exchange)};
    qs_staged_writer *writer;
    uint64_t first = BEFORE + (uint64_t)file * IN_FILE;
    qs_status status;

    QS_TRY(qs_staged_writer_open(&writer, STAGE, strrchr(staged_paths[file], '/') + 1, &options,
                                 env, QS_ERROR));
    status = put_rows(writer, first, IN_FILE / 2);
    if (status == QS_OK) {
        status = put_rows(writer, first + IN_FILE / 2, IN_FILE / 2);
    }
    if (status != QS_OK) {
        qs_status ignored = qs_staged_writer_close(writer, false, NULL, NULL);
        (void)ignored;
        return status;
    }
    return qs_staged_writer_close(writer, true, NULL, QS_ERROR);
}

static inline qs_status adopt_files(qs_store *store, qs_adoption *adoption_out)
{
    return qs_store_adopt(store, staged_paths, 2, adoption_key(), QS_MANDATORY, adoption_out,
                          QS_ERROR);
}

static inline qs_status publish_upto(struct scene *scene, uint64_t from, uint64_t end)
{
    for (uint64_t id = from; id < end; id++) {
        publish_one(scene, "", id);
    }
    return qs_store_sync(scene->store, QS_ERROR);
}

/* How many rows the stream has, which are the first ones; UINT64_MAX: something is wrong with
 * them. */
static inline uint64_t count_rows(qs_store *store)
{
    const qs_stream_read read = {.start = {.at = QS_STREAM_FIRST},
                                 .columns = QS_STREAM_COLUMN_BODY};
    struct ArrowSchema schema;
    struct ArrowArray array;
    qs_stream_reader *reader;
    uint64_t count = 0;
    qs_status status = qs_stream_reader_open(&reader, store, text("s"), &read, QS_ERROR);

    if (status != QS_OK) {
        return UINT64_MAX;
    }
    while ((status = qs_stream_reader_next(reader, 100, UINT64_MAX, 0, &schema, &array,
                                           QS_ERROR)) == QS_OK) {
        const int32_t *ends = array.children[1]->buffers[1];
        for (int64_t i = 0; i < array.length && count != UINT64_MAX; i++) {
            qs_slice body = {(const char *)array.children[1]->buffers[2] + ends[i],
                             (size_t)(ends[i + 1] - ends[i])};
            count = crash_body_is_right(body, count, ROW_BYTES) ? count + 1 : UINT64_MAX;
        }
        array.release(&array);
        schema.release(&schema);
    }
    qs_stream_reader_close(reader);
    return status == QS_EEMPTY ? count : UINT64_MAX;
}

/* What must hold of a disk: the key and the rows that it stands for are there together, or neither
 * is, and the files are adopted then. */
struct promise {
    uint64_t rows; /* that are durable */
    bool is_staged;
};

static inline const char *wrong_in(qs_store *store, const struct promise *promise)
{
    uint64_t count = count_rows(store);
    qs_adoption adoption;
    bool is_known;

    if (count == UINT64_MAX || count < promise->rows) {
        return "rows";
    }
    QS_CHECK_OK(qs_store_transaction_known(store, adoption_key(), &is_known, QS_ERROR));
    if (is_known != (count > BEFORE) || (is_known && count < ADOPTED_END)) {
        return "key and rows";
    }
    if (is_known || !promise->is_staged || count < BEFORE) {
        return NULL;
    }
    if (adopt_files(store, &adoption) != QS_OK || !adoption.committed ||
        count_rows(store) != ADOPTED_END) {
        return "adopting again";
    }
    return NULL;
}

/* NULL: nothing. */
static inline const char *wrong_on(qs_env *mem, const void *promised)
{
    const struct promise *promise = promised;
    const char *wrong = "opening";
    qs_options options = crash_options();
    qs_stream_status status;
    struct crash_env env;
    qs_store *store;

    crash_env_init(&env, mem, CRASH_NO_BUG);
    if (qs_store_open(&store, CRASH_PATH, &options, &env.env, QS_ERROR) == QS_OK) {
        if (qs_store_stream_status(store, text("s"), &status, QS_ERROR) != QS_OK) {
            wrong = promise->rows > 0 ? "the stream" : NULL;
        } else {
            wrong = wrong_in(store, promise);
        }
        env.is_dead = true;
        (void)qs_store_close(store, NULL);
    }
    return wrong;
}

#endif
