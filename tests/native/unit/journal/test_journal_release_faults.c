/* Neither a failing call nor a power cut at any moment of giving journal files back brings a record
 * back, loses one, or stops the journal; nor do threads that commit meanwhile. */
#include "journal_release_fixture.h"
#include "qs_test_faults.h"

/* Over a disk that remembers what is not durable. */
static void start_over_fault(struct fixture *fixture, qs_env **sim_out, qs_env **fault_out)
{
    memset(fixture, 0, sizeof *fixture);
    *sim_out = qsi_env_sim_create(1);
    *fault_out = qsi_env_fault_create(*sim_out);
    fixture->env = *fault_out;
    fixture->options.file_bytes = FILE_BYTES;
    fixture->options.sync = true;
    memcpy(fixture->options.uuid, "a store's uuid..", QSI_UUID_BYTES);
    memcpy(fixture->manifest.uuid, "a store's uuid..", QSI_UUID_BYTES);
    fixture->next = 1;
    fixture_open_dirs(fixture);
    QS_CHECK_OK(qsi_dir_sync_parent(fixture->env, fixture->root, QS_ERROR));
    QS_CHECK_OK(qsi_dir_sync(fixture->env, fixture->root, QS_ERROR));
    fixture_begin(fixture, 0, 0);
}

static void stop_over_fault(struct fixture *fixture, qs_env *sim, qs_env *fault)
{
    fixture_stop(fixture);
    qsi_env_fault_destroy(fault);
    qsi_env_sim_destroy(sim);
}

/* What a power cut leaves, with the manifest that is there, and no journal open. */
static void cut(struct fixture *copy, const struct fixture *fixture, qs_env *sim,
                enum qsi_cut_how how, uint64_t seed)
{
    *copy = *fixture;
    copy->journal = NULL;
    copy->fault = NULL;
    copy->memory = copy->env = qsi_env_sim_cut(sim, how, seed);
    fixture_open_dirs(copy);
    QS_CHECK_OK(qsi_manifest_load(&copy->manifest, copy->env, copy->root, QS_ERROR));
}

static void check_after_cut(const struct fixture *fixture, qs_env *sim, enum qsi_cut_how how)
{
    struct fixture copy;

    cut(&copy, fixture, sim, how, 1);
    check_all_there(&copy);
    fixture_stop(&copy);
}

QS_FAULT_TEST(test_the_journal_goes_on_whatever_fails_in_a_release)
{
    for (struct qs_test_sweep sweep = {.how = how, .fewest = how == QSI_FAULT_SHORT ? 0 : 15};
         qs_test_sweep_on(&sweep);) {
        struct fixture fixture;
        qs_env *sim, *fault;
        qs_status status;

        start_over_fault(&fixture, &sim, &fault);
        commit_records(&fixture, 5 * RECORDS_IN_A_FILE + 3);
        checkpoint(&fixture, fixture.next - 3);
        qs_test_sweep_calls(&sweep, fault);
        status = release(&fixture, 2);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == QS_OK || sweep.has_failed);
        QS_CHECK(status == QS_OK || status == QS_EIO || status == QS_ECORRUPT ||
                 status == QS_EINTR || status == QS_ENOSPC);
        check_all_there(&fixture);
        check_after_cut(&fixture, sim, QSI_CUT_DROP_ALL);
        commit_records(&fixture, 4 * RECORDS_IN_A_FILE);
        check_all_there(&fixture);
        check_after_cut(&fixture, sim, QSI_CUT_DROP_ALL);
        check_after_cut(&fixture, sim, QSI_CUT_KEEP_ALL);
        QS_CHECK_OK(release(&fixture, 2)); /* what was left goes now */
        QS_CHECK(count_files(&fixture, 1, fixture.manifest.sessions[0].first_file) == 0);
        checkpoint(&fixture, fixture.next - 1);
        QS_CHECK_OK(release(&fixture, 0));
        commit_records(&fixture, 4 * RECORDS_IN_A_FILE);
        check_all_there(&fixture);
        check_after_cut(&fixture, sim, QSI_CUT_DROP_ALL);
        stop_over_fault(&fixture, sim, fault);
    }
}

QS_TEST(test_a_file_that_cannot_be_renamed_is_removed)
{
    struct fixture fixture;
    qs_env *sim, *fault;

    start_over_fault(&fixture, &sim, &fault);
    commit_records(&fixture, 5 * RECORDS_IN_A_FILE + 3);
    checkpoint(&fixture, fixture.next - 3);
    qsi_env_fault_arm(fault, QSI_FAULT_RENAME, QSI_FAULT_EIO, 1, false);
    QS_CHECK_STATUS(QS_EIO, release(&fixture, 2));
    QS_CHECK(qsi_env_fault_fired(fault));
    QS_CHECK(count_files(&fixture, 1, fixture.manifest.sessions[0].first_file) == 0);
    check_all_there(&fixture);
    stop_over_fault(&fixture, sim, fault);
}

QS_TEST(test_the_journal_goes_on_without_memory_for_a_release)
{
    for (struct qs_test_sweep sweep = {.has_own_memory = true, .fewest = 5};
         qs_test_sweep_on(&sweep);) {
        struct fixture fixture;
        qs_status status;

        fixture_start(&fixture);
        commit_records(&fixture, 5 * RECORDS_IN_A_FILE + 3);
        checkpoint(&fixture, fixture.next - 3);
        qs_test_sweep_allocations(&sweep);
        status = release(&fixture, 2);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == QS_OK || (sweep.has_failed && status == QS_ENOMEM));
        check_all_there(&fixture);
        commit_records(&fixture, 4 * RECORDS_IN_A_FILE);
        check_all_there(&fixture);
        QS_CHECK_OK(release(&fixture, 2));
        QS_CHECK(count_files(&fixture, 1, fixture.manifest.sessions[0].first_file) == 0);
        fixture_stop(&fixture);
    }
}

/* ---- power cuts ---- */

struct cuts {
    struct fixture *fixture;
    qs_env *sim;
    uint64_t seed;
    uint64_t durable; /* the number of the last record of a finished commit */
    uint64_t count;
};

/* The disk is read, a session begins on it and goes on into the files that lie there, and it is
 * read again. */
static void check_cut(struct cuts *cuts, enum qsi_cut_how how, uint64_t seed)
{
    struct fixture copy;

    cut(&copy, cuts->fixture, cuts->sim, how, seed);
    QS_CHECK_OK(scan(&copy, &seen));
    check_behind_checkpoint(&copy, cuts->durable, cuts->fixture->next - 1);
    QS_CHECK(seen.result.lost_ranges == 0);
    if (seed % 4 == 0) {
        uint32_t dead =
            copy.manifest.checkpoint_number != 0 ? copy.manifest.sessions[0].first_file : 0;
        reopen(&copy);
        QS_CHECK(count_files(&copy, 1, dead) == 0);
        make_spare(&copy, 0, 0);
        commit_records(&copy, RECORDS_IN_A_FILE + 5);
        check_all_there(&copy);
    }
    cuts->count += 1;
    fixture_stop(&copy);
}

/* A second power cut, of a session that gave files back on a disk that the first one left. */
static void check_second_cut(struct cuts *cuts, uint64_t seed)
{
    struct fixture first, second;
    qs_env *sim;

    cut(&first, cuts->fixture, cuts->sim, QSI_CUT_RANDOM, seed);
    first.env->dir_close(first.env, first.dir);
    first.env->dir_close(first.env, first.root);
    sim = qsi_env_sim_from_mem(first.memory, seed);
    first.memory = NULL;
    first.env = sim;
    fixture_open_dirs(&first);
    reopen(&first);
    commit_records(&first, seed % RECORDS_IN_A_FILE);
    if (seed % 2 == 0) {
        checkpoint(&first, first.next - 1);
        QS_CHECK_OK(release(&first, 2));
        commit_records(&first, seed % (2 * RECORDS_IN_A_FILE));
    }
    cut(&second, &first, sim, QSI_CUT_RANDOM, seed + 1);
    QS_CHECK_OK(scan(&second, &seen));
    check_behind_checkpoint(&second, first.next - 1, first.next - 1);
    reopen(&second);
    commit_records(&second, RECORDS_IN_A_FILE);
    check_all_there(&second);
    fixture_stop(&second);
    fixture_stop(&first);
    qsi_env_sim_destroy(sim);
    cuts->count += 1;
}

static void take_cuts(void *context, uint64_t step)
{
    struct cuts *cuts = context;

    check_cut(cuts, QSI_CUT_KEEP_ALL, step);
    check_cut(cuts, QSI_CUT_DROP_ALL, step);
    for (uint64_t i = 0; i < 4; i++) {
        check_cut(cuts, QSI_CUT_RANDOM, cuts->seed + 8 * step + i);
    }
    check_second_cut(cuts, cuts->seed + 8 * step + 5);
    check_second_cut(cuts, cuts->seed + 8 * step + 6);
}

static void commit_a_few(struct cuts *cuts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        append(cuts->fixture, RECORD_BYTES);
    }
    commit(cuts->fixture);
    cuts->durable = cuts->fixture->next - 1;
}

/* Rolling into files used again, releasing them again: at every step, whatever a cut leaves is
 * the journal without a record that was released, cut off or doubled. */
QS_SEED_TEST(test_power_cuts_around_releases)
{
    struct fixture fixture;
    struct cuts cuts = {.fixture = &fixture, .seed = seed * UINT64_C(1000003)};
    qs_env *fault;

    start_over_fault(&fixture, &cuts.sim, &fault);
    commit_a_few(&cuts, 3 * RECORDS_IN_A_FILE);
    qsi_env_sim_on_step(cuts.sim, take_cuts, &cuts);
    for (uint32_t turn = 0; turn < 5; turn++) {
        for (uint32_t i = 0; i < 5; i++) {
            commit_a_few(&cuts, 1 + (turn + i) % 9);
        }
        checkpoint(&fixture, cuts.durable - (turn % 3) * 4);
        if (turn % 2 == 1) {
            commit_a_few(&cuts, 2 * RECORDS_IN_A_FILE);
        }
        QS_CHECK_OK(release(&fixture, 1 + turn % 3));
        commit_a_few(&cuts, RECORDS_IN_A_FILE);
    }
    qsi_env_sim_on_step(cuts.sim, NULL, NULL);
    printf("%" PRIu64 " cuts\n", cuts.count);
    QS_CHECK(cuts.count > 500);
    stop_over_fault(&fixture, cuts.sim, fault);
}

static void fill_ahead(struct cuts *cuts, uint64_t bytes)
{
    struct qsi_journal *journal = cuts->fixture->journal;

    if (qsi_journal_wants_fill(journal)) {
        QS_CHECK_OK(qsi_journal_fill(journal, bytes, QS_ERROR));
        qsi_journal_record_fill(journal);
    }
}

/* What a cut leaves of zeros ahead of the head, torn or garbage, is neither a block nor damage,
 * and what was durable is there. */
QS_SEED_TEST(test_power_cuts_around_zeros_ahead)
{
    struct fixture fixture;
    struct cuts cuts = {.fixture = &fixture, .seed = seed * UINT64_C(1000033)};
    uint32_t fills = 0;
    qs_env *fault;

    start_over_fault(&fixture, &cuts.sim, &fault);
    commit_a_few(&cuts, 2 * RECORDS_IN_A_FILE);
    qsi_env_sim_on_step(cuts.sim, take_cuts, &cuts);
    for (uint32_t turn = 0; turn < 40; turn++) {
        fills += qsi_journal_wants_fill(fixture.journal);
        fill_ahead(&cuts, (1 + turn % 4) * (uint64_t)QSI_BLOCK_ALIGN);
        commit_a_few(&cuts, 1 + turn % 3);
        if (turn % 5 == 4) {
            QS_CHECK_OK(qsi_journal_mark(fixture.journal, QS_ERROR));
        }
    }
    qsi_env_sim_on_step(cuts.sim, NULL, NULL);
    printf("%" PRIu64 " cuts, %u fills\n", cuts.count, fills);
    QS_CHECK(fills > 10);
    stop_over_fault(&fixture, cuts.sim, fault);
}

/* ---- threads ---- */

#define THREAD_COMMITS 1000

struct shared {
    struct fixture *fixture;
    struct qsi_mutex mutex;
    bool is_done;
    _Atomic uint32_t releases, spares;
};

static void lock_shared(void *context)
{
    qsi_mutex_lock(&((struct shared *)context)->mutex);
}

static void unlock_shared(void *context)
{
    qsi_mutex_unlock(&((struct shared *)context)->mutex);
}

static bool is_done(struct shared *shared)
{
    bool done;

    qsi_mutex_lock(&shared->mutex);
    done = shared->is_done;
    qsi_mutex_unlock(&shared->mutex);
    return done;
}

static void *run_spares(void *argument)
{
    struct shared *shared = argument;
    struct qsi_journal *journal = shared->fixture->journal;

    while (!is_done(shared)) {
        struct qsi_spare spare;
        bool wanted;

        qsi_mutex_lock(&shared->mutex);
        wanted = qsi_journal_wants_spare(journal);
        if (wanted) {
            qsi_journal_spare_begin(journal, &spare, 0, 0, UINT64_MAX, false);
        }
        qsi_mutex_unlock(&shared->mutex);
        if (!wanted) {
            usleep(100);
            continue;
        }
        shared->spares += 1;
        QS_CHECK_OK(qsi_journal_spare_make(journal, &spare, QS_ERROR));
        qsi_mutex_lock(&shared->mutex);
        QS_CHECK_OK(qsi_journal_spare_finish(journal, &spare));
        qsi_mutex_unlock(&shared->mutex);
    }
    return NULL;
}

static void *run_checkpoints(void *argument)
{
    struct shared *shared = argument;
    struct fixture *fixture = shared->fixture;

    while (!is_done(shared)) {
        struct qsi_session start;
        uint64_t lsn;

        qsi_mutex_lock(&shared->mutex);
        lsn = qsi_journal_durable_lsn(fixture->journal);
        qsi_journal_session_at(fixture->journal, lsn, &start);
        qsi_mutex_unlock(&shared->mutex);
        fixture->manifest.checkpoint_number += 1;
        fixture->manifest.checkpoint_lsn = lsn;
        qsi_manifest_begin_at(&fixture->manifest, &start);
        QS_CHECK_OK(qsi_manifest_store(&fixture->manifest, fixture->env, fixture->root, QS_ERROR));
        QS_CHECK_OK(release(fixture, shared->releases++ % 3));
    }
    return NULL;
}

/* A leader, a maker of spares and one that gives files back, all at once. */
QS_TEST(test_files_change_hands_between_threads)
{
    struct fixture fixture;
    struct shared shared = {.fixture = &fixture};
    pthread_t threads[2];

    qsi_mutex_init(&shared.mutex);
    fixture_init(&fixture);
    fixture.options.lock = lock_shared;
    fixture.options.unlock = unlock_shared;
    fixture.options.lock_context = &shared;
    fixture_begin(&fixture, 0, 0);
    QS_CHECK_OK(qsi_thread_start(&threads[0], "spares", run_spares, &shared, QS_ERROR));
    QS_CHECK_OK(qsi_thread_start(&threads[1], "checkpoints", run_checkpoints, &shared, QS_ERROR));
    /* And until each of the others has had its turn. */
    for (uint32_t i = 0; i < THREAD_COMMITS || shared.releases == 0 || shared.spares == 0; i++) {
        qsi_mutex_lock(&shared.mutex);
        for (uint32_t k = 0; k < 1 + i % 20; k++) {
            append(&fixture, RECORD_BYTES);
        }
        QS_CHECK(qsi_journal_seal(fixture.journal));
        qsi_mutex_unlock(&shared.mutex);
        QS_CHECK_OK(qsi_journal_write(fixture.journal, QS_ERROR));
        QS_CHECK_OK(qsi_journal_sync(fixture.journal, QS_ERROR));
        qsi_mutex_lock(&shared.mutex);
        qsi_journal_finish(fixture.journal);
        qsi_mutex_unlock(&shared.mutex);
    }
    qsi_mutex_lock(&shared.mutex);
    shared.is_done = true;
    qsi_mutex_unlock(&shared.mutex);
    QS_CHECK(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
    check_all_there(&fixture);
    commit_records(&fixture, 40);
    check_all_there(&fixture);
    fixture_stop(&fixture);
    qsi_mutex_fini(&shared.mutex);
}
