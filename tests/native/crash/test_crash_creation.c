/* The creation of a store, cut off before each step: whatever the cut leaves becomes a store, once
 * more and to the end, and is never taken for damage.  And the other way about: with a MANIFEST
 * that is lost later, no step of creation begins over what is there.
 *
 * Arguments: seed. */
#include "qstore/qstore.h"

#include "env_test.h"
#include "qs_test.h"
#include "qs_test_calls.h"
#include "qs_test_cuts.h"
#include "qs_test_dirs.h"

#define CUTS 6 /* random ones, besides the two extremes */

static qs_options options_for(bool create)
{
    qs_options options = qs_test_small_options();

    options.create = create;
    return options;
}

static qs_status open_and_close(qs_env *env, bool create)
{
    qs_options options = options_for(create);
    qs_store *store;
    qs_status status = qs_store_open(&store, "store", &options, env, QS_ERROR);

    return status == QS_OK ? qs_store_close(store, QS_ERROR) : status;
}

static void check_cut(void *not_there, qs_env *disk)
{
    qs_verified verified;
    qs_status status = qs_store_verify("store", disk, NULL, &verified, QS_ERROR);

    QS_CHECK(status == QS_OK || status == QS_ESTORE_NOT_FOUND);
    *(uint64_t *)not_there += status != QS_OK;
    QS_CHECK_STATUS(status, open_and_close(disk, false));
    QS_CHECK_OK(open_and_close(disk, true));
    QS_CHECK_OK(qs_store_verify("store", disk, NULL, &verified, QS_ERROR));
}

QS_SEED_TEST(test_a_creation_that_was_cut_off_begins_again)
{
    qs_env *sim = qsi_env_sim_create(seed);
    uint64_t not_there = 0;
    struct qs_test_cuts cuts = {sim, check_cut, &not_there, seed * UINT64_C(1000003), CUTS, 0};

    qs_test_cuts_begin(&cuts);
    QS_CHECK_OK(open_and_close(sim, true));
    qs_test_cuts_end(&cuts);
    printf("%" PRIu64 " cuts, %" PRIu64 " before there was a store\n", cuts.count, not_there);
    QS_CHECK(cuts.count > 150 && not_there > 50 && not_there < cuts.count);
    qsi_env_sim_destroy(sim);
}

/* A creation that is cut off, goes on, and is cut off again. */
QS_SEED_TEST(test_a_creation_that_was_cut_off_twice_begins_again)
{
    for (uint64_t i = 0; i < 60; i++) {
        qs_env *sim = qsi_env_sim_create(seed + i);
        uint64_t not_there = 0;
        struct qs_test_cuts cuts = {NULL, check_cut, &not_there, seed * UINT64_C(7919) + i,
                                    CUTS, 0};
        qs_env *disk, *fault;

        fault = qsi_env_fault_create(sim);
        qsi_env_fault_arm(fault, QSI_FAULT_ANY, QSI_FAULT_EIO, 1 + i, true);
        (void)!open_and_close(fault, true);
        qsi_env_fault_destroy(fault);
        disk = qsi_env_sim_cut(sim, QSI_CUT_RANDOM, seed + i);
        qsi_env_sim_destroy(sim);
        cuts.sim = qsi_env_sim_from_mem(disk, seed + i);
        qs_test_cuts_begin(&cuts);
        QS_CHECK_OK(open_and_close(cuts.sim, true));
        qs_test_cuts_end(&cuts);
        qsi_env_sim_destroy(cuts.sim);
    }
}

/* ---- MANIFEST lost at each step of what follows ---- */

static void lose_manifest(qs_env *disk)
{
    qs_dir *root = qs_test_open_dir(disk, "store", "");

    QS_CHECK_OK(disk->remove(disk, root, "MANIFEST", QS_ERROR));
    disk->dir_close(disk, root);
}

static void check_without_manifest(void *unused, qs_env *disk)
{
    qs_verified verified;

    (void)unused;
    lose_manifest(disk);
    QS_CHECK_STATUS(QS_ECORRUPT, open_and_close(disk, true));
    QS_CHECK(strcmp(qs_test_error.path, "MANIFEST") == 0);
    QS_CHECK_STATUS(QS_ECORRUPT, open_and_close(disk, false));
    QS_CHECK_STATUS(QS_ECORRUPT, qs_store_verify("store", disk, NULL, &verified, QS_ERROR));
}

QS_SEED_TEST(test_a_store_that_lost_its_manifest_is_not_created_again)
{
    qs_env *sim = qsi_env_sim_create(seed);
    struct qs_test_cuts cuts = {.sim = sim, .check = check_without_manifest};
    qs_options options = options_for(true);
    qs_store *store;

    QS_CHECK_OK(open_and_close(sim, true));
    qs_test_cuts_begin(&cuts);
    for (int i = 0; i < 3; i++) {
        QS_CHECK_OK(qs_store_open(&store, "store", &options, sim, QS_ERROR));
        QS_CHECK_OK(qs_store_checkpoint(store, QS_ERROR));
        QS_CHECK_OK(qs_store_close(store, QS_ERROR));
    }
    qs_test_cuts_end(&cuts);
    QS_CHECK(cuts.count > 100);
    qsi_env_sim_destroy(sim);
}
