/* What the files of a journal say of each other: no lost, cut or zeroed file, and no older
 * MANIFEST, passes for what a crash left; and what a crash leaves never passes for damage.  An
 * environment leaves out what the one or the other needs (forgetful_env.h).
 *
 * Arguments: seed. */
#include "forgetful_env.h"

#define RECORDS_IN_A_FILE 12

static struct seen seen;

/* ---- a cut at every step, and a loss in what it leaves ---- */

struct trial {
    struct fixture *fixture;
    qs_env *sim;
    struct forgetful forgetful;
    uint64_t seed;
    uint64_t durable;   /* the number of the last record of a finished commit */
    uint64_t committed; /* and of the one before it */
    bool is_quiet;      /* the journal was marked since */
    uint64_t states;
    uint64_t refused;   /* intact disks that were taken for damaged ones, or lack something */
    uint64_t unnoticed; /* damaged ones that were not, and lack more than the last commit */
};

static bool cut(struct fixture *copy, const struct trial *trial, enum qsi_cut_how how,
                uint64_t seed)
{
    *copy = *trial->fixture;
    copy->journal = NULL;
    copy->fault = NULL;
    copy->memory = copy->env = qsi_env_sim_cut(trial->sim, how, seed);
    fixture_open_dirs(copy);
    return qsi_manifest_load(&copy->manifest, copy->env, copy->root, QS_ERROR) == QS_OK;
}

/* What is left must be told from what was durable, but for the last commit. */
static void judge(struct trial *trial, const struct fixture *copy)
{
    uint64_t least = trial->is_quiet ? trial->durable : trial->committed;

    trial->states += 1;
    trial->unnoticed += scan(copy, &seen) == QS_OK && seen.count < least;
}

static uint32_t last_begun(const struct fixture *copy)
{
    struct qsi_journal_numbers numbers;
    uint32_t last = 0;

    QS_CHECK_OK(qsi_journal_list(&numbers, copy->env, copy->dir, QS_ERROR));
    for (uint32_t i = 0; i < numbers.count; i++) {
        struct qsi_journal_head head;

        QS_CHECK_OK(qsi_journal_head_read(&head, copy->env, copy->dir, numbers.items[i],
                                          copy->manifest.uuid, QS_ERROR));
        last = head.is_whole ? numbers.items[i] : last;
    }
    qsi_journal_numbers_fini(&numbers);
    return last;
}

/* How a file is lost. */
static void lose_file(const struct fixture *copy, uint32_t number, uint64_t how)
{
    switch (how % 3) {
    case 0:
        remove_file(copy, number);
        break;
    case 1:
        truncate_file(copy, number, 0);
        break;
    default:
        damage(copy, number, 0, FILE_BYTES, 0);
        break;
    }
}

static void take_cut(struct trial *trial, enum qsi_cut_how how, uint64_t seed)
{
    struct fixture copy;
    uint32_t last;

    if (cut(&copy, trial, how, seed)) {
        qs_status status = scan(&copy, &seen);
        trial->states += 1;
        trial->refused += status != QS_OK || seen.count < trial->durable;
        last = last_begun(&copy);
        if (status == QS_OK && last > 0) {
            lose_file(&copy, last, seed);
            judge(trial, &copy);
        }
    }
    fixture_stop(&copy);
}

static void take_cuts(void *context, uint64_t step)
{
    struct trial *trial = context;

    take_cut(trial, QSI_CUT_KEEP_ALL, step);
    take_cut(trial, QSI_CUT_DROP_ALL, step);
    for (uint64_t i = 0; i < 4; i++) {
        take_cut(trial, QSI_CUT_RANDOM, trial->seed + 8 * step + i);
    }
}

static void commit_some(struct trial *trial, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        append(trial->fixture, RECORD_BYTES);
    }
    trial->is_quiet = false;
    commit(trial->fixture);
    trial->committed = trial->durable;
    trial->durable = trial->fixture->next - 1;
}

static void go_quiet(struct trial *trial)
{
    if (qsi_journal_has_unmarked(trial->fixture->journal)) {
        QS_CHECK_OK(qsi_journal_mark(trial->fixture->journal, QS_ERROR));
    }
    trial->is_quiet = true;
}

/* Commits that begin, end and lie across the ends of files, and files that a large record leaves
 * without a block. */
static void run_trial(struct trial *trial, enum bug bug, uint64_t seed)
{
    struct fixture fixture = {.next = 1};

    *trial = (struct trial){.fixture = &fixture, .seed = seed * UINT64_C(1000003)};
    trial->sim = qsi_env_sim_create(seed);
    forgetful_init(&trial->forgetful, trial->sim, bug);
    fixture.env = &trial->forgetful.env;
    fixture.options.file_bytes = FILE_BYTES;
    fixture.options.sync = true;
    memcpy(fixture.options.uuid, "a store's uuid..", QSI_UUID_BYTES);
    memcpy(fixture.manifest.uuid, "a store's uuid..", QSI_UUID_BYTES);
    fixture_open_dirs(&fixture);
    QS_CHECK_OK(qsi_dir_sync_parent(fixture.env, fixture.root, QS_ERROR));
    QS_CHECK_OK(qsi_dir_sync(fixture.env, fixture.root, QS_ERROR));
    qsi_env_sim_on_step(trial->sim, take_cuts, trial);
    fixture_begin(&fixture, 0, 0);
    for (uint32_t i = 0; i < 6; i++) {
        commit_some(trial, 1 + (uint32_t)(seed + i * 5) % 9);
        if (i % 2 == 1) {
            go_quiet(trial);
            make_spare(&fixture, 0, 0);
        }
    }
    append(&fixture, 15 * RECORD_BYTES);
    commit_some(trial, 0);
    go_quiet(trial);
    qsi_env_sim_on_step(trial->sim, NULL, NULL);
    fixture_stop(&fixture);
    qsi_env_sim_destroy(trial->sim);
}

QS_SEED_TEST(test_no_cut_is_damage_and_no_lost_file_is_a_cut)
{
    struct trial trial;

    run_trial(&trial, NO_BUG, seed);
    printf("%" PRIu64 " states\n", trial.states);
    QS_CHECK(trial.states > 500 && trial.refused == 0 && trial.unnoticed == 0);
}

QS_SEED_TEST(test_what_the_two_depend_on)
{
    struct trial trial;

    run_trial(&trial, NO_END_BLOCK, seed);
    QS_CHECK(trial.unnoticed > 0);
    run_trial(&trial, NO_END_BLOCK_SYNC, seed);
    QS_CHECK(trial.refused > 0 || trial.unnoticed > 0);
    run_trial(&trial, NO_HEADER_SYNC, seed);
    QS_CHECK(trial.refused > 0);
    run_trial(&trial, MARK_BEFORE_DURABLE, seed);
    QS_CHECK(trial.refused > 0);
}

/* ---- one page, one file, one suffix at a time ---- */

static void start_many(struct fixture *fixture, uint32_t count, bool quiet)
{
    fixture_start(fixture);
    for (uint32_t i = 0; i < count; i++) {
        append_and_commit(fixture, RECORD_BYTES);
    }
    if (quiet && qsi_journal_has_unmarked(fixture->journal)) {
        QS_CHECK_OK(qsi_journal_mark(fixture->journal, QS_ERROR));
    }
    check_scan(fixture, count);
}

/* The bound that docs/DURABILITY.md gives. */
QS_BOOL_TEST(test_a_page_that_is_lost_costs_the_last_commit_at_most, quiet)
{
    enum { COUNT = 3 * RECORDS_IN_A_FILE + 5 };
    struct fixture fixture, copy;
    uint32_t pages = 0, unnoticed = 0;

    start_many(&fixture, COUNT, quiet);
    for (uint32_t number = 1; number <= seen.result.last_file || number == 1; number++) {
        for (uint64_t at = 0; at < FILE_BYTES; at += QSI_BLOCK_ALIGN, pages++) {
            fixture_copy(&copy, &fixture);
            damage(&copy, number, at, QSI_BLOCK_ALIGN, 0);
            if (scan(&copy, &seen) == QS_OK && seen.count < COUNT) {
                QS_CHECK(seen.count == COUNT - 1);
                unnoticed += 1;
            }
            fixture_stop(&copy);
            check_scan(&fixture, COUNT);
            QS_CHECK_OK(scan(&fixture, &seen));
        }
    }
    QS_CHECK(pages == 4 * FILE_BYTES / QSI_BLOCK_ALIGN);
    QS_CHECK(unnoticed == (quiet ? 0 : 1));
    fixture_stop(&fixture);
}

QS_TEST(test_no_zeroed_suffix_of_a_quiet_journal_passes)
{
    enum { COUNT = RECORDS_IN_A_FILE + 7 };
    struct fixture fixture, copy;

    start_many(&fixture, COUNT, true);
    for (uint64_t i = 0; i < 7; i++) {
        uint64_t at = QSI_JOURNAL_HEADER_BYTES + i * QSI_BLOCK_ALIGN;

        fixture_copy(&copy, &fixture);
        damage(&copy, 2, at, FILE_BYTES - at, 0);
        QS_CHECK_STATUS(QS_ECORRUPT, scan(&copy, &seen));
        QS_CHECK(qs_test_error.offset == at);
        QS_CHECK_OK(scan_how(&copy, true, &seen));
        QS_CHECK(seen.count == RECORDS_IN_A_FILE + i && seen.result.lost_ranges == 1 &&
                 seen.result.lost_bytes == (7 - i) * RECORD_BYTES);
        fixture_stop(&copy);
    }
    fixture_stop(&fixture);
}

/* How much it held nobody knows, but that it is gone is counted, also where the checkpoint has all
 * that is known. */
QS_TEST(test_salvage_counts_the_file_behind_a_checkpoint)
{
    struct fixture fixture, copy;

    start_many(&fixture, 5, true);
    make_checkpoint(&fixture, (uint64_t)3 * RECORD_BYTES);
    for (uint64_t how = 0; how < 3; how++) {
        fixture_copy(&copy, &fixture);
        lose_file(&copy, 1, how);
        QS_CHECK_STATUS(QS_ECORRUPT, scan(&copy, &seen));
        QS_CHECK_OK(scan_how(&copy, true, &seen));
        QS_CHECK(seen.count == 0 && seen.result.lost_ranges == 1 && seen.result.lost_bytes >= 8 &&
                 seen.result.end_lsn > (uint64_t)3 * RECORD_BYTES);
        fixture_stop(&copy);
    }
    fixture_stop(&fixture);
}

/* Half of a mark is no mark: the one before it counts. */
QS_TEST(test_of_two_marks_one_may_be_lost)
{
    struct fixture fixture;

    start_many(&fixture, 3, true);
    append_and_commit(&fixture, RECORD_BYTES);
    QS_CHECK_OK(qsi_journal_mark(fixture.journal, QS_ERROR));
    damage(&fixture, 1, QSI_JOURNAL_HEADER_BYTES + (uint64_t)2 * QSI_BLOCK_ALIGN, QSI_BLOCK_ALIGN,
           0);
    for (uint64_t i = 0; i < QSI_JOURNAL_MARKS; i++) {
        struct fixture copy;

        fixture_copy(&copy, &fixture);
        damage(&copy, 1, qsi_journal_mark_at(i), 1, 1);
        QS_CHECK_STATUS(QS_ECORRUPT, scan(&copy, &seen));
        fixture_stop(&copy);
    }
    fixture_stop(&fixture);
}

/* ---- MANIFEST from before ---- */

static void begin_again(struct fixture *fixture, bool clean)
{
    if (clean) {
        QS_CHECK_OK(qsi_journal_close_clean(fixture->journal, &fixture->manifest, QS_ERROR));
    }
    qsi_journal_close(fixture->journal);
    fixture->journal = NULL;
    QS_CHECK_OK(scan(fixture, &seen));
    fixture_begin(fixture, seen.result.last_file, seen.result.end_lsn);
}

/* Whatever manifest from before is put back: the scan sees all records, or refuses. */
static void check_an_older_manifest(bool clean, uint32_t each)
{
    enum { SESSIONS = 4 };
    struct qsi_manifest newest;
    struct fixture fixture, old[SESSIONS];

    fixture_start(&fixture);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        fixture_copy(&old[i], &fixture);
        for (uint32_t k = 0; k < each; k++) {
            append_and_commit(&fixture, RECORD_BYTES);
        }
        begin_again(&fixture, clean);
    }
    append_and_commit(&fixture, RECORD_BYTES);
    check_scan(&fixture, SESSIONS * each + 1);
    newest = fixture.manifest;
    for (uint32_t i = 0; i < SESSIONS; i++) {
        fixture.manifest = old[i].manifest;
        QS_CHECK_STATUS(QS_ECORRUPT, scan(&fixture, &seen));
        QS_CHECK(strcmp(qs_test_error.path, "MANIFEST") == 0);
    }
    fixture.manifest = newest;
    for (uint32_t i = 0; i < SESSIONS; i++) {
        fixture_stop(&old[i]);
    }
    fixture_stop(&fixture);
}

QS_BOOL_TEST(test_an_older_manifest_hides_nothing, clean)
{
    check_an_older_manifest(clean, 2);
    check_an_older_manifest(clean, 2 * RECORDS_IN_A_FILE);
}

/* The state in between, which a crash leaves: the file of the next session is there, and MANIFEST
 * does not name it yet. */
QS_TEST(test_a_session_that_was_not_named_yet_is_none)
{
    struct fixture fixture, before;

    start_many(&fixture, 3, true);
    fixture_copy(&before, &fixture);
    begin_again(&fixture, false);
    struct qsi_manifest newest = fixture.manifest;
    fixture.manifest = before.manifest;
    check_scan(&fixture, 3);
    fixture.manifest = newest;
    fixture_stop(&before);
    fixture_stop(&fixture);
}

/* Opening and closing without a record in between leaves no file behind. */
QS_TEST(test_sessions_without_a_record_leave_no_files)
{
    struct fixture fixture;
    struct qsi_journal_numbers numbers;

    start_many(&fixture, 3, false);
    for (int i = 0; i < 20; i++) {
        begin_again(&fixture, i % 2 == 0);
    }
    QS_CHECK_OK(qsi_journal_list(&numbers, fixture.env, fixture.dir, QS_ERROR));
    QS_CHECK(numbers.count <= 3);
    qsi_journal_numbers_fini(&numbers);
    check_scan(&fixture, 3);
    fixture_stop(&fixture);
}
