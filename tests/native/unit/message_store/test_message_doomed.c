/* The bytes of files that wait for a checkpoint: a sum that is kept, not walked.
 *
 * Method: each way in which a file dies, comes back, or has another size; after it the sum is what
 * was expected, and what a debug build's recount finds. */
#include "compact_fixture.h"
#include "qs_test_alloc.h"

#define FILE_BYTES 65536u
#define FULL_BYTES (4096u + 6 * 10240u) /* of a settled file with six bodies */

static void check_doomed(struct fixture *fixture, uint64_t expected)
{
    qsi_message_store_check_counts(fixture->messages);
    QS_CHECK(qsi_message_store_doomed_bytes(fixture->messages) == expected);
    QS_CHECK(space_of(fixture).doomed_bytes == expected);
}

/* Six bodies, which fill a file, with a reference each. */
static void put_six(struct fixture *fixture, struct qsi_body_ref refs[6])
{
    for (uint32_t i = 0; i < 6; i++) {
        refs[i] = put_counted(fixture, BODY, i, 1);
    }
    QS_CHECK_OK(commit(fixture, QS_ERROR));
}

static void drop_six(struct fixture *fixture, const struct qsi_body_ref refs[6])
{
    for (uint32_t i = 0; i < 6; i++) {
        drop(fixture, &refs[i]);
    }
}

MESSAGES_TEST(test_doomed_bytes_follow_a_file_that_dies_before_it_is_full)
{
    struct qsi_body_ref refs[6], last;

    put_six(fixture, refs);
    drop_six(fixture, refs);
    check_doomed(fixture, 0); /* it still takes bodies */
    last = put_counted(fixture, BODY, 6, 1);
    check_doomed(fixture, FILE_BYTES);
    QS_CHECK_OK(qsi_message_store_maintain(fixture->messages, QS_ERROR));
    check_doomed(fixture, FULL_BYTES);
    qsi_message_store_add_refs(fixture->messages, &refs[2], 0, 1);
    check_doomed(fixture, 0);
    qsi_message_store_drop_ref(fixture->messages, &refs[2], true);
    drop(fixture, &last);
    check_doomed(fixture, FULL_BYTES);
    settle_all(fixture);
    check_doomed(fixture, FULL_BYTES + 4096 + 10240);
    last = put_counted(fixture, BODY, 7, 1);
    drop(fixture, &last);
    QS_CHECK_OK(qsi_message_store_settle(fixture->messages, QS_ERROR));
    check_doomed(fixture, FULL_BYTES + 4096 + 10240 + FILE_BYTES); /* a commit will sync it first */
    QS_CHECK_OK(commit(fixture, QS_ERROR));
}

MESSAGES_TEST(test_doomed_bytes_count_no_file_with_an_open_place)
{
    struct qsi_place place;

    QS_CHECK_OK(qsi_message_store_reserve(fixture->messages, 0, 100000, &place, QS_ERROR));
    check_doomed(fixture, 0);
    qsi_message_store_abandon(fixture->messages, &place);
    QS_CHECK(qsi_message_store_doomed_bytes(fixture->messages) >= 100000);
    qsi_message_store_check_counts(fixture->messages);
}

/* The counts of a pack of more than 16 bodies need memory, when its file is there already. */
QS_TEST(test_doomed_bytes_have_a_file_whose_pack_got_no_place)
{
    struct qs_test_alloc failing = {.fail_at = 0};
    struct qsi_body_ref refs[PACK_COUNT_MAX];
    uint32_t body_bytes[PACK_COUNT_MAX];
    struct fixture fixture;
    qs_error error = {0};
    uint64_t before = 0;
    qs_env *env;

    qs_test_alloc_use(&failing);
    env = qsi_env_mem_create(1);
    start(&fixture, env);
    put_counted(&fixture, BODY, 1, 1); /* the table has room then */
    for (uint32_t i = 0; i < PACK_COUNT_MAX; i++) {
        body_bytes[i] = 1500;
    }
    for (uint64_t n = 1; strstr(error.text, "reference counts") == NULL; n++) {
        before = qsi_message_store_doomed_bytes(fixture.messages);
        failing.fail_at = failing.calls + n;
        QS_CHECK(try_put_pack(&fixture, body_bytes, PACK_COUNT_MAX, 1, refs, &error) == QS_ENOMEM);
        qsi_message_store_check_counts(fixture.messages);
    }
    failing.fail_at = 0;
    QS_CHECK(qsi_message_store_doomed_bytes(fixture.messages) > before + PACK_COUNT_MAX * 1500);
    stop(&fixture);
    qsi_env_mem_destroy(env);
    qs_test_alloc_end(&failing);
}

MESSAGES_TEST(test_doomed_bytes_have_what_dies_while_it_is_compacted)
{
    struct checkpoint checkpoint = {0};
    struct qsi_compaction *job;
    struct qsi_body_ref refs[6];
    uint64_t bytes;

    make_sparse(fixture, refs);
    QS_CHECK_OK(qsi_message_store_compact_begin(fixture->messages, &job, QS_ERROR));
    QS_CHECK(job != NULL);
    QS_CHECK_OK(qsi_message_store_compact_run(fixture->messages, job, QS_ERROR));
    drop(fixture, &refs[1]);
    drop(fixture, &refs[4]);
    check_doomed(fixture, FULL_BYTES);
    qsi_message_store_compact_end(fixture->messages, job, true);
    bytes = 4096 + 2 * qsi_body_packed_bytes(&refs[1]) + 6 * 8 + 8;
    check_doomed(fixture, FULL_BYTES + bytes);
    take_checkpoint(fixture, &checkpoint);
    check_doomed(fixture, 0);
    qsi_buf_fini(&checkpoint.records);
}

/* Salvage and inspection keep files that nobody refers to. */
MESSAGES_TEST(test_doomed_bytes_are_those_of_recovery)
{
    struct qsi_body_ref refs[6];

    put_six(fixture, refs);
    settle_all(fixture);
    restart(fixture);
    for (uint32_t i = 0; i < 6; i++) { /* the replay finds the file's end, message by message */
        note_and_add(fixture, &refs[i], 1);
        drop(fixture, &refs[i]);
        QS_CHECK_OK(qsi_message_store_add_reference(fixture->messages, &refs[5], QS_ERROR));
    }
    QS_CHECK_OK(qsi_message_store_retain_counted(fixture->messages, QSI_RETAIN_JUDGE, QS_ERROR));
    check_doomed(fixture, FULL_BYTES);
    QS_CHECK_OK(qsi_message_store_retain_counted(fixture->messages, QSI_RETAIN_SALVAGE, QS_ERROR));
    check_doomed(fixture, 0);
    restart(fixture);
    note_and_add(fixture, &refs[0], 1);
    drop(fixture, &refs[0]);
    QS_CHECK_OK(try_finish(fixture, QS_ERROR));
    check_doomed(fixture, 0);
}
