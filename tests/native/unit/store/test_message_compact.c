/* Compaction: what it keeps, what it gives back, and what it makes of damage.
 *
 * Method: files of 64 KiB with up to six bodies; most die, the rest must read back under the next
 * generation, before and after a recovery from a checkpoint. */
#include "counts_fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define BODY 10000u /* six fit a file */

static const char *const first_name = "0000000001.msg";
static const char *const second_name = "0000000001-0001.msg";

static bool has_name(struct fixture *fixture, const char *name)
{
    qs_file *file;

    if (fixture->env->open(fixture->env, fixture->dir, name, QS_OPEN_READ, &file, NULL) != QS_OK) {
        return false;
    }
    fixture->env->close(fixture->env, file);
    return true;
}

/* Compacts what is worth it most; false: nothing was worth it. */
static bool compact(struct fixture *fixture)
{
    struct qsi_compaction *job;

    QS_CHECK_OK(qsi_message_store_compact_begin(fixture->store, &job, QS_ERROR));
    if (job == NULL) {
        return false;
    }
    QS_CHECK_OK(qsi_message_store_compact_run(fixture->store, job, QS_ERROR));
    qsi_message_store_compact_end(fixture->store, job, true);
    return true;
}

/* Six bodies in file 1, settled; bodies 1 and 4 live on. */
static void make_sparse(struct fixture *fixture, struct qsi_body_ref refs[6])
{
    for (uint32_t i = 0; i < 6; i++) {
        refs[i] = put_counted(fixture, BODY, i, 1);
    }
    settle_all(fixture);
    for (uint32_t i = 0; i < 6; i++) {
        if (i != 1 && i != 4) {
            drop(fixture, &refs[i]);
        }
    }
}

static void check_sparse(struct fixture *fixture, const struct qsi_body_ref refs[6])
{
    for (uint32_t i = 1; i < 6; i += 3) {
        QS_CHECK_OK(get(fixture, &refs[i], i, QS_ERROR));
        QS_CHECK_OK(qsi_message_store_check(fixture->store, &refs[i], QS_ERROR));
        QS_CHECK_OK(qsi_message_store_locate(fixture->store, &refs[i], QS_ERROR));
    }
}

static void test_live_bodies_move_and_their_references_hold(void)
{
    qs_env *env = qsi_env_mem_create(1);
    struct checkpoint checkpoint = {0};
    struct fixture fixture;
    struct qsi_body_ref refs[6];
    uint64_t packed;

    start(&fixture, env);
    make_sparse(&fixture, refs);
    packed = qsi_body_packed_bytes(&refs[0]);
    take_checkpoint(&fixture, &checkpoint);
    QS_CHECK(compact(&fixture));
    QS_CHECK(has_name(&fixture, first_name) && has_name(&fixture, second_name));
    QS_CHECK(space_of(&fixture).total_bytes == 4096 + 2 * packed + 6 * 8 + 8);
    QS_CHECK(space_of(&fixture).live_bytes == 2 * packed);
    QS_CHECK(space_of(&fixture).doomed_bytes == 4096 + 6 * 10240);
    check_sparse(&fixture, refs);
    QS_CHECK(get(&fixture, &refs[0], 0, NULL) == QS_ECORRUPT);
    QS_CHECK(!compact(&fixture));

    recover_from(&fixture, &checkpoint); /* which does not know of it */
    QS_CHECK(has_name(&fixture, first_name) && !has_name(&fixture, second_name));
    check_sparse(&fixture, refs);
    QS_CHECK(compact(&fixture));
    QS_CHECK_OK(try_snapshot(&fixture, &checkpoint, QS_ERROR));
    QS_CHECK_OK(qsi_message_store_unseal(fixture.store, false, QS_ERROR));
    QS_CHECK(has_name(&fixture, first_name));
    take_checkpoint(&fixture, &checkpoint);
    QS_CHECK(!has_name(&fixture, first_name) && has_name(&fixture, second_name));
    QS_CHECK(space_of(&fixture).doomed_bytes == 0);
    create_file(&fixture, "0000000001.msg"); /* as if it had not been removed any more */
    create_file(&fixture, "0000000077-0003.msg");
    recover_from(&fixture, &checkpoint);
    QS_CHECK(!has_name(&fixture, first_name) && !has_name(&fixture, "0000000077-0003.msg"));
    check_sparse(&fixture, refs);
    drop(&fixture, &refs[4]);
    QS_CHECK(put_counted(&fixture, BODY, 9, 1).file == 78);
    QS_CHECK(commit(&fixture, NULL) == QS_OK);
    take_checkpoint(&fixture, &checkpoint);
    QS_CHECK(checkpoint.count == 2);
    drop(&fixture, &refs[1]);
    take_checkpoint(&fixture, &checkpoint);
    QS_CHECK(!has_name(&fixture, second_name));
    stop(&fixture);
    qsi_buf_fini(&checkpoint.records);
    qsi_env_mem_destroy(env);
}

static void test_compacted_files_are_compacted_again(void)
{
    enum { COUNT = 40 };
    static const uint32_t first_left[] = {0, 26, 36}; /* before each round */
    qs_env *env = qsi_env_mem_create(1);
    struct checkpoint checkpoint = {0};
    struct fixture fixture;
    struct qsi_body_ref refs[COUNT];

    start(&fixture, env);
    for (uint32_t i = 0; i < COUNT; i++) {
        refs[i] = put_counted(&fixture, 1390 + i % 9, i, 1);
    }
    settle_all(&fixture);
    for (int round = 1; round < 3; round++) {
        for (uint32_t i = first_left[round - 1]; i < first_left[round]; i++) {
            drop(&fixture, &refs[i]);
        }
        QS_CHECK(compact(&fixture));
        for (int recovered = 0; recovered < 2; recovered++) {
            for (uint32_t i = first_left[round]; i < COUNT; i++) {
                QS_CHECK_OK(get(&fixture, &refs[i], i, QS_ERROR));
            }
            take_checkpoint(&fixture, &checkpoint);
            recover_from(&fixture, &checkpoint);
        }
    }
    QS_CHECK(has_name(&fixture, "0000000001-0002.msg") && !has_name(&fixture, second_name));
    stop(&fixture);
    qsi_buf_fini(&checkpoint.records);
    qsi_env_mem_destroy(env);
}

/* Larger than the buffer that records are copied through. */
static void test_large_bodies_move(void)
{
    static const struct qsi_message_store_options large_files = {8u << 20, 2};
    enum { BODY_BYTES = (5 << 20) / 2 };
    qs_env *env = qsi_env_mem_create(1);
    struct fixture fixture;
    struct qsi_body_ref refs[3];
    uint8_t *data = malloc(2 * BODY_BYTES);
    uint8_t *back = data + BODY_BYTES;

    QS_CHECK(data != NULL);
    for (int damaged = 0; damaged < 2; damaged++) {
        start(&fixture, env);
        qsi_message_store_close(fixture.store);
        QS_CHECK_OK(qsi_message_store_open(&fixture.store, env, fixture.dir, test_uuid,
                                           &large_files, QS_ERROR));
        for (uint32_t i = 0; i < 3; i++) {
            const qs_part part = {data, BODY_BYTES - 100};
            struct qsi_place place;

            memset(data, (int)i + 1, BODY_BYTES);
            QS_CHECK_OK(
                qsi_message_store_reserve(fixture.store, 3, BODY_BYTES - 103, &place, QS_ERROR));
            QS_CHECK_OK(
                qsi_message_store_write(fixture.store, &place, &part, 1, &refs[i], QS_ERROR));
            qsi_message_store_add_refs(fixture.store, &refs[i], 1, 0);
            qsi_message_store_mark(fixture.store, &place);
        }
        settle_all(&fixture);
        drop(&fixture, &refs[0]);
        drop(&fixture, &refs[1 + damaged]);
        if (damaged == 1) {
            char name[QSI_MESSAGE_NAME_BYTES];

            qsi_message_name(name, (struct qsi_message_id){refs[1].file, 0});
            overwrite(&fixture, name, refs[1].offset + BODY_BYTES - 200, "x", 1);
        }
        QS_CHECK(compact(&fixture));
        if (damaged == 0) {
            QS_CHECK_OK(qsi_message_store_read(fixture.store, &refs[2], back, QS_ERROR));
            QS_CHECK(memcmp(back + QSI_BODY_HEADER_BYTES, data, BODY_BYTES - 100) == 0);
        } else {
            QS_CHECK(space_of(&fixture).total_bytes == 4096 + 3 * 8 + 8); /* written over, cut */
        }
        stop(&fixture);
    }
    free(data);
    qsi_env_mem_destroy(env);
}

static void test_job_that_is_given_up_leaves_nothing(void)
{
    qs_env *env = qsi_env_mem_create(1);
    struct fixture fixture;
    struct qsi_compaction *job;
    struct qsi_compaction *second;
    struct qsi_body_ref refs[6];

    start(&fixture, env);
    make_sparse(&fixture, refs);
    QS_CHECK_OK(qsi_message_store_compact_begin(fixture.store, &job, QS_ERROR));
    QS_CHECK(job != NULL);
    QS_CHECK_OK(qsi_message_store_compact_begin(fixture.store, &second, QS_ERROR));
    QS_CHECK(second == NULL); /* one job a file */
    QS_CHECK_OK(qsi_message_store_compact_run(fixture.store, job, QS_ERROR));
    qsi_message_store_compact_end(fixture.store, job, false);
    QS_CHECK(has_name(&fixture, first_name) && !has_name(&fixture, second_name));
    check_sparse(&fixture, refs);
    QS_CHECK_OK(qsi_message_store_compact_begin(fixture.store, &job, QS_ERROR));
    qsi_message_store_compact_end(fixture.store, job, true); /* never run */
    check_sparse(&fixture, refs);
    create_file(&fixture, second_name); /* a leftover */
    QS_CHECK(compact(&fixture));
    check_sparse(&fixture, refs);
    stop(&fixture);
    qsi_env_mem_destroy(env);
}

static void test_bodies_dropped_and_files_that_die_during_a_job(void)
{
    qs_env *env = qsi_env_mem_create(1);
    struct checkpoint checkpoint = {0};
    struct fixture fixture;
    struct qsi_compaction *job;
    struct qsi_body_ref refs[6];

    start(&fixture, env);
    make_sparse(&fixture, refs);
    QS_CHECK_OK(qsi_message_store_compact_begin(fixture.store, &job, QS_ERROR));
    drop(&fixture, &refs[4]);
    QS_CHECK_OK(qsi_message_store_compact_run(fixture.store, job, QS_ERROR));
    drop(&fixture, &refs[1]);
    take_checkpoint(&fixture, &checkpoint); /* dead, but a job has it */
    QS_CHECK(has_name(&fixture, first_name));
    qsi_message_store_compact_end(fixture.store, job, true);
    QS_CHECK(space_of(&fixture).file_count == 0);
    take_checkpoint(&fixture, &checkpoint);
    QS_CHECK(!has_name(&fixture, first_name) && !has_name(&fixture, second_name));
    stop(&fixture);
    qsi_buf_fini(&checkpoint.records);
    qsi_env_mem_destroy(env);
}

/* A body that comes to life again during the job, which nobody should do: the old file stays. */
static void test_body_that_was_left_behind_cannot_come_back(void)
{
    qs_env *env = qsi_env_mem_create(1);
    struct fixture fixture;
    struct qsi_compaction *job;
    struct qsi_body_ref refs[6];

    start(&fixture, env);
    make_sparse(&fixture, refs);
    QS_CHECK_OK(qsi_message_store_compact_begin(fixture.store, &job, QS_ERROR));
    QS_CHECK_OK(qsi_message_store_compact_run(fixture.store, job, QS_ERROR));
    qsi_message_store_add_refs(fixture.store, &refs[2], 1, 0);
    qsi_message_store_compact_end(fixture.store, job, true);
    QS_CHECK(!has_name(&fixture, second_name));
    QS_CHECK_OK(get(&fixture, &refs[2], 2, QS_ERROR));
    check_sparse(&fixture, refs);
    stop(&fixture);
    qsi_env_mem_destroy(env);
}

/* ---- garbage and damage ---- */

/* Places that were abandoned: never written, or with a header that promises too much. */
static void test_garbage_between_records_does_not_hide_them(void)
{
    qs_env *env = qsi_env_mem_create(1);
    struct checkpoint checkpoint = {0};
    struct fixture fixture;
    struct qsi_body_ref refs[4];
    struct qsi_place places[2];
    struct qsi_body_ref fake;
    uint8_t header[QSI_BODY_HEADER_BYTES];
    uint8_t file_header[QSI_MESSAGE_HEADER_BYTES];
    struct qsi_message_header parsed;
    qs_file *file;
    size_t read;

    start(&fixture, env);
    refs[0] = put_counted(&fixture, 3000, 0, 1);
    QS_CHECK(qsi_message_store_reserve(fixture.store, 0, 20000, &places[0], NULL) == QS_OK);
    refs[1] = put_counted(&fixture, 3000, 1, 1);
    QS_CHECK(qsi_message_store_reserve(fixture.store, 0, 20000, &places[1], NULL) == QS_OK);
    refs[2] = put_counted(&fixture, 3000, 2, 1);
    refs[3] = put_counted(&fixture, 5, 3, 1);
    QS_CHECK(env->open(env, fixture.dir, first_name, QS_OPEN_READ, &file, NULL) == QS_OK);
    QS_CHECK(env->read(env, file, file_header, sizeof file_header, 0, &read, NULL) == QS_OK);
    env->close(env, file);
    QS_CHECK_OK(qsi_message_header_check(file_header, (struct qsi_message_id){1, 0}, test_uuid,
                                         &parsed, QS_ERROR));
    /* A dead slot that would reach over body 2, and a live one that is not it. */
    fake = (struct qsi_body_ref){.slot = places[1].slot, .body_bytes = 23000};
    qsi_body_header_encode(header, &fake, parsed.salt);
    overwrite(&fixture, first_name, places[1].offset, header, sizeof header);
    fake = (struct qsi_body_ref){.slot = refs[1].slot, .body_bytes = 25000};
    qsi_body_header_encode(header, &fake, parsed.salt);
    overwrite(&fixture, first_name, places[0].offset + 512, header, sizeof header);
    overwrite(&fixture, first_name, places[0].offset + 8, header, sizeof header);
    for (int i = 0; i < 2; i++) {
        qsi_message_store_abandon(fixture.store, &places[i]);
    }
    settle_all(&fixture);
    QS_CHECK(compact(&fixture));
    take_checkpoint(&fixture, &checkpoint);
    recover_from(&fixture, &checkpoint);
    for (uint32_t i = 0; i < 4; i++) {
        QS_CHECK_OK(get(&fixture, &refs[i], i, QS_ERROR));
    }
    stop(&fixture);
    qsi_buf_fini(&checkpoint.records);
    qsi_env_mem_destroy(env);
}

/* Every 8 bytes a header of a live body that is never right: it ends, and the file is left
 * alone. */
static void test_file_full_of_false_headers_is_given_up(void)
{
    qs_env *env = qsi_env_mem_create(1);
    struct fixture fixture;
    struct qsi_body_ref ref;
    struct qsi_place place;
    struct qsi_body_ref fake = {.slot = 1, .body_bytes = 20000};
    static uint8_t garbage[40000];
    uint8_t file_header[QSI_MESSAGE_HEADER_BYTES];
    struct qsi_message_header parsed;
    struct qsi_compaction *job;
    qs_file *file;
    size_t read;

    start(&fixture, env);
    QS_CHECK(qsi_message_store_reserve(fixture.store, 0, 50000, &place, NULL) == QS_OK);
    ref = put_counted(&fixture, 100, 1, 1);
    QS_CHECK(env->open(env, fixture.dir, first_name, QS_OPEN_READ, &file, NULL) == QS_OK);
    QS_CHECK(env->read(env, file, file_header, sizeof file_header, 0, &read, NULL) == QS_OK);
    env->close(env, file);
    QS_CHECK_OK(qsi_message_header_check(file_header, (struct qsi_message_id){1, 0}, test_uuid,
                                         &parsed, QS_ERROR));
    for (size_t at = 0; at + 32 <= sizeof garbage; at += 32) {
        qsi_body_header_encode(garbage + at, &fake, parsed.salt);
    }
    overwrite(&fixture, first_name, place.offset, garbage, sizeof garbage);
    qsi_message_store_abandon(fixture.store, &place);
    settle_all(&fixture);
    QS_CHECK_OK(qsi_message_store_compact_begin(fixture.store, &job, QS_ERROR));
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_message_store_compact_run(fixture.store, job, QS_ERROR));
    qsi_message_store_compact_end(fixture.store, job, true);
    QS_CHECK(!has_name(&fixture, second_name));
    QS_CHECK_OK(get(&fixture, &ref, 1, QS_ERROR));
    QS_CHECK(!compact(&fixture));
    stop(&fixture);
    qsi_env_mem_destroy(env);
}

static void test_damaged_body_is_left_out(void)
{
    qs_env *env = qsi_env_mem_create(1);
    struct checkpoint checkpoint = {0};
    struct fixture fixture;
    struct qsi_body_ref refs[6];

    start(&fixture, env);
    make_sparse(&fixture, refs);
    overwrite(&fixture, first_name, refs[4].offset + 5000, "damage", 6);
    QS_CHECK(compact(&fixture));
    QS_CHECK_OK(get(&fixture, &refs[1], 1, QS_ERROR));
    QS_CHECK_STATUS(QS_ECORRUPT, get(&fixture, &refs[4], 4, QS_ERROR));
    QS_CHECK(strcmp(qs_test_error.path, "messages/0000000001-0001.msg") == 0);
    take_checkpoint(&fixture, &checkpoint);
    recover_from(&fixture, &checkpoint);
    QS_CHECK_STATUS(QS_ECORRUPT, get(&fixture, &refs[4], 4, QS_ERROR));
    stop(&fixture);
    qsi_buf_fini(&checkpoint.records);
    qsi_env_mem_destroy(env);
}

/* A table that is damaged hides no record from the next compaction; one that is whole says what is
 * lost for good. */
static void test_next_compaction_believes_only_a_whole_table(bool table_is_damaged)
{
    enum { COUNT = 40, FIRST = 26, SECOND = 36, HIT = 38 };
    static const uint8_t zeros[8];
    qs_env *env = qsi_env_mem_create(1);
    struct fixture fixture;
    struct qsi_body_ref refs[COUNT];
    uint64_t table = QSI_MESSAGE_HEADER_BYTES;

    start(&fixture, env);
    for (uint32_t i = 0; i < COUNT; i++) {
        refs[i] = put_counted(&fixture, 1390, i, 1);
        table += i >= FIRST ? qsi_body_packed_bytes(&refs[i]) : 0;
    }
    settle_all(&fixture);
    for (uint32_t i = 0; i < FIRST; i++) {
        drop(&fixture, &refs[i]);
    }
    if (!table_is_damaged) {
        overwrite(&fixture, first_name, refs[HIT].offset + 700, "damage", 6);
    }
    QS_CHECK(compact(&fixture));
    if (table_is_damaged) {
        overwrite(&fixture, second_name, table + 8 * HIT, zeros, sizeof zeros);
    }
    QS_CHECK_STATUS(QS_ECORRUPT, get(&fixture, &refs[HIT], HIT, QS_ERROR));
    for (uint32_t i = FIRST; i < SECOND; i++) {
        drop(&fixture, &refs[i]);
    }
    QS_CHECK(compact(&fixture));
    QS_CHECK(has_name(&fixture, "0000000001-0002.msg"));
    for (uint32_t i = SECOND; i < COUNT; i++) {
        qs_status status = get(&fixture, &refs[i], i, NULL);

        QS_CHECK(status == (i == HIT && !table_is_damaged ? QS_ECORRUPT : QS_OK));
    }
    stop(&fixture);
    qsi_env_mem_destroy(env);
}

static void test_every_damaged_byte_of_a_compacted_file_is_detected(void)
{
    qs_env *env = qsi_env_mem_create(1);
    struct checkpoint checkpoint = {0};
    struct fixture fixture;
    struct qsi_body_ref refs[6];
    static uint8_t data[RECORD_BYTES_MAX];
    qs_file *file;
    size_t bytes;

    start(&fixture, env);
    make_sparse(&fixture, refs);
    QS_CHECK(compact(&fixture));
    take_checkpoint(&fixture, &checkpoint);
    QS_CHECK(env->open(env, fixture.dir, second_name, QS_OPEN_READ, &file, NULL) == QS_OK);
    QS_CHECK(env->read(env, file, data, sizeof data, 0, &bytes, NULL) == QS_OK);
    env->close(env, file);
    for (size_t at = 0; at < bytes; at += at < 100 || at > bytes - 100 ? 1 : 61) {
        uint8_t flipped = (uint8_t)(data[at] ^ 64);
        int good = 0;

        overwrite(&fixture, second_name, at, &flipped, 1);
        restart(&fixture);
        QS_CHECK_OK(try_restore(&fixture, &checkpoint, QS_ERROR));
        for (uint32_t i = 0; i < 6; i++) {
            qs_status status = get(&fixture, &refs[i], i, NULL);

            QS_CHECK(status == QS_OK || status == QS_ECORRUPT);
            QS_CHECK(status == QS_ECORRUPT || i == 1 || i == 4);
            good += status == QS_OK;
        }
        QS_CHECK(good <= 2 && (at >= 4096 || good == 0));
        overwrite(&fixture, second_name, at, &data[at], 1);
    }
    restart(&fixture);
    QS_CHECK_OK(try_restore(&fixture, &checkpoint, QS_ERROR));
    check_sparse(&fixture, refs);
    stop(&fixture);
    qsi_buf_fini(&checkpoint.records);
    qsi_env_mem_destroy(env);
}

/* ---- readers ---- */

struct reader {
    struct fixture *fixture;
    const struct qsi_body_ref *refs;
    atomic_bool done;
    uint32_t reads;
};

static void *read_until_done(void *context)
{
    struct reader *reader = context;
    static uint8_t data[QSI_BODY_HEADER_BYTES + ENVELOPE_BYTES + BODY];
    static uint8_t expected[ENVELOPE_BYTES + BODY];

    while (!atomic_load(&reader->done)) {
        for (uint32_t i = 1; i < 6; i += 3) {
            QS_CHECK_OK(
                qsi_message_store_read(reader->fixture->store, &reader->refs[i], data, QS_ERROR));
            fill_message(expected, BODY, i);
            QS_CHECK(memcmp(data + QSI_BODY_HEADER_BYTES, expected, sizeof expected) == 0);
            reader->reads++;
        }
    }
    return NULL;
}

static void test_readers_do_not_notice(void)
{
    qs_env *env;
    struct fixture fixture;
    struct qsi_body_ref refs[6];
    struct reader reader = {.fixture = &fixture, .refs = refs};
    struct checkpoint checkpoint = {0};
    pthread_t thread;

    env = qsi_env_mem_create(1);
    start(&fixture, env);
    make_sparse(&fixture, refs);
    QS_CHECK(pthread_create(&thread, NULL, read_until_done, &reader) == 0);
    for (int i = 0; i < 50; i++) {
        struct qsi_body_ref other[6];

        while (compact(&fixture)) {
        }
        take_checkpoint(&fixture, &checkpoint);
        make_sparse(&fixture, other);
    }
    atomic_store(&reader.done, true);
    pthread_join(thread, NULL);
    QS_CHECK(reader.reads > 0);
    stop(&fixture);
    qsi_buf_fini(&checkpoint.records);
    qsi_env_mem_destroy(env);
}

int main(void)
{
    test_live_bodies_move_and_their_references_hold();
    test_compacted_files_are_compacted_again();
    test_large_bodies_move();
    test_job_that_is_given_up_leaves_nothing();
    test_bodies_dropped_and_files_that_die_during_a_job();
    test_body_that_was_left_behind_cannot_come_back();
    test_garbage_between_records_does_not_hide_them();
    test_file_full_of_false_headers_is_given_up();
    test_damaged_body_is_left_out();
    test_next_compaction_believes_only_a_whole_table(false);
    test_next_compaction_believes_only_a_whole_table(true);
    test_every_damaged_byte_of_a_compacted_file_is_detected();
    test_readers_do_not_notice();
    return 0;
}
