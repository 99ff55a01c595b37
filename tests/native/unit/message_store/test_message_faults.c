/* The message store while calls fail and power goes.
 *
 * Method: one scenario crosses every operation and notes which bodies a commit has made
 * durable.  It is run with the n-th call of the environment or of the allocator failing, n = 1,
 * 2, ... until it passes, and with power cuts before each of its steps; afterwards a store
 * opened on what is left has every durable body, and of the others only whole ones. */
#include "counts_fixture.h"
#include "qs_test_cuts.h"
#include "qs_test_faults.h"

#define BODY_COUNT 12

struct bodies {
    struct qsi_body_ref refs[BODY_COUNT]; /* file 0: forgotten */
    uint32_t written;                     /* refs that are filled in */
    uint32_t durable;                     /* of these, the ones that a commit made durable */
};

static uint32_t body_bytes_of(uint32_t number)
{
    return number == 5 ? 80000 : 10000 + number; /* one larger than a file */
}

static qs_status put_and_commit(struct fixture *fixture, struct bodies *bodies, qs_error *error)
{
    while (bodies->written < BODY_COUNT) {
        uint32_t number = bodies->written;

        QS_TRY(try_put(fixture, body_bytes_of(number), number, &bodies->refs[number], error));
        qsi_message_store_add_refs(fixture->messages, &bodies->refs[number], 1, 0);
        bodies->written++;
        if (number % 3 == 2) {
            QS_TRY(commit(fixture, error));
            bodies->durable = bodies->written;
            QS_TRY(qsi_message_store_maintain(fixture->messages, error));
        }
        QS_TRY(get(fixture, &bodies->refs[number / 2], number / 2, error));
    }
    return QS_OK;
}

/* As recovery does: what is whole is kept. */
static qs_status recover(struct fixture *fixture, const struct bodies *bodies, qs_error *error)
{
    for (uint32_t i = 0; i < bodies->written; i++) {
        const struct qsi_body_ref *ref = &bodies->refs[i];
        qs_status status;

        if (ref->file == 0) {
            continue;
        }
        status = qsi_message_store_check(fixture->messages, ref, error);
        if (status == QS_OK) {
            QS_TRY(qsi_message_store_add_reference(fixture->messages, ref, error));
            qsi_message_store_add_refs(fixture->messages, ref, 1, 0);
        } else if (status != QS_ECORRUPT || i < bodies->durable) {
            return status;
        }
    }
    return try_finish(fixture, error);
}

/* Nobody refers to the first file any more, and a checkpoint that does not name it is durable. */
static qs_status remove_first_file(struct fixture *fixture, const struct bodies *bodies,
                                   qs_error *error)
{
    struct checkpoint checkpoint = {0};
    qs_status status;

    for (uint32_t i = 0; i < bodies->written; i++) {
        if (bodies->refs[i].file == bodies->refs[0].file) {
            drop(fixture, &bodies->refs[i]);
        }
    }
    status = try_snapshot(fixture, &checkpoint, error);
    if (status == QS_OK) {
        status = qsi_message_store_unseal(fixture->messages, true, error);
    }
    qsi_buf_fini(&checkpoint.records);
    return status;
}

static qs_status run_session(qs_env *env, struct bodies *bodies, qs_error *error)
{
    struct fixture fixture;
    qs_status status;

    QS_TRY(try_start(&fixture, env, error));
    status = put_and_commit(&fixture, bodies, error);
    if (status == QS_OK) {
        status = qsi_message_store_settle(fixture.messages, error);
    }
    if (status == QS_OK) {
        status = remove_first_file(&fixture, bodies, error);
    }
    stop(&fixture);
    return status;
}

static qs_status run_recovery(qs_env *env, const struct bodies *bodies, qs_error *error)
{
    struct fixture fixture;
    qs_status status;

    QS_TRY(try_start(&fixture, env, error));
    status = recover(&fixture, bodies, error);
    stop(&fixture);
    return status;
}

/* The first file was removed at the end of a session, or may have been. */
static void check_durable(qs_env *env, const struct bodies *bodies, bool first_may_be_gone)
{
    uint32_t first = first_may_be_gone ? bodies->refs[0].file : 0;
    struct fixture fixture;

    start(&fixture, env);
    for (uint32_t i = 0; i < bodies->written; i++) {
        const struct qsi_body_ref *ref = &bodies->refs[i];
        qs_status status = ref->file != 0 ? get(&fixture, ref, i, NULL) : QS_OK;
        bool may_be_gone = i >= bodies->durable || ref->file == first;

        QS_CHECK(status == QS_OK || (may_be_gone && status == QS_ECORRUPT));
    }
    stop(&fixture);
}

/* Forgets the bodies of the first file, which a session removes at its end. */
static void forget_first_file(struct bodies *bodies)
{
    uint32_t first = bodies->refs[0].file;

    for (uint32_t i = 0; i < bodies->written; i++) {
        if (bodies->refs[i].file == first) {
            bodies->refs[i].file = 0;
        }
    }
}

static bool is_expected(qs_status status)
{
    return status == QS_EIO || status == QS_ESTORE_FULL || status == QS_ENOSPC ||
           status == QS_EINTR || status == QS_ESTORE_FAILED;
}

QS_FAULT_TEST(test_every_failed_call_leaves_the_durable_bodies_whole)
{
    for (struct qs_test_sweep sweep = {.how = how}; qs_test_sweep_on(&sweep);) {
        qs_env *env = qs_test_sweep_env(&sweep);
        struct bodies bodies = {.written = 0};
        qs_error error = {.status = QS_OK};
        qs_status status;

        qs_test_sweep_calls(&sweep, env);
        status = run_session(env, &bodies, &error);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == QS_OK || (sweep.has_failed && is_expected(status)));
        QS_CHECK(status == QS_OK || error.status == status);
        check_durable(env, &bodies, true);
    }
}

QS_FAULT_TEST(test_recovery_that_fails_can_be_repeated)
{
    for (struct qs_test_sweep sweep = {.how = how}; qs_test_sweep_on(&sweep);) {
        qs_env *env = qs_test_sweep_env(&sweep);
        struct bodies bodies = {.written = 0};
        qs_status status;

        QS_CHECK_OK(run_session(env, &bodies, QS_ERROR));
        forget_first_file(&bodies);
        qs_test_sweep_calls(&sweep, env);
        status = run_recovery(env, &bodies, QS_ERROR);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == QS_OK || (sweep.has_failed && is_expected(status)));
        QS_CHECK_OK(run_recovery(env, &bodies, QS_ERROR));
    }
}

QS_TEST(test_every_failed_allocation_is_reported_and_leaks_nothing)
{
    for (struct qs_test_sweep sweep = {.has_own_memory = true}; qs_test_sweep_on(&sweep);) {
        struct bodies bodies = {.written = 0};
        qs_env *env;

        qs_test_sweep_allocations(&sweep);
        env = qsi_env_mem_try_create(1);
        if (env != NULL) {
            qs_status status = run_session(env, &bodies, QS_ERROR);
            QS_CHECK(status == QS_OK || status == QS_ENOMEM);
        }
        qs_test_sweep_rest(&sweep);
        if (env != NULL) {
            check_durable(env, &bodies, true);
        }
        qsi_env_mem_destroy(env);
    }
}

QS_TEST(test_full_disk_refuses_the_body_and_changes_nothing)
{
    qs_env *mem = qsi_env_mem_create(1);
    qs_env *env = qsi_env_fault_create(mem);
    struct fixture fixture;
    struct qsi_body_ref ref;
    struct qsi_place place;
    qs_error error;

    start(&fixture, env);
    qsi_env_fault_arm(env, QSI_FAULT_ALLOCATE, QSI_FAULT_ENOSPC, 1, true);
    for (int i = 0; i < 3; i++) {
        QS_CHECK(qsi_message_store_reserve(fixture.messages, 10, 5000, &place, &error) ==
                 QS_ESTORE_FULL);
        QS_CHECK(error.status == QS_ESTORE_FULL && place.file == NULL);
    }
    QS_CHECK(qsi_message_store_reserve(fixture.messages, 10, 500000, &place, &error) ==
             QS_ESTORE_FULL);
    qsi_env_fault_arm(env, QSI_FAULT_ALLOCATE, QSI_FAULT_ENOSPC, 0, false);
    for (uint32_t number = 1; number < 5; number++) {
        QS_CHECK(!exists(&fixture, number));
    }
    ref = put(&fixture, 5000, 1);
    qsi_env_fault_arm(env, QSI_FAULT_WRITE, QSI_FAULT_ENOSPC, 1, false);
    QS_CHECK(try_put(&fixture, 5000, 2, &ref, &error) == QS_ESTORE_FULL);
    ref = put(&fixture, 5000, 3);
    QS_CHECK(commit(&fixture, NULL) == QS_OK);
    QS_CHECK(get(&fixture, &ref, 3, NULL) == QS_OK);
    stop(&fixture);
    qsi_env_fault_destroy(env);
    qsi_env_mem_destroy(mem);
}

/* The second fdatasync would succeed, and the bytes are gone all the same. */
QS_TEST(test_failed_sync_is_final_and_reads_go_on)
{
    qs_env *sim = qsi_env_sim_create(1);
    qs_env *env = qsi_env_fault_create(sim);
    struct fixture fixture;
    struct qsi_body_ref durable;
    struct qsi_dirty_set set;
    qs_error error;

    start(&fixture, env);
    durable = put(&fixture, 5000, 1);
    QS_CHECK(commit(&fixture, NULL) == QS_OK);
    put(&fixture, 50000, 2);
    qsi_env_fault_arm(env, QSI_FAULT_SYNC, QSI_FAULT_SYNC_LOST, 1, false);
    QS_CHECK(commit(&fixture, &error) == QS_EIO);
    QS_CHECK(strstr(error.text, "messages/0000000001.msg") != NULL);
    put(&fixture, 50000, 3);
    QS_CHECK(commit(&fixture, &error) == QS_ESTORE_FAILED);
    QS_CHECK(qsi_message_store_maintain(fixture.messages, &error) == QS_ESTORE_FAILED);
    QS_CHECK(qsi_message_store_settle(fixture.messages, &error) == QS_ESTORE_FAILED);
    QS_CHECK(!qsi_message_store_needs_maintenance(fixture.messages));
    qsi_message_store_dirty_take(fixture.messages, &set);
    QS_CHECK(set.count == 0);
    QS_CHECK(get(&fixture, &durable, 1, NULL) == QS_OK);
    stop(&fixture);
    qsi_env_fault_destroy(env);
    qsi_env_sim_destroy(sim);
}

QS_TEST(test_unsynced_body_is_detected_after_a_power_cut)
{
    qs_env *sim = qsi_env_sim_create(1);
    struct fixture fixture;
    struct fixture after;
    struct qsi_body_ref synced;
    struct qsi_body_ref unsynced;
    qs_env *disk;

    start(&fixture, sim);
    synced = put(&fixture, 5000, 1);
    QS_CHECK(commit(&fixture, NULL) == QS_OK);
    unsynced = put(&fixture, 5000, 2);
    disk = qsi_env_sim_cut(sim, QSI_CUT_DROP_ALL, 1);
    start(&after, disk);
    QS_CHECK(get(&after, &synced, 1, NULL) == QS_OK);
    QS_CHECK(qsi_message_store_check(after.messages, &unsynced, NULL) == QS_ECORRUPT);
    QS_CHECK(get(&after, &unsynced, 2, NULL) == QS_ECORRUPT);
    stop(&after);
    qsi_env_mem_destroy(disk);
    stop(&fixture);
    qsi_env_sim_destroy(sim);
}

/* The process dies before its commit; what it wrote is in the page cache, and found there. */
QS_TEST(test_body_that_recovery_keeps_is_durable_from_then_on)
{
    qs_env *sim = qsi_env_sim_create(1);
    struct fixture fixture;
    struct qsi_body_ref ref;
    qs_env *disk;

    start(&fixture, sim);
    ref = put(&fixture, 5000, 1);
    restart(&fixture);
    QS_CHECK(qsi_message_store_check(fixture.messages, &ref, NULL) == QS_OK);
    note_and_add(&fixture, &ref, 1);
    QS_CHECK_OK(qsi_message_store_retain_counted(fixture.messages, QSI_RETAIN, QS_ERROR));
    stop(&fixture);
    disk = qsi_env_sim_cut(sim, QSI_CUT_DROP_ALL, 1);
    start(&fixture, disk);
    QS_CHECK(get(&fixture, &ref, 1, NULL) == QS_OK);
    stop(&fixture);
    qsi_env_mem_destroy(disk);
    qsi_env_sim_destroy(sim);
}

/* ---- power cuts before each step ---- */

struct told {
    const struct bodies *bodies;
    bool removing; /* the first file is being removed, or is gone */
};

static void check_cut(void *context, qs_env *disk)
{
    const struct told *told = context;
    struct bodies bodies = *told->bodies;

    if (told->removing) {
        forget_first_file(&bodies);
    }
    check_durable(disk, &bodies, false);
    QS_CHECK_OK(run_recovery(disk, &bodies, QS_ERROR));
    check_durable(disk, &bodies, false);
}

QS_SEED_TEST(test_power_cut_at_any_step_keeps_every_durable_body)
{
    qs_env *sim = qsi_env_sim_create(seed);
    struct bodies bodies = {.written = 0};
    struct told told = {.bodies = &bodies};
    struct qs_test_cuts cuts = {sim, check_cut, &told, seed, .by_chance = 4};
    struct fixture fixture;

    start(&fixture, sim);
    qs_test_cuts_begin(&cuts);
    QS_CHECK(put_and_commit(&fixture, &bodies, NULL) == QS_OK);
    QS_CHECK(qsi_message_store_settle(fixture.messages, NULL) == QS_OK);
    told.removing = true;
    QS_CHECK(remove_first_file(&fixture, &bodies, NULL) == QS_OK);
    forget_first_file(&bodies);
    told.removing = false;
    stop(&fixture);
    QS_CHECK(run_recovery(sim, &bodies, NULL) == QS_OK);
    qs_test_cuts_end(&cuts);
    check_durable(sim, &bodies, false);
    qsi_env_sim_destroy(sim);
}
