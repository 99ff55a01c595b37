/* Damage to block files: every byte of every file of a stream with a bit flipped, every file cut at
 * every length, every file gone.
 *
 * Either the store is refused, or reading tells of the block that is damaged and goes on behind it,
 * or the damage is harmless.  No row is ever wrong, at another offset, or missing in silence; and
 * verifying finds what opening the store and reading everything finds, no more and no less.
 *
 * Arguments: seed, step from one damaged byte of padding to the next. */
#include "crash_log.h"
#include "crash_work.h"
#include "qs_test_dirs.h"

#ifdef __SANITIZE_ADDRESS__
#define BYTE_STEP 13 /* bytes from one that is damaged to the next */
#else
#define BYTE_STEP 1
#endif

enum damage { FLIP, TRUNCATE, DELETE };

struct subject {
    qs_env *mem;
    struct log_model model;
    struct qs_test_names files;
};

struct outcomes {
    uint64_t refused, told, harmless, violations, disagreements;
};

struct reading {
    struct crash_report report;
    bool is_refused; /* the store */
    bool is_damaged; /* some block */
};

/* ---- files ---- */

static qs_dir *open_streams(qs_env *env)
{
    return qs_test_open_dir(env, CRASH_PATH, "streams");
}

static uint64_t read_file(qs_env *env, const char *name, uint8_t *data, size_t room)
{
    qs_dir *dir = open_streams(env);
    size_t done = qs_test_read_file(env, dir, name, 0, data, room);

    QS_CHECK(done < room);
    env->dir_close(env, dir);
    return done;
}

static void do_damage(qs_env *env, const char *name, enum damage damage, uint64_t offset,
                      uint8_t byte)
{
    qs_dir *dir = open_streams(env);

    if (damage == DELETE) {
        QS_CHECK_OK(env->remove(env, dir, name, QS_ERROR));
    } else if (damage == FLIP) {
        qs_test_write_file(env, dir, name, offset, &byte, 1);
    } else {
        qs_test_truncate_file(env, dir, name, offset);
    }
    env->dir_close(env, dir);
}

/* ---- a store: sealed segments, one that grows, blocks of many rows and of one ---- */

static void make_subject(struct subject *subject)
{
    struct crash_report report = {.told_max = 10, .cut = "preparing"};
    struct crash_env env;
    struct log_work work = {.env = &env,
                            .model = &subject->model,
                            .report = &report,
                            .random = 5,
                            .options = crash_options()};
    qs_dir *dir;

    subject->mem = qsi_env_mem_create(1);
    log_model_init(&subject->model);
    crash_env_init(&env, subject->mem, CRASH_NO_BUG);
    QS_CHECK(log_open_store(&work));
    log_set_up(&work);
    for (int i = 0; i < 4; i++) {
        log_publish_batch(&work, 0, 8, i < 2);
        log_publish_batch(&work, 2, 6, false);
        log_sync(&work);
        log_flush(&work, 7, true);
    }
    log_checkpoint(&work);
    log_publish_batch(&work, 2, 5, false);
    log_flush(&work, 7, true);
    log_checkpoint(&work);
    log_publish_batch(&work, 2, 2, false); /* this is in the journal */
    log_close_store(&work);
    QS_CHECK(!work.is_over && report.violations == 0);
    dir = open_streams(subject->mem);
    QS_CHECK(qs_test_list(&subject->files, subject->mem, dir, ".str") >= 3);
    subject->mem->dir_close(subject->mem, dir);
}

/* ---- one case ---- */

static void check_row(struct reading *reading, const struct log_life *life,
                      const struct ArrowArray *array, int64_t i, uint64_t *offset_io, bool *gap_io)
{
    uint64_t offset = ((const uint64_t *)array->children[0]->buffers[1])[i];
    const int32_t *ends = array->children[1]->buffers[1];
    qs_slice body = {(const char *)array->children[1]->buffers[2] + ends[i],
                     (size_t)(ends[i + 1] - ends[i])};

    if (offset < *offset_io || (offset > *offset_io && !*gap_io) || offset >= life->count) {
        crash_violation(&reading->report, "offset %" PRIu64 " comes where %" PRIu64 " should",
                        offset, *offset_io);
    } else if (body.bytes != life->rows[offset].body_bytes ||
               !crash_body_is_right(body, life->rows[offset].id, (uint32_t)body.bytes)) {
        crash_violation(&reading->report, "the row at %" PRIu64 " is wrong", offset);
    }
    *offset_io = offset + 1;
    *gap_io = false;
}

static void read_stream(struct reading *reading, struct log_model *model, qs_store *store,
                        uint32_t stream)
{
    const struct log_state *state = &model->states[model->last];
    const struct log_life *life = log_life_of(model, state, stream);
    const qs_stream_read read = {.start = {.at = QS_STREAM_FIRST},
                                 .columns = QS_STREAM_COLUMN_BODY};
    uint64_t offset = state->streams[stream].first, calls = 0;
    struct ArrowSchema schema;
    struct ArrowArray array;
    qs_stream_reader *reader;
    bool gap = false;
    qs_status status;

    QS_CHECK_OK(qs_stream_reader_open(&reader, store, log_stream_name(stream), &read, QS_ERROR));
    do {
        status = qs_stream_reader_next(reader, 100, UINT64_MAX, 0, &schema, &array, QS_ERROR);
        for (int64_t i = 0; status == QS_OK && i < array.length; i++) {
            check_row(reading, life, &array, i, &offset, &gap);
        }
        if (status == QS_OK) {
            array.release(&array);
            schema.release(&schema);
        } else if (status == QS_ECORRUPT) {
            reading->is_damaged = gap = true;
        }
        QS_CHECK(++calls < 1000); /* it gets past its damage */
    } while (status == QS_OK || status == QS_ECORRUPT);
    if (status != QS_EEMPTY || (offset != state->streams[stream].next && !gap)) {
        crash_violation(&reading->report, "s%u ends at %" PRIu64 ": %s", stream, offset,
                        qs_status_name(status));
    }
    qs_stream_reader_close(reader);
}

static void read_all(struct reading *reading, struct log_model *model, qs_env *mem)
{
    qs_options options = crash_options();
    struct crash_env env;
    qs_store *store;
    qs_status status;

    crash_env_init(&env, mem, CRASH_NO_BUG);
    status = qs_store_open(&store, CRASH_PATH, &options, &env.env, QS_ERROR);
    if (status != QS_OK) {
        reading->is_refused = true;
        if (status != QS_ECORRUPT || qs_test_error.path[0] == '\0') {
            crash_violation(&reading->report, "refused with %s: %s", qs_status_name(status),
                            qs_test_error.text);
        }
        return;
    }
    for (uint32_t i = 0; i < LOG_STREAMS; i++) {
        read_stream(reading, model, store, i);
    }
    env.is_dead = true;
    (void)qs_store_close(store, NULL);
}

static void try_damage(struct subject *subject, const char *name, enum damage damage,
                       uint64_t offset, uint8_t byte, bool verifies, struct outcomes *outcomes)
{
    struct reading reading = {
        .report = {.told_max = outcomes->violations < 5 ? 3 : 0, .step = offset, .cut = name}};
    qs_env *env = qsi_env_mem_clone(subject->mem, 2);

    do_damage(env, name, damage, offset, byte);
    if (verifies) {
        qs_verified verified;
        qs_env *copy = qsi_env_mem_clone(env, 3);
        qs_status status = qs_store_verify(CRASH_PATH, copy, NULL, &verified, QS_ERROR);

        qsi_env_mem_destroy(copy);
        read_all(&reading, &subject->model, env);
        if ((status != QS_OK) != (reading.is_refused || reading.is_damaged) &&
            outcomes->disagreements++ < 5) {
            printf("%s, damage %d at %" PRIu64 ": verifying says %s, reading %s\n", name, damage,
                   offset, qs_status_name(status), reading.is_damaged ? "damaged" : "whole");
        }
    } else {
        read_all(&reading, &subject->model, env);
    }
    outcomes->violations += reading.report.violations;
    outcomes->refused += reading.is_refused;
    outcomes->told += reading.is_damaged;
    outcomes->harmless += !reading.is_refused && !reading.is_damaged;
    qsi_env_mem_destroy(env);
}

/* Every bit where there is something, one of a byte of padding; and every length likewise. */
static void damage_file(struct subject *subject, const char *name, uint64_t padding_step,
                        struct outcomes *outcomes)
{
    static uint8_t data[1 << 20];
    uint64_t bytes = read_file(subject->mem, name, data, sizeof data);

    for (uint64_t offset = 0; offset < bytes; offset += BYTE_STEP) {
        bool is_padding = data[offset] == 0;
        if (is_padding && offset % padding_step != 0) {
            continue;
        }
        for (uint32_t bit = 0; bit < 8; bit++) {
            if (bit == offset % 8 || (!is_padding && offset % 4 == 0)) {
                try_damage(subject, name, FLIP, offset, (uint8_t)(data[offset] ^ (1u << bit)),
                           bit == offset % 8, outcomes);
            }
        }
        try_damage(subject, name, TRUNCATE, offset, 0, offset % 8 == 0, outcomes);
    }
    try_damage(subject, name, DELETE, 0, 0, true, outcomes);
}

int main(int argc, char **argv)
{
    uint64_t padding_step = argc > 2 ? strtoull(argv[2], NULL, 0) : 61;
    struct outcomes outcomes = {0};
    struct reading whole = {.report = {.told_max = 5, .cut = "whole"}};
    struct subject subject = {0};
    qs_env *copy;

    (void)qs_test_seed(argc, argv);
    make_subject(&subject);
    copy = qsi_env_mem_clone(subject.mem, 2);
    read_all(&whole, &subject.model, copy);
    qsi_env_mem_destroy(copy);
    QS_CHECK(whole.report.violations == 0 && !whole.is_refused && !whole.is_damaged);
    for (uint32_t i = 0; i < subject.files.count; i++) {
        damage_file(&subject, subject.files.items[i], padding_step, &outcomes);
    }
    printf("%u files: %" PRIu64 " refused, %" PRIu64 " told, %" PRIu64 " harmless, %" PRIu64
           " violations, %" PRIu64 " judged otherwise by verifying\n",
           subject.files.count, outcomes.refused, outcomes.told, outcomes.harmless,
           outcomes.violations, outcomes.disagreements);
    QS_CHECK(outcomes.violations == 0 && outcomes.disagreements == 0 && outcomes.told > 1000);
    log_model_fini(&subject.model);
    qsi_env_mem_destroy(subject.mem);
    return 0;
}
