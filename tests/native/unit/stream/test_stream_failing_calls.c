/* A stream against an array while each call, and each allocation, fails once. */
#include "qs_test_faults.h"
#include "stream_model.h"

static bool one_faulty_run(enum qsi_fault_how how, uint64_t n, bool of_memory)
{
    const struct qsi_stream_limits limits = {.segment_bytes = 120000};
    QS_TEST_FREED struct model *model = calloc(1, sizeof *model);
    struct checkpoint checkpoint = {0};
    qs_env *mem = qsi_env_mem_create(n);
    qs_env *env = qsi_env_fault_create(mem);
    struct qs_test_alloc alloc;
    bool fired = false;
    struct world world;

    model->last_us = 1000000;
    start(&world, env, &limits);
    for (uint32_t round = 0; round < 6; round++) {
        append_batch(&world, model, 40 + round, model->last_us + 10, false);
        if (of_memory) {
            qs_test_alloc_install(&alloc);
            qs_test_alloc_arm(&alloc, round == 4 ? n : 0, false);
        } else {
            qsi_env_fault_arm(env, QSI_FAULT_ANY, how, round == 4 ? n : 0, false);
        }
        for (uint32_t part = 0; part < 2; part++) {
            qs_status status =
                part == 0 ? flush(&world, UINT64_MAX, QS_ERROR)
                          : make_checkpoint(&world, model, 0, false, &checkpoint, QS_ERROR);
            QS_CHECK(status == QS_OK || status == QS_EIO || status == QS_ESTORE_FULL ||
                     status == QS_ENOSPC || status == QS_ECORRUPT || status == QS_ENOMEM);
            if (part == 0 && status == QS_OK) {
                QS_CHECK(qsi_container_is_flushed(&world.stream.container));
            }
        }
        if (of_memory) {
            fired = fired || alloc.has_failed;
            qs_allocator_set(NULL);
        } else {
            fired = fired || (round == 4 && qsi_env_fault_fired(env));
            qsi_env_fault_arm(env, QSI_FAULT_ANY, how, 0, false);
        }
        check_all(&world, model);
    }
    QS_CHECK_OK(flush(&world, UINT64_MAX, QS_ERROR));
    (void)qsi_container_drop_content(&world.stream.container, 0, UINT64_MAX);
    check_all(&world, model);
    if (qsi_block_dir_check_synced(world.shared.blocks, NULL) == QS_OK) {
        QS_CHECK_OK(make_checkpoint(&world, model, 0, false, &checkpoint, QS_ERROR));
        reopen(&world, model, &checkpoint);
        check_all(&world, model);
    } else { /* a sync failed: none counts any more */
        QS_CHECK(make_checkpoint(&world, model, 0, false, &checkpoint, QS_ERROR) == QS_EIO);
    }
    checkpoint_fini(&checkpoint);
    stop(&world);
    qsi_env_fault_destroy(env);
    qsi_env_mem_destroy(mem);
    return fired;
}

QS_FAULT_TEST(test_every_call_fails_once)
{
    uint64_t n = 1;

    while (one_faulty_run(how, n, false)) {
        n++;
    }
    QS_CHECK(n > 5);
}

QS_TEST(test_every_allocation_fails_once)
{
    uint64_t n = 1;

    while (one_faulty_run(QSI_FAULT_EIO, n, true)) {
        n++;
    }
    QS_CHECK(n > 10);
}
