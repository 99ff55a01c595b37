/* Compaction: what it keeps, and what it gives back.
 *
 * Method: files of 64 KiB with up to six bodies; most die, the rest must read back under the next
 * generation, before and after a recovery from a checkpoint. */
#include "compact_fixture.h"

MESSAGES_TEST(test_live_bodies_move_and_their_references_hold)
{
    struct checkpoint checkpoint = {0};
    struct qsi_body_ref refs[6];
    uint64_t packed;

    make_sparse(fixture, refs);
    packed = qsi_body_packed_bytes(&refs[0]);
    take_checkpoint(fixture, &checkpoint);
    QS_CHECK(compact(fixture));
    QS_CHECK(has_name(fixture, first_name) && has_name(fixture, second_name));
    QS_CHECK(space_of(fixture).total_bytes == 4096 + 2 * packed + 6 * 8 + 8);
    QS_CHECK(space_of(fixture).live_bytes == 2 * packed);
    QS_CHECK(space_of(fixture).doomed_bytes == 4096 + 6 * 10240);
    check_sparse(fixture, refs);
    QS_CHECK(get(fixture, &refs[0], 0, NULL) == QS_ECORRUPT);
    QS_CHECK(!compact(fixture));

    recover_from(fixture, &checkpoint); /* which does not know of it */
    QS_CHECK(has_name(fixture, first_name) && !has_name(fixture, second_name));
    check_sparse(fixture, refs);
    QS_CHECK(compact(fixture));
    QS_CHECK_OK(try_snapshot(fixture, &checkpoint, QS_ERROR));
    QS_CHECK_OK(qsi_message_store_unseal(fixture->messages, false, QS_ERROR));
    QS_CHECK(has_name(fixture, first_name));
    take_checkpoint(fixture, &checkpoint);
    QS_CHECK(!has_name(fixture, first_name) && has_name(fixture, second_name));
    QS_CHECK(space_of(fixture).doomed_bytes == 0);
    create_file(fixture, "0000000001.msg"); /* as if it had not been removed any more */
    create_file(fixture, "0000000077-0003.msg");
    recover_from(fixture, &checkpoint);
    QS_CHECK(!has_name(fixture, first_name) && !has_name(fixture, "0000000077-0003.msg"));
    check_sparse(fixture, refs);
    drop(fixture, &refs[4]);
    QS_CHECK(put_counted(fixture, BODY, 9, 1).file == 78);
    QS_CHECK(commit(fixture, NULL) == QS_OK);
    take_checkpoint(fixture, &checkpoint);
    QS_CHECK(checkpoint.count == 2);
    drop(fixture, &refs[1]);
    take_checkpoint(fixture, &checkpoint);
    QS_CHECK(!has_name(fixture, second_name));
    qsi_buf_fini(&checkpoint.records);
}

/* Of the six bodies four are dead. */
MESSAGES_TEST(test_dead_body_is_read_until_a_checkpoint_removes_what_was_replaced)
{
    struct checkpoint checkpoint = {0};
    struct qsi_body_ref refs[6];
    uint8_t *data;

    make_sparse(fixture, refs);
    data = malloc((size_t)qsi_body_record_bytes(&refs[0]));
    QS_CHECK(data != NULL);
    QS_CHECK(compact(fixture));
    for (int removed = 0; removed < 2; removed++) {
        uint32_t found = 0;

        for (uint32_t i = 0; i < 6; i++) {
            found +=
                qsi_message_store_read_dead(fixture->messages, &refs[i], data, QS_ERROR) == QS_OK;
        }
        QS_CHECK(found == (removed ? 2 : 6));
        QS_CHECK_STATUS(QS_ECORRUPT, get(fixture, &refs[0], 0, NULL));
        QS_CHECK_OK(try_snapshot(fixture, &checkpoint, QS_ERROR));
        QS_CHECK_OK(qsi_message_store_unseal(fixture->messages, true, QS_ERROR));
        check_sparse(fixture, refs);
    }
    free(data);
    qsi_buf_fini(&checkpoint.records);
}

MESSAGES_TEST(test_compacted_files_are_compacted_again)
{
    enum { COUNT = 40 };
    static const uint32_t first_left[] = {0, 26, 36}; /* before each round */
    struct checkpoint checkpoint = {0};
    struct qsi_body_ref refs[COUNT];

    for (uint32_t i = 0; i < COUNT; i++) {
        refs[i] = put_counted(fixture, 1390 + i % 9, i, 1);
    }
    settle_all(fixture);
    for (int round = 1; round < 3; round++) {
        for (uint32_t i = first_left[round - 1]; i < first_left[round]; i++) {
            drop(fixture, &refs[i]);
        }
        QS_CHECK(compact(fixture));
        for (int recovered = 0; recovered < 2; recovered++) {
            for (uint32_t i = first_left[round]; i < COUNT; i++) {
                QS_CHECK_OK(get(fixture, &refs[i], i, QS_ERROR));
            }
            take_checkpoint(fixture, &checkpoint);
            recover_from(fixture, &checkpoint);
        }
    }
    QS_CHECK(has_name(fixture, "0000000001-0002.msg") && !has_name(fixture, second_name));
    qsi_buf_fini(&checkpoint.records);
}

/* Larger than the buffer that records are copied through. */
QS_TEST(test_large_bodies_move)
{
    static const struct qsi_message_store_options large_files = {8u << 20, 2};
    enum { BODY_BYTES = (5 << 20) / 2 };
    qs_env *env = qsi_env_mem_create(1);
    struct fixture fixture;
    struct qsi_body_ref refs[3];
    QS_TEST_FREED uint8_t *data = malloc(2 * BODY_BYTES);
    uint8_t *back = data + BODY_BYTES;

    QS_CHECK(data != NULL);
    for (int damaged = 0; damaged < 2; damaged++) {
        start(&fixture, env);
        qsi_message_store_close(fixture.messages);
        QS_CHECK_OK(qsi_message_store_open(&fixture.messages, env, fixture.dir, test_uuid,
                                           &large_files, QS_ERROR));
        for (uint32_t i = 0; i < 3; i++) {
            const qs_part part = {data, BODY_BYTES - 100};
            struct qsi_place place;

            memset(data, (int)i + 1, BODY_BYTES);
            QS_CHECK_OK(
                qsi_message_store_reserve(fixture.messages, 3, BODY_BYTES - 103, &place, QS_ERROR));
            QS_CHECK_OK(
                qsi_message_store_write(fixture.messages, &place, &part, 1, &refs[i], QS_ERROR));
            qsi_message_store_add_refs(fixture.messages, &refs[i], 1, 0);
            qsi_message_store_mark(fixture.messages, &place);
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
            QS_CHECK_OK(qsi_message_store_read(fixture.messages, &refs[2], back, QS_ERROR));
            QS_CHECK(memcmp(back + QSI_BODY_HEADER_BYTES, data, BODY_BYTES - 100) == 0);
        } else {
            QS_CHECK(space_of(&fixture).total_bytes == 4096 + 3 * 8 + 8); /* written over, cut */
        }
        stop(&fixture);
    }
    qsi_env_mem_destroy(env);
}

MESSAGES_TEST(test_job_that_is_given_up_leaves_nothing)
{
    struct qsi_compaction *job;
    struct qsi_compaction *second;
    struct qsi_body_ref refs[6];

    make_sparse(fixture, refs);
    QS_CHECK_OK(qsi_message_store_compact_begin(fixture->messages, &job, QS_ERROR));
    QS_CHECK(job != NULL);
    QS_CHECK_OK(qsi_message_store_compact_begin(fixture->messages, &second, QS_ERROR));
    QS_CHECK(second == NULL); /* one job a file */
    QS_CHECK_OK(qsi_message_store_compact_run(fixture->messages, job, QS_ERROR));
    qsi_message_store_compact_end(fixture->messages, job, false);
    QS_CHECK(has_name(fixture, first_name) && !has_name(fixture, second_name));
    check_sparse(fixture, refs);
    QS_CHECK_OK(qsi_message_store_compact_begin(fixture->messages, &job, QS_ERROR));
    qsi_message_store_compact_end(fixture->messages, job, true); /* never run */
    check_sparse(fixture, refs);
    create_file(fixture, second_name); /* a leftover */
    QS_CHECK(compact(fixture));
    check_sparse(fixture, refs);
}

MESSAGES_TEST(test_bodies_dropped_and_files_that_die_during_a_job)
{
    struct checkpoint checkpoint = {0};
    struct qsi_compaction *job;
    struct qsi_body_ref refs[6];

    make_sparse(fixture, refs);
    QS_CHECK_OK(qsi_message_store_compact_begin(fixture->messages, &job, QS_ERROR));
    drop(fixture, &refs[4]);
    QS_CHECK_OK(qsi_message_store_compact_run(fixture->messages, job, QS_ERROR));
    drop(fixture, &refs[1]);
    take_checkpoint(fixture, &checkpoint); /* dead, but a job has it */
    QS_CHECK(has_name(fixture, first_name));
    qsi_message_store_compact_end(fixture->messages, job, true);
    QS_CHECK(space_of(fixture).file_count == 0);
    take_checkpoint(fixture, &checkpoint);
    QS_CHECK(!has_name(fixture, first_name) && !has_name(fixture, second_name));
    qsi_buf_fini(&checkpoint.records);
}

/* A body that comes to life again during the job, which nobody should do: the old file stays. */
MESSAGES_TEST(test_body_that_was_left_behind_cannot_come_back)
{
    struct qsi_compaction *job;
    struct qsi_body_ref refs[6];

    make_sparse(fixture, refs);
    QS_CHECK_OK(qsi_message_store_compact_begin(fixture->messages, &job, QS_ERROR));
    QS_CHECK_OK(qsi_message_store_compact_run(fixture->messages, job, QS_ERROR));
    qsi_message_store_add_refs(fixture->messages, &refs[2], 1, 0);
    qsi_message_store_compact_end(fixture->messages, job, true);
    QS_CHECK(!has_name(fixture, second_name));
    QS_CHECK_OK(get(fixture, &refs[2], 2, QS_ERROR));
    check_sparse(fixture, refs);
}

struct reader {
    struct fixture *fixture;
    const struct qsi_body_ref *refs;
    atomic_bool done;
    atomic_uint reads;
};

static void *read_until_done(void *context)
{
    struct reader *reader = context;
    static uint8_t data[QSI_BODY_HEADER_BYTES + ENVELOPE_BYTES + BODY];
    static uint8_t expected[ENVELOPE_BYTES + BODY];

    while (!atomic_load(&reader->done)) {
        for (uint32_t i = 1; i < 6; i += 3) {
            QS_CHECK_OK(qsi_message_store_read(reader->fixture->messages, &reader->refs[i], data,
                                               QS_ERROR));
            fill_message(expected, BODY, i);
            QS_CHECK(memcmp(data + QSI_BODY_HEADER_BYTES, expected, sizeof expected) == 0);
            atomic_fetch_add(&reader->reads, 1);
        }
    }
    return NULL;
}

QS_TEST(test_readers_do_not_notice)
{
    struct fixture fixture;
    struct qsi_body_ref refs[6];
    struct reader reader = {.fixture = &fixture, .refs = refs};
    struct checkpoint checkpoint = {0};
    pthread_t thread;
    qs_env *env = qsi_env_mem_create(1);

    start(&fixture, env);
    make_sparse(&fixture, refs);
    QS_CHECK(pthread_create(&thread, NULL, read_until_done, &reader) == 0);
    while (atomic_load(&reader.reads) == 0) { /* it has begun */
        usleep(100);
    }
    for (int i = 0; i < 50; i++) {
        struct qsi_body_ref other[6];

        while (compact(&fixture)) {
        }
        take_checkpoint(&fixture, &checkpoint);
        make_sparse(&fixture, other);
    }
    atomic_store(&reader.done, true);
    pthread_join(thread, NULL);
    stop(&fixture);
    qsi_buf_fini(&checkpoint.records);
    qsi_env_mem_destroy(env);
}
