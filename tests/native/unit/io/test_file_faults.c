/* Durable file operations with every failure of every call, and a power cut before every step. */
#include "file_fixture.h"
#include "qs_test_faults.h"

#define CUTS_PER_STEP 30

/* -- every failure ---------------------------------------------------------------------------- */

static qs_status create_once(void)
{
    qs_file *file;
    qs_status status = qsi_file_create(env, root, "new", 100000, QSI_FILL_ZEROS, &file, QS_ERROR);

    QS_CHECK((file == NULL) == (status != QS_OK));
    env->close(env, file);
    return status;
}

static qs_status replace_once(void)
{
    return qsi_file_replace(env, root, "cfg", "new text", 8, QS_ERROR);
}

static qs_status load_once(void)
{
    uint8_t *data;
    size_t bytes;
    qs_status status = qsi_file_load(env, root, "cfg", 100, &data, &bytes, QS_ERROR);

    QS_CHECK((data == NULL) == (status != QS_OK));
    qsi_free(data);
    return status;
}

static bool is_old_or_new(qs_env *disk)
{
    return has_text(disk, "cfg", "old") || has_text(disk, "cfg", "new text");
}

/* A directory's sync that failed is final, also for want of space or memory: it must not look as if
 * it could be repeated. */
static bool is_expected(qs_status status, qs_status expected)
{
    return status == expected ||
           ((expected == QS_ENOSPC || expected == QS_ENOMEM) && status == QS_EIO);
}

/* expected: of an operation whose n-th call fails. */
static void sweep_calls(qs_status (*operation)(void), enum qsi_fault_how how, qs_status expected)
{
    for (struct qs_test_sweep sweep = {.how = how, .fewest = 3}; qs_test_sweep_on(&sweep);) {
        qs_status status;

        set_up();
        QS_CHECK_OK(qsi_file_replace(env, root, "cfg", "old", 3, QS_ERROR));
        qs_test_sweep_calls(&sweep, env);
        status = operation();
        qs_test_sweep_rest(&sweep);
        QS_CHECK(is_expected(status, sweep.has_failed ? expected : QS_OK));
        QS_CHECK(status == QS_OK || !has_name(sim, "new"));
        QS_CHECK(is_old_or_new(sim) && !has_name(sim, "cfg.tmp"));
        tear_down();
    }
}

/* Without memory the environment cannot always take a name back: only contents and leaks count. */
static void sweep_allocations(qs_status (*operation)(void))
{
    for (struct qs_test_sweep sweep = {.has_own_memory = true}; qs_test_sweep_on(&sweep);) {
        qs_status status;

        set_up();
        QS_CHECK_OK(qsi_file_replace(env, root, "cfg", "old", 3, QS_ERROR));
        qs_test_sweep_allocations(&sweep);
        status = operation();
        qs_test_sweep_rest(&sweep);
        QS_CHECK(is_expected(status, sweep.has_failed ? QS_ENOMEM : QS_OK));
        QS_CHECK(is_old_or_new(sim));
        tear_down();
    }
}

/* A full disk may be told by a sync: what was written before it is gone then, so that no later sync
 * may count. */
QS_TEST(test_sync_that_found_no_space_is_final)
{
    qs_file *file;

    set_up();
    QS_CHECK_OK(env->open(env, root, "late", QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &file, QS_ERROR));
    qsi_env_fault_arm(env, QSI_FAULT_SYNC, QSI_FAULT_ENOSPC, 1, false);
    QS_CHECK_STATUS(QS_EIO, qsi_file_sync(env, file, QS_ERROR));
    QS_CHECK(qs_test_error.status == QS_EIO);
    qsi_env_fault_arm(env, QSI_FAULT_SYNC, QSI_FAULT_ENOSPC, 1, false);
    QS_CHECK_STATUS(QS_ENOSPC, qsi_file_sync_new(env, file, QS_ERROR));
    env->close(env, file);
    tear_down();
}

QS_TEST(test_every_failure_is_reported_and_cleaned_up)
{
    qs_status (*const operations[])(void) = {create_once, replace_once, load_once};

    for (size_t i = 0; i < COUNT_OF(operations); i++) {
        sweep_calls(operations[i], QSI_FAULT_EIO, QS_EIO);
        sweep_calls(operations[i], QSI_FAULT_ENOSPC, QS_ENOSPC);
        sweep_calls(operations[i], QSI_FAULT_SHORT, QS_OK);
        sweep_allocations(operations[i]);
    }
}

/* -- power cuts ------------------------------------------------------------------------------- */

struct cuts {
    bool (*is_fine)(qs_env *disk);
    uint64_t random;
    int count;
};

static void check_cuts(void *context, uint64_t step)
{
    struct cuts *cuts = context;

    (void)step;
    for (int i = 0; i < CUTS_PER_STEP; i++) {
        const enum qsi_cut_how first[] = {QSI_CUT_KEEP_ALL, QSI_CUT_DROP_ALL};
        enum qsi_cut_how how = i < 2 ? first[i] : QSI_CUT_RANDOM;
        qs_env *disk = qsi_env_sim_cut(sim, how, cuts->random++);

        QS_CHECK(cuts->is_fine(disk));
        qsi_env_mem_destroy(disk);
        cuts->count++;
    }
}

/* Cuts before every step of the operation must leave a fine disk; cuts after it a finished one. */
static void cut_everywhere(qs_status (*operation)(void), bool (*is_fine)(qs_env *disk),
                           bool (*is_finished)(qs_env *disk))
{
    struct cuts cuts = {.is_fine = is_fine, .random = seed};

    qsi_env_sim_on_step(sim, check_cuts, &cuts);
    QS_CHECK_OK(operation());
    qsi_env_sim_on_step(sim, NULL, NULL);
    QS_CHECK(cuts.count >= 4 * CUTS_PER_STEP);
    cuts.is_fine = is_finished;
    check_cuts(&cuts, 0);
}

static bool is_new(qs_env *disk)
{
    return has_text(disk, "cfg", "new text");
}

FILE_TEST(test_replace_is_atomic_under_every_cut)
{
    QS_CHECK_OK(qsi_file_replace(env, root, "cfg", "old", 3, QS_ERROR));
    cut_everywhere(replace_once, is_old_or_new, is_new);
}

static bool is_created(qs_env *disk)
{
    return has_zeros(disk, "new", 100000);
}

/* Until then it may be missing or have any size, but nothing else is touched. */
FILE_TEST(test_created_file_survives_every_cut)
{
    QS_CHECK_OK(qsi_file_replace(env, root, "cfg", "old", 3, QS_ERROR));
    cut_everywhere(create_once, is_old_or_new, is_created);
}

/* The checks must be able to fail: this replacement forgets both syncs. */
static qs_status replace_without_syncs(void)
{
    qs_part part = {"new text", 8};
    qs_file *file;
    qs_status status =
        env->open(env, root, "cfg.tmp", QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &file, QS_ERROR);

    QS_CHECK(status == QS_OK);
    status = qsi_file_write(env, file, &part, 1, 0, QS_ERROR);
    env->close(env, file);
    QS_CHECK(status == QS_OK);
    return env->rename(env, root, "cfg.tmp", "cfg", QS_ERROR);
}

FILE_TEST(test_planted_bug_is_caught)
{
    int torn = 0;
    int undone = 0;

    QS_CHECK_OK(qsi_file_replace(env, root, "cfg", "old", 3, QS_ERROR));
    QS_CHECK_OK(replace_without_syncs());
    for (uint64_t i = 0; i < 1000; i++) {
        qs_env *disk = qsi_env_sim_cut(sim, QSI_CUT_RANDOM, seed + i);

        torn += !is_old_or_new(disk);
        undone += has_text(disk, "cfg", "old");
        qsi_env_mem_destroy(disk);
    }
    QS_CHECK(torn > 0 && undone > 0);
}
