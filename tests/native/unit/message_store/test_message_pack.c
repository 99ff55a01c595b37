/* Packs of small bodies: where they go, when they are durable, and that they are bodies like any
 * other afterwards. */
#include "counts_fixture.h"
#include "qs_test_faults.h"

static const uint32_t sizes[] = {0, 1, 7, 8, 9, 100, 511, 512, 513, 1500};
enum { COUNT = sizeof sizes / sizeof sizes[0] };

static struct qsi_body_ref *put_pack(struct fixture *fixture, uint32_t first_number,
                                     struct qsi_body_ref refs[COUNT])
{
    QS_CHECK_OK(try_put_pack(fixture, sizes, COUNT, first_number, refs, QS_ERROR));
    return refs;
}

static void check_pack(struct fixture *fixture, uint32_t first_number,
                       const struct qsi_body_ref refs[COUNT])
{
    for (uint32_t i = 0; i < COUNT; i++) {
        QS_CHECK_OK(get_packed(fixture, &refs[i], first_number + i, QS_ERROR));
        QS_CHECK_OK(qsi_message_store_check(fixture->messages, &refs[i], QS_ERROR));
    }
}

MESSAGES_TEST(test_pack_begins_and_ends_at_a_sector)
{
    struct qsi_body_ref refs[2][COUNT];
    struct qsi_body_ref behind;
    struct qsi_body_ref before = put_counted(fixture, 100, 1, 1);

    put_pack(fixture, 10, refs[0]);
    put_pack(fixture, 20, refs[1]);
    behind = put_counted(fixture, 100, 2, 1);
    for (int k = 0; k < 2; k++) {
        QS_CHECK(refs[k][0].offset % QSI_BODY_ALIGNMENT == 0);
        for (uint32_t i = 1; i < COUNT; i++) {
            QS_CHECK(refs[k][i].slot == refs[k][i - 1].slot + 1);
            QS_CHECK(refs[k][i].offset ==
                     refs[k][i - 1].offset + qsi_body_packed_bytes(&refs[k][i - 1]));
        }
        check_pack(fixture, 10 + 10 * (uint32_t)k, refs[k]);
    }
    QS_CHECK(refs[0][0].offset == qsi_body_ref_end(&before));
    QS_CHECK(refs[1][0].offset == qsi_body_ref_end(&refs[0][COUNT - 1]));
    QS_CHECK(behind.offset == qsi_body_ref_end(&refs[1][COUNT - 1]));
    QS_CHECK(behind.slot == 1 + 2 * COUNT);
    QS_CHECK_OK(commit(fixture, QS_ERROR));
}

QS_TEST(test_pack_is_durable_when_its_sync_is_and_not_before)
{
    qs_env *sim = qsi_env_sim_create(1);
    struct fixture fixture;
    struct fixture after;
    struct qsi_body_ref refs[2][COUNT];
    struct qsi_dirty_set set;
    qs_env *disk;

    start(&fixture, sim);
    put_pack(&fixture, 10, refs[0]);
    qsi_message_store_dirty_take(fixture.messages, &set);
    QS_CHECK(set.count == 0); /* no commit waits for packs */
    QS_CHECK_OK(qsi_message_store_sync_packs(fixture.messages, QS_ERROR));
    put_pack(&fixture, 20, refs[1]);
    disk = qsi_env_sim_cut(sim, QSI_CUT_DROP_ALL, 1);
    start(&after, disk);
    check_pack(&after, 10, refs[0]);
    QS_CHECK(get_packed(&after, &refs[1][0], 20, NULL) == QS_ECORRUPT);
    stop(&after);
    qsi_env_mem_destroy(disk);
    stop(&fixture);
    qsi_env_sim_destroy(sim);
}

QS_TEST(test_file_with_a_pack_to_sync_is_not_settled)
{
    qs_env *env = qsi_env_mem_create(1);
    qs_env *fault = qsi_env_fault_create(env);
    struct fixture fixture;
    struct qsi_body_ref refs[COUNT];

    start(&fixture, fault);
    put_pack(&fixture, 10, refs);
    put(&fixture, 60000, 1);
    QS_CHECK_OK(commit(&fixture, QS_ERROR));
    QS_CHECK_OK(qsi_message_store_maintain(fixture.messages, QS_ERROR));
    QS_CHECK(file_bytes(&fixture, 1) == 65536);
    QS_CHECK_OK(qsi_message_store_sync_packs(fixture.messages, QS_ERROR));
    QS_CHECK_OK(qsi_message_store_maintain(fixture.messages, QS_ERROR));
    QS_CHECK(file_bytes(&fixture, 1) < 65536); /* settled */
    qsi_env_fault_arm(fault, QSI_FAULT_SYNC, QSI_FAULT_EIO, 1, false);
    QS_CHECK_OK(qsi_message_store_sync_packs(fixture.messages, QS_ERROR)); /* nothing to sync */
    QS_CHECK(!qsi_env_fault_fired(fault));
    put_pack(&fixture, 20, refs);
    QS_CHECK_STATUS(QS_EIO, qsi_message_store_sync_packs(fixture.messages, QS_ERROR));
    QS_CHECK_STATUS(QS_ESTORE_FAILED, qsi_message_store_sync_packs(fixture.messages, QS_ERROR));
    stop(&fixture);
    qsi_env_fault_destroy(fault);
    qsi_env_mem_destroy(env);
}

MESSAGES_TEST(test_packed_bodies_are_counted_compacted_and_recovered)
{
    struct checkpoint checkpoint = {0};
    struct qsi_body_ref refs[12][COUNT];
    struct qsi_compaction *job;

    for (uint32_t k = 0; k < 12; k++) {
        put_pack(fixture, 10 * k, refs[k]);
    }
    QS_CHECK_OK(qsi_message_store_sync_packs(fixture->messages, QS_ERROR));
    settle_all(fixture);
    for (uint32_t k = 0; k < 12; k++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            if ((k + i) % 5 != 0) {
                drop(fixture, &refs[k][i]);
            }
        }
    }
    QS_CHECK_OK(qsi_message_store_compact_begin(fixture->messages, &job, QS_ERROR));
    QS_CHECK(job != NULL);
    QS_CHECK_OK(qsi_message_store_compact_run(fixture->messages, job, QS_ERROR));
    qsi_message_store_compact_end(fixture->messages, job, true);
    take_checkpoint(fixture, &checkpoint);
    for (int round = 0; round < 2; round++) {
        for (uint32_t k = 0; k < 12; k++) {
            for (uint32_t i = 0; i < COUNT; i++) {
                qs_status status = get_packed(fixture, &refs[k][i], 10 * k + i, NULL);

                QS_CHECK(status == ((k + i) % 5 == 0 ? QS_OK : QS_ECORRUPT));
            }
        }
        recover_from(fixture, &checkpoint);
    }
    qsi_buf_fini(&checkpoint.records);
}

QS_TEST(test_pack_that_fails_leaves_nothing)
{
    for (struct qs_test_sweep sweep = {.how = QSI_FAULT_EIO}; qs_test_sweep_on(&sweep);) {
        qs_env *env = qs_test_sweep_env(&sweep);
        struct fixture fixture;
        struct qsi_body_ref refs[COUNT];
        struct checkpoint checkpoint = {0};
        qs_status status;

        start(&fixture, env);
        qs_test_sweep_calls(&sweep, env);
        status = try_put_pack(&fixture, sizes, COUNT, 1, refs, NULL);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == (sweep.has_failed ? QS_EIO : QS_OK));
        put_pack(&fixture, 20, refs);
        check_pack(&fixture, 20, refs);
        QS_CHECK_OK(qsi_message_store_sync_packs(fixture.messages, QS_ERROR));
        settle_all(&fixture);
        for (uint32_t i = 0; i < COUNT; i++) {
            drop(&fixture, &refs[i]);
        }
        if (status != QS_OK) {
            take_checkpoint(&fixture, &checkpoint);
            QS_CHECK(space_of(&fixture).file_count == 0 && space_of(&fixture).doomed_bytes == 0);
        }
        stop(&fixture);
        qsi_buf_fini(&checkpoint.records);
    }
}
