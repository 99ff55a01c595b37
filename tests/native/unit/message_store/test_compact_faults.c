/* Compaction, checkpoints and packs while calls fail and power goes.
 *
 * Method: one scenario crosses them all and notes the checkpoint that counts.  It is run with the
 * n-th call of the environment or of the allocator failing, n = 1, 2, ... until it passes, and with
 * power cuts before each of its steps; a store that recovers from the checkpoint has every body
 * that lives in it, and goes on. */
#include "counts_fixture.h"
#include "qs_test_cuts.h"
#include "qs_test_faults.h"

enum { BODIES = 12, PACKED = 8, COUNT = BODIES + PACKED };
#define BODY 10000u

struct state {
    struct qsi_body_ref refs[COUNT];
    bool is_live[COUNT];
    bool is_durable[COUNT]; /* lives in the checkpoint that counts */
    struct checkpoint counts;
    struct checkpoint next;
};

static qs_status get_any(struct fixture *fixture, const struct state *state, uint32_t i,
                         qs_error *error)
{
    return i < BODIES ? get(fixture, &state->refs[i], i, error)
                      : get_packed(fixture, &state->refs[i], i, error);
}

static qs_status check_live(struct fixture *fixture, const struct state *state, const bool *lives,
                            qs_error *error)
{
    for (uint32_t i = 0; i < COUNT; i++) {
        if (lives[i]) {
            QS_TRY(get_any(fixture, state, i, error));
        }
    }
    return QS_OK;
}

static qs_status fill(struct fixture *fixture, struct state *state, qs_error *error)
{
    static const uint32_t sizes[PACKED] = {0, 5, 100, 8, 1000, 1500, 64, 3};

    QS_TRY(try_put_pack(fixture, sizes, PACKED, BODIES, state->refs + BODIES, error));
    for (uint32_t i = 0; i < BODIES; i++) {
        QS_TRY(try_put(fixture, BODY, i, &state->refs[i], error));
        qsi_message_store_add_refs(fixture->messages, &state->refs[i], 1, 0);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        state->is_live[i] = true;
    }
    QS_TRY(commit(fixture, error));
    QS_TRY(qsi_message_store_sync_packs(fixture->messages, error));
    return qsi_message_store_settle(fixture->messages, error);
}

static void drop_some(struct fixture *fixture, struct state *state, uint32_t modulus)
{
    for (uint32_t i = 0; i < COUNT; i++) {
        if (state->is_live[i] && i % modulus != 0) {
            drop(fixture, &state->refs[i]);
            state->is_live[i] = false;
        }
    }
}

/* The checkpoint is durable between the two calls, in one moment. */
static qs_status checkpoint(struct fixture *fixture, struct state *state, qs_error *error)
{
    struct checkpoint old = state->counts;

    QS_TRY(try_snapshot(fixture, &state->next, error));
    state->counts = state->next;
    state->next = old;
    memcpy(state->is_durable, state->is_live, sizeof state->is_live);
    return qsi_message_store_unseal(fixture->messages, true, error);
}

/* A job that fails leaves everything readable. */
static qs_status compact_all(struct fixture *fixture, struct state *state, qs_error *error)
{
    struct qsi_compaction *job;

    QS_TRY(qsi_message_store_compact_begin(fixture->messages, &job, error));
    while (job != NULL) {
        qs_status status = qsi_message_store_compact_run(fixture->messages, job, error);

        qsi_message_store_compact_end(fixture->messages, job, status == QS_OK);
        QS_TRY(status);
        QS_TRY(check_live(fixture, state, state->is_live, error));
        QS_TRY(qsi_message_store_compact_begin(fixture->messages, &job, error));
    }
    return QS_OK;
}

static qs_status run_steps(struct fixture *fixture, struct state *state, qs_error *error)
{
    QS_TRY(fill(fixture, state, error));
    QS_TRY(checkpoint(fixture, state, error));
    drop_some(fixture, state, 4);
    QS_TRY(compact_all(fixture, state, error));
    QS_TRY(checkpoint(fixture, state, error));
    drop_some(fixture, state, 8);
    QS_TRY(compact_all(fixture, state, error));
    QS_TRY(checkpoint(fixture, state, error));
    drop_some(fixture, state, 16);
    return checkpoint(fixture, state, error);
}

static qs_status run_session(qs_env *env, struct state *state, qs_error *error)
{
    struct fixture fixture;
    qs_status status;

    QS_TRY(try_start(&fixture, env, error));
    status = run_steps(&fixture, state, error);
    if (status != QS_OK) { /* of this session, whatever failed in it */
        QS_CHECK_OK(check_live(&fixture, state, state->is_live, QS_ERROR));
    }
    stop(&fixture);
    return status;
}

/* What is durable is there, also after another recovery, and also behind a compaction. */
static qs_status run_recovery(qs_env *env, struct state *state, qs_error *error)
{
    struct fixture fixture;
    qs_status status;

    QS_TRY(try_start(&fixture, env, error));
    status = try_restore(&fixture, &state->counts, error);
    if (status == QS_OK) {
        status = try_finish(&fixture, error);
    }
    if (status == QS_OK) {
        status = check_live(&fixture, state, state->is_durable, error);
    }
    stop(&fixture);
    return status;
}

static bool is_expected(qs_status status)
{
    return status == QS_EIO || status == QS_ESTORE_FULL || status == QS_ENOSPC ||
           status == QS_EINTR || status == QS_ESTORE_FAILED ||
           status == QS_ECORRUPT; /* the file could not be read */
}

static void fini(struct state *state)
{
    qsi_buf_fini(&state->counts.records);
    qsi_buf_fini(&state->next.records);
}

QS_FAULT_TEST(test_every_failed_call_leaves_what_is_durable)
{
    for (struct qs_test_sweep sweep = {.how = how}; qs_test_sweep_on(&sweep);) {
        qs_env *env = qs_test_sweep_env(&sweep);
        struct state state = {.counts = {.count = 0}};
        qs_error error = {.status = QS_OK};
        qs_status status;

        qs_test_sweep_calls(&sweep, env);
        status = run_session(env, &state, &error);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == QS_OK || (sweep.has_failed && is_expected(status)));
        QS_CHECK(status == QS_OK || error.status == status);
        QS_CHECK_OK(run_recovery(env, &state, QS_ERROR));
        fini(&state);
    }
}

/* Cut off in the middle: there are generations that no checkpoint names. */
static void run_halfway(struct fixture *fixture, struct state *state)
{
    QS_CHECK_OK(fill(fixture, state, QS_ERROR));
    QS_CHECK_OK(checkpoint(fixture, state, QS_ERROR));
    drop_some(fixture, state, 4);
    QS_CHECK_OK(compact_all(fixture, state, QS_ERROR));
    stop(fixture);
}

QS_FAULT_TEST(test_recovery_that_fails_can_be_repeated)
{
    for (struct qs_test_sweep sweep = {.how = how}; qs_test_sweep_on(&sweep);) {
        qs_env *env = qs_test_sweep_env(&sweep);
        struct state state = {.counts = {.count = 0}};
        struct fixture fixture;
        qs_status status;

        start(&fixture, env);
        run_halfway(&fixture, &state);
        qs_test_sweep_calls(&sweep, env);
        status = run_recovery(env, &state, QS_ERROR);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == QS_OK || (sweep.has_failed && is_expected(status)));
        QS_CHECK_OK(run_recovery(env, &state, QS_ERROR));
        fini(&state);
    }
}

QS_TEST(test_every_failed_allocation_is_reported_and_leaks_nothing)
{
    qs_status (*const parts[])(qs_env *, struct state *, qs_error *) = {run_session, run_recovery};

    for (struct qs_test_sweep sweep = {.has_own_memory = true}; qs_test_sweep_on(&sweep);) {
        qs_env *env = qsi_env_mem_create(1);
        struct state state = {.counts = {.count = 0}};

        for (int part = 0; part < 2; part++) {
            qs_status status;

            qs_test_sweep_allocations(&sweep);
            status = parts[part](env, &state, QS_ERROR);
            qs_test_sweep_rest(&sweep);
            QS_CHECK(status == QS_OK || status == QS_ENOMEM);
            QS_CHECK_OK(run_recovery(env, &state, QS_ERROR));
        }
        fini(&state);
        qsi_env_mem_destroy(env);
    }
}

/* References of queues that end with the process cannot fail: without memory the file stays. */
QS_TEST(test_transient_references_without_memory_keep_the_file)
{
    struct qs_test_alloc failing = {.fail_at = 0};
    qs_env *env = qsi_env_mem_create(1);
    struct checkpoint taken = {0};
    struct fixture fixture;
    struct qsi_body_ref ref;

    start(&fixture, env);
    ref = put_counted(&fixture, BODY, 1, 1);
    qs_test_alloc_use(&failing);
    failing.fail_at = failing.calls + 1;
    qsi_message_store_add_refs(fixture.messages, &ref, 0, 1);
    qs_allocator_set(NULL);
    settle_all(&fixture);
    drop(&fixture, &ref);
    qsi_message_store_drop_ref(fixture.messages, &ref, true);
    take_checkpoint(&fixture, &taken);
    QS_CHECK(exists(&fixture, 1) && taken.count == 0);
    recover_from(&fixture, &taken);
    QS_CHECK(!exists(&fixture, 1));
    stop(&fixture);
    qsi_buf_fini(&taken.records);
    qsi_env_mem_destroy(env);
}

/* The process dies before its commit; what it wrote is in the page cache, and found there: by the
 * replay alone, or in a file that the checkpoint did not call settled. */
QS_BOOL_TEST(test_what_recovery_keeps_is_durable_from_then_on, named)
{
    qs_env *sim = qsi_env_sim_create(1);
    struct checkpoint taken = {0};
    struct fixture fixture;
    struct qsi_body_ref refs[2];
    qs_env *disk;

    start(&fixture, sim);
    refs[0] = put_counted(&fixture, BODY, 1, 1);
    QS_CHECK_OK(commit(&fixture, QS_ERROR));
    if (named) {
        take_checkpoint(&fixture, &taken);
    }
    refs[1] = put_counted(&fixture, BODY, 2, 1);
    restart(&fixture);
    QS_CHECK_OK(try_restore(&fixture, &taken, QS_ERROR));
    for (int i = named ? 1 : 0; i < 2; i++) {
        QS_CHECK_OK(qsi_message_store_add_reference(fixture.messages, &refs[i], QS_ERROR));
        qsi_message_store_add_refs(fixture.messages, &refs[i], 1, 0);
    }
    QS_CHECK_OK(qsi_message_store_retain_counted(fixture.messages, QSI_RETAIN, QS_ERROR));
    disk = qsi_env_sim_cut(sim, QSI_CUT_DROP_ALL, 1);
    stop(&fixture);
    start(&fixture, disk);
    QS_CHECK_OK(get(&fixture, &refs[0], 1, QS_ERROR));
    QS_CHECK_OK(get(&fixture, &refs[1], 2, QS_ERROR));
    stop(&fixture);
    qsi_env_mem_destroy(disk);
    qsi_env_sim_destroy(sim);
    qsi_buf_fini(&taken.records);
}

/* ---- power cuts before each step ---- */

static void check_cut(void *state, qs_env *disk)
{
    for (int round = 0; round < 2; round++) {
        QS_CHECK_OK(run_recovery(disk, state, QS_ERROR));
    }
}

QS_SEED_TEST(test_power_cut_at_any_step)
{
    qs_env *sim = qsi_env_sim_create(seed);
    struct state state = {.counts = {.count = 0}};
    struct qs_test_cuts cuts = {sim, check_cut, &state, seed, .by_chance = 6};
    struct fixture fixture;

    start(&fixture, sim);
    qs_test_cuts_begin(&cuts);
    run_halfway(&fixture, &state);
    QS_CHECK_OK(run_recovery(sim, &state, QS_ERROR)); /* power goes during recovery, too */
    memcpy(state.is_live, state.is_durable, sizeof state.is_live);
    start(&fixture, sim);
    QS_CHECK_OK(try_restore(&fixture, &state.counts, QS_ERROR));
    QS_CHECK_OK(try_finish(&fixture, QS_ERROR));
    for (uint32_t modulus = 4; modulus <= 16; modulus *= 2) {
        drop_some(&fixture, &state, modulus);
        QS_CHECK_OK(compact_all(&fixture, &state, QS_ERROR));
        QS_CHECK_OK(checkpoint(&fixture, &state, QS_ERROR));
    }
    stop(&fixture);
    qs_test_cuts_end(&cuts);
    qsi_env_sim_destroy(sim);
    fini(&state);
}
