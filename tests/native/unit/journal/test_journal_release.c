/* Giving journal files back behind a checkpoint: what goes, what is used again, and that neither
 * a failing call nor a power cut at any moment brings a record back, loses one, or stops the
 * journal.
 *
 * All records have one size, so that an LSN tells the number of the record there. */
#include "journal_fixture.h"
#include "lock.h"
#include "qs_test_alloc.h"

#include <sched.h>

#define RECORD_BYTES 4000 /* a page each, in commits of one */
#define RECORDS_IN_A_FILE 12

static struct seen seen;

static void checkpoint(struct fixture *fixture, uint64_t record_count)
{
    make_checkpoint(fixture, record_count * RECORD_BYTES);
}

static void commit_records(struct fixture *fixture, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        append_and_commit(fixture, RECORD_BYTES);
    }
}

/* Sees the records behind the checkpoint up to the end, each once and in order, and of those
 * before it only what shares a block with the first of them. */
static void check_behind_checkpoint(const struct fixture *fixture, uint64_t last_min,
                                    uint64_t last_max)
{
    uint64_t needed_from = qsi_manifest_needed_from(&fixture->manifest);
    uint64_t last = seen.result.end_lsn / RECORD_BYTES;

    QS_CHECK(seen.result.end_lsn % RECORD_BYTES == 0 && last >= last_min && last <= last_max);
    QS_CHECK((seen.count == 0) == (seen.result.end_lsn == needed_from));
    if (seen.count > 0) {
        const struct qsi_block *first = &seen.blocks[0].block;

        QS_CHECK(first->lsn <= needed_from && first->lsn + first->payload_bytes > needed_from);
        QS_CHECK(seen.numbers[0] == first->lsn / RECORD_BYTES + 1);
        QS_CHECK(seen.numbers[seen.count - 1] == last);
    }
    for (uint32_t i = 0; i < seen.count; i++) {
        QS_CHECK(seen.numbers[i] == seen.numbers[0] + i);
    }
}

static void check_all_there(const struct fixture *fixture)
{
    QS_CHECK_OK(scan(fixture, &seen));
    check_behind_checkpoint(fixture, fixture->next - 1, fixture->next - 1);
}

static uint32_t count_files(const struct fixture *fixture, uint32_t from, uint32_t to)
{
    struct qsi_journal_numbers numbers;
    uint32_t count = 0;

    QS_CHECK_OK(qsi_journal_list(&numbers, fixture->env, fixture->dir, QS_ERROR));
    for (uint32_t i = 0; i < numbers.count; i++) {
        QS_CHECK(i == 0 || numbers.items[i] > numbers.items[i - 1]);
        count += numbers.items[i] >= from && numbers.items[i] < to;
    }
    qsi_journal_numbers_fini(&numbers);
    return count;
}

/* ---- where reading begins ---- */

static void test_reading_begins_at_the_file_in_which_the_lsn_lies(void)
{
    struct fixture fixture;
    struct qsi_session start;

    fixture_start(&fixture);
    qsi_journal_session_at(fixture.journal, 0, &start); /* nothing was begun */
    QS_CHECK(start.salt == fixture.manifest.sessions[0].salt && start.base_lsn == 0 &&
             start.first_file == 1);
    commit_records(&fixture, 5 * RECORDS_IN_A_FILE);
    QS_CHECK_OK(scan(&fixture, &seen));
    for (uint32_t i = 0; i <= seen.count; i++) {
        uint32_t file = i < seen.count ? seen.blocks[i].block.file_number
                                       : seen.blocks[seen.count - 1].block.file_number;
        uint32_t first = 0;

        qsi_journal_session_at(fixture.journal, (uint64_t)i * RECORD_BYTES, &start);
        while (seen.blocks[first].block.file_number != file) {
            first += 1;
        }
        QS_CHECK(start.first_file == file && !start.after_crash &&
                 start.salt == seen.blocks[first].block.salt &&
                 start.base_lsn == seen.blocks[first].block.lsn);
    }
    fixture_stop(&fixture);
}

/* A file that is begun in a commit that is under way is not there yet. */
static void test_a_file_counts_when_its_commit_is_finished(void)
{
    struct fixture fixture;
    struct qsi_session start;

    fixture_start(&fixture);
    commit_records(&fixture, RECORDS_IN_A_FILE);
    append(&fixture, RECORD_BYTES);
    QS_CHECK(qsi_journal_seal(fixture.journal));
    QS_CHECK_OK(qsi_journal_write(fixture.journal, QS_ERROR));
    QS_CHECK_OK(qsi_journal_sync(fixture.journal, QS_ERROR));
    qsi_journal_session_at(fixture.journal, RECORDS_IN_A_FILE * RECORD_BYTES, &start);
    QS_CHECK(start.first_file == 1);
    qsi_journal_finish(fixture.journal);
    qsi_journal_session_at(fixture.journal, RECORDS_IN_A_FILE * RECORD_BYTES, &start);
    QS_CHECK(start.first_file == 2 && start.base_lsn == RECORDS_IN_A_FILE * RECORD_BYTES);
    fixture_stop(&fixture);
}

/* Without memory to remember a file, reading begins at one before it. */
static void test_a_file_that_cannot_be_remembered_is_read_from_an_earlier_one(void)
{
    static struct qs_test_alloc memory;
    struct fixture fixture;

    qs_test_alloc_install(&memory);
    fixture_start(&fixture);
    commit_records(&fixture, 3 * RECORDS_IN_A_FILE);
    for (uint64_t n = 1; n <= 12; n++) {
        struct qsi_session start;

        for (uint32_t i = 0; i < 4; i++) {
            make_spare(&fixture, 0, 0);
        }
        append(&fixture, RECORD_BYTES);
        QS_CHECK(qsi_journal_seal(fixture.journal));
        qs_test_alloc_arm(&memory, n, true);
        if (qsi_journal_write(fixture.journal, NULL) != QS_OK) { /* want of memory elsewhere */
            qs_test_alloc_arm(&memory, 0, false);
            fixture_stop(&fixture);
            fixture_start(&fixture);
            continue;
        }
        QS_CHECK_OK(qsi_journal_sync(fixture.journal, QS_ERROR));
        qsi_journal_finish(fixture.journal);
        qs_test_alloc_arm(&memory, 0, false);
        commit_records(&fixture, RECORDS_IN_A_FILE);
        qsi_journal_session_at(fixture.journal, qsi_journal_durable_lsn(fixture.journal), &start);
        checkpoint(&fixture, fixture.next - 1);
        check_all_there(&fixture);
        QS_CHECK_OK(release(&fixture, 2));
        check_all_there(&fixture);
    }
    fixture_stop(&fixture);
    QS_CHECK(memory.alive == 0);
    qs_allocator_set(NULL);
}

/* ---- releasing ---- */

static void test_files_before_a_checkpoint_go(void)
{
    struct fixture fixture;
    uint32_t first;

    fixture_start(&fixture);
    commit_records(&fixture, 6 * RECORDS_IN_A_FILE + 3);
    QS_CHECK_OK(release(&fixture, 0)); /* nothing lies before the first session */
    check_scan(&fixture, fixture.next - 1);
    checkpoint(&fixture, 4 * RECORDS_IN_A_FILE + 7);
    first = fixture.manifest.sessions[0].first_file;
    QS_CHECK(first == 5 && count_files(&fixture, 1, first) == 4);
    check_all_there(&fixture);
    QS_CHECK_OK(release(&fixture, 0));
    QS_CHECK(count_files(&fixture, 1, first) == 0 && qsi_journal_wants_spare(fixture.journal));
    check_all_there(&fixture);
    commit_records(&fixture, 40);
    check_all_there(&fixture);
    fixture_stop(&fixture);
}

static void test_files_are_used_again(void)
{
    struct fixture fixture;
    uint32_t first;

    fixture_start(&fixture);
    commit_records(&fixture, 6 * RECORDS_IN_A_FILE + 3);
    checkpoint(&fixture, 6 * RECORDS_IN_A_FILE);
    first = fixture.manifest.sessions[0].first_file;
    QS_CHECK(first == 7);
    QS_CHECK_OK(release(&fixture, 2));
    QS_CHECK(count_files(&fixture, 1, first) == 0 && count_files(&fixture, first, 1000) == 3);
    QS_CHECK(!qsi_journal_wants_spare(fixture.journal));
    check_all_there(&fixture);
    commit_records(&fixture, 3 * RECORDS_IN_A_FILE - 3);
    QS_CHECK(count_files(&fixture, first, 1000) == 3); /* nothing had to be made */
    check_all_there(&fixture);
    QS_CHECK(seen.result.last_file == 9);
    commit_records(&fixture, 1);
    QS_CHECK(count_files(&fixture, first, 1000) == 4);
    check_all_there(&fixture);
    fixture_stop(&fixture);
}

static void test_no_more_files_are_kept_than_asked_for(void)
{
    struct fixture fixture;

    fixture_start(&fixture);
    for (uint32_t keep = 0; keep < 5; keep++) {
        uint32_t first;

        commit_records(&fixture, 8 * RECORDS_IN_A_FILE);
        make_spare(&fixture, 0, 0);
        checkpoint(&fixture, fixture.next - 1);
        first = fixture.manifest.sessions[0].first_file;
        QS_CHECK_OK(release(&fixture, keep));
        QS_CHECK(count_files(&fixture, 1, first) == 0);
        QS_CHECK(count_files(&fixture, first + 1, 1000) == (keep > 1 ? keep : 1));
        check_all_there(&fixture);
    }
    fixture_stop(&fixture);
}

/* The largest ones, if they have the size of a journal file at all. */
static void test_the_most_useful_files_are_kept(void)
{
    static const uint64_t sizes[] = {QSI_JOURNAL_FILE_BYTES_MIN - QSI_BLOCK_ALIGN,
                                     QSI_JOURNAL_FILE_BYTES_MIN,
                                     3 * QSI_JOURNAL_FILE_BYTES_MIN + 5,
                                     4 * QSI_JOURNAL_FILE_BYTES_MIN,
                                     4 * QSI_JOURNAL_FILE_BYTES_MIN + QSI_BLOCK_ALIGN,
                                     2 * QSI_JOURNAL_FILE_BYTES_MIN};
    struct fixture fixture;
    uint64_t bytes;

    fixture_init(&fixture);
    fixture.options.file_bytes = 4 * QSI_JOURNAL_FILE_BYTES_MIN;
    for (uint32_t i = 0; i < 6; i++) {
        char name[QSI_JOURNAL_NAME_BYTES];
        qs_file *file;

        qsi_journal_name(name, i + 1);
        QS_CHECK_OK(qsi_file_create(fixture.env, fixture.dir, name, sizes[i], QSI_FILL_RESERVE,
                                    &file, QS_ERROR));
        fixture.env->close(fixture.env, file);
    }
    fixture_begin(&fixture, 6, 0); /* as if they belonged to an earlier session */
    commit_records(&fixture, 3);
    checkpoint(&fixture, 3);
    QS_CHECK_OK(release(&fixture, 3));
    QS_CHECK(count_files(&fixture, 1, 7) == 0 && count_files(&fixture, 8, 100) == 3);
    QS_CHECK(file_exists(&fixture, 8, &bytes) && bytes == 4 * QSI_JOURNAL_FILE_BYTES_MIN);
    QS_CHECK(file_exists(&fixture, 9, &bytes) && bytes == 3 * QSI_JOURNAL_FILE_BYTES_MIN + 5);
    QS_CHECK(file_exists(&fixture, 10, &bytes) && bytes == 2 * QSI_JOURNAL_FILE_BYTES_MIN);
    commit_records(&fixture, 200);
    check_all_there(&fixture);
    fixture_stop(&fixture);
}

static void test_other_names_are_not_touched(void)
{
    static const char *const names[] = {"notes.txt", "1.jnl", "0000000001.jnl.bak",
                                        "0000000000.jnl"};
    struct fixture fixture;
    qs_file *file;

    fixture_start(&fixture);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        QS_CHECK_OK(fixture.env->open(fixture.env, fixture.dir, names[i],
                                      QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &file, QS_ERROR));
        fixture.env->close(fixture.env, file);
    }
    commit_records(&fixture, 3 * RECORDS_IN_A_FILE);
    checkpoint(&fixture, fixture.next - 1);
    QS_CHECK_OK(release(&fixture, 1));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        QS_CHECK_OK(
            fixture.env->open(fixture.env, fixture.dir, names[i], QS_OPEN_READ, &file, QS_ERROR));
        fixture.env->close(fixture.env, file);
    }
    fixture_stop(&fixture);
}

/* ---- beside others ---- */

/* A spare that is being made has a low number when leaders make files of their own meanwhile: it
 * is still being written. */
static void test_a_spare_in_the_making_is_not_touched(void)
{
    struct fixture fixture;
    struct qsi_spare slow;
    uint64_t bytes;

    fixture_start(&fixture);
    qsi_journal_spare_begin(fixture.journal, &slow, 0, 0, UINT64_MAX, false);
    QS_CHECK_OK(qsi_journal_spare_make(fixture.journal, &slow, QS_ERROR));
    commit_records(&fixture, 4 * RECORDS_IN_A_FILE + 1);
    checkpoint(&fixture, 4 * RECORDS_IN_A_FILE);
    QS_CHECK_OK(release(&fixture, 1));
    QS_CHECK(slow.number == 2 && file_exists(&fixture, 2, &bytes));
    QS_CHECK(count_files(&fixture, 1, fixture.manifest.sessions[0].first_file) == 1);
    QS_CHECK_OK(qsi_journal_spare_finish(fixture.journal, &slow));
    commit_records(&fixture, 4 * RECORDS_IN_A_FILE);
    check_all_there(&fixture);
    QS_CHECK_OK(release(&fixture, 2)); /* it was overtaken, and goes */
    QS_CHECK(!file_exists(&fixture, 2, &bytes));
    commit_records(&fixture, 4 * RECORDS_IN_A_FILE);
    check_all_there(&fixture);
    fixture_stop(&fixture);
}

/* Files change hands while a leader writes, in whatever order their numbers were given out. */
static void test_releasing_while_a_commit_is_under_way(void)
{
    for (int when = 0; when < 4; when++) {
        struct fixture fixture;
        struct qsi_spare slow;

        fixture_start(&fixture);
        make_spare(&fixture, 0, 0);
        commit_records(&fixture, 5 * RECORDS_IN_A_FILE);
        checkpoint(&fixture, fixture.next - 3);
        make_spare(&fixture, 0, 0);
        qsi_journal_spare_begin(fixture.journal, &slow, 0, 0, UINT64_MAX, false);
        for (uint32_t i = 0; i < 2 * RECORDS_IN_A_FILE; i++) {
            append(&fixture, RECORD_BYTES);
        }
        QS_CHECK(qsi_journal_seal(fixture.journal));
        if (when == 0) {
            QS_CHECK_OK(release(&fixture, 4));
        }
        QS_CHECK_OK(qsi_journal_write(fixture.journal, QS_ERROR));
        if (when == 1) {
            QS_CHECK_OK(release(&fixture, 4));
        }
        QS_CHECK_OK(qsi_journal_spare_make(fixture.journal, &slow, QS_ERROR));
        QS_CHECK_OK(qsi_journal_spare_finish(fixture.journal, &slow));
        if (when == 2) {
            QS_CHECK_OK(release(&fixture, 4));
        }
        QS_CHECK_OK(qsi_journal_sync(fixture.journal, QS_ERROR));
        qsi_journal_finish(fixture.journal);
        if (when == 3) {
            QS_CHECK_OK(release(&fixture, 4));
        }
        commit_records(&fixture, 8 * RECORDS_IN_A_FILE);
        check_all_there(&fixture);
        fixture_stop(&fixture);
    }
}

/* Spares come in the order of their numbers, whoever was faster: one that is overtaken serves
 * nobody. */
static void test_spares_serve_in_the_order_of_their_numbers(void)
{
    struct fixture fixture;
    struct qsi_spare slow;

    fixture_start(&fixture);
    commit_records(&fixture, 3 * RECORDS_IN_A_FILE);
    qsi_journal_spare_begin(fixture.journal, &slow, 0, 0, UINT64_MAX, false);
    QS_CHECK_OK(qsi_journal_spare_make(fixture.journal, &slow, QS_ERROR));
    checkpoint(&fixture, fixture.next - 1);
    QS_CHECK_OK(release(&fixture, 2));
    QS_CHECK_OK(qsi_journal_spare_finish(fixture.journal, &slow));
    commit_records(&fixture, 3 * RECORDS_IN_A_FILE);
    check_all_there(&fixture);
    QS_CHECK(slow.number == 4 && seen.blocks[0].block.file_number == 4);
    QS_CHECK(seen.result.last_file == 6 && seen.result.highest_file == 6);
    fixture_stop(&fixture);
}

/* One that was overtaken is no spare any more, and takes nobody's place. */
static void test_an_overtaken_spare_does_not_count(void)
{
    struct fixture fixture;
    struct qsi_spare slow;

    fixture_start(&fixture);
    qsi_journal_spare_begin(fixture.journal, &slow, 0, 0, UINT64_MAX, false);
    QS_CHECK_OK(qsi_journal_spare_make(fixture.journal, &slow, QS_ERROR));
    commit_records(&fixture, 3 * RECORDS_IN_A_FILE);
    QS_CHECK_OK(qsi_journal_spare_finish(fixture.journal, &slow));
    checkpoint(&fixture, fixture.next - 1);
    QS_CHECK_OK(release(&fixture, 1));
    QS_CHECK(count_files(&fixture, 1, 4) == 0 && count_files(&fixture, 4, 100) == 2);
    QS_CHECK(!qsi_journal_wants_spare(fixture.journal));
    commit_records(&fixture, 2 * RECORDS_IN_A_FILE);
    QS_CHECK(count_files(&fixture, 4, 100) == 3);
    check_all_there(&fixture);
    fixture_stop(&fixture);
}

static void note_lock(void *context)
{
    QS_CHECK(*(int *)context == 0);
    *(int *)context = 1;
}

static void note_unlock(void *context)
{
    QS_CHECK(*(int *)context == 1);
    *(int *)context = 0;
}

static int locked;
static uint32_t calls_without_lock;

static qs_env plain;

static qs_status list_without_lock(qs_env *env, qs_dir *dir, qs_name_visitor *visit, void *context,
                                   qs_error *error)
{
    QS_CHECK(locked == 0);
    calls_without_lock += 1;
    return plain.dir_list(env, dir, visit, context, error);
}

static qs_status rename_without_lock(qs_env *env, qs_dir *dir, const char *from, const char *to,
                                     qs_error *error)
{
    QS_CHECK(locked == 0);
    calls_without_lock += 1;
    return plain.rename(env, dir, from, to, error);
}

static void test_the_lock_is_not_held_while_the_directory_is_worked_on(void)
{
    struct fixture fixture;

    fixture_init(&fixture);
    fixture.options.lock = note_lock;
    fixture.options.unlock = note_unlock;
    fixture.options.lock_context = &locked;
    fixture_begin(&fixture, 0, 0);
    commit_records(&fixture, 4 * RECORDS_IN_A_FILE);
    checkpoint(&fixture, fixture.next - 1);
    plain = *fixture.env;
    fixture.env->dir_list = list_without_lock;
    fixture.env->rename = rename_without_lock;
    QS_CHECK_OK(release(&fixture, 2));
    QS_CHECK(locked == 0 && calls_without_lock == 3);
    fixture.env->dir_list = plain.dir_list;
    fixture.env->rename = plain.rename;
    fixture_stop(&fixture);
}

/* ---- the next session ---- */

static void reopen(struct fixture *fixture)
{
    uint64_t end_lsn;

    qsi_journal_close(fixture->journal);
    fixture->journal = NULL;
    qsi_manifest_fini(&fixture->manifest);
    QS_CHECK_OK(qsi_manifest_load(&fixture->manifest, fixture->env, fixture->root, QS_ERROR));
    QS_CHECK_OK(scan(fixture, &seen));
    end_lsn = seen.result.end_lsn;
    fixture->next = end_lsn / RECORD_BYTES + 1;
    fixture_begin(fixture, seen.result.last_file, end_lsn);
}

static void test_an_open_removes_what_was_not_released(void)
{
    struct fixture fixture;

    fixture_start(&fixture);
    commit_records(&fixture, 5 * RECORDS_IN_A_FILE);
    reopen(&fixture);
    commit_records(&fixture, 5 * RECORDS_IN_A_FILE);
    reopen(&fixture);
    QS_CHECK(fixture.manifest.session_count == 3 && count_files(&fixture, 1, 11) == 10);
    commit_records(&fixture, 2 * RECORDS_IN_A_FILE + 1);
    checkpoint(&fixture, fixture.next - 1);
    QS_CHECK(fixture.manifest.session_count == 1);
    reopen(&fixture);
    QS_CHECK(count_files(&fixture, 1, fixture.manifest.sessions[0].first_file) == 0);
    check_all_there(&fixture);
    commit_records(&fixture, 20);
    check_all_there(&fixture);
    fixture_stop(&fixture);
}

/* Its records would be passed over as the checkpoint's. */
static void test_no_session_begins_before_the_checkpoint(void)
{
    struct fixture fixture;

    fixture_start(&fixture);
    commit_records(&fixture, 2 * RECORDS_IN_A_FILE);
    checkpoint(&fixture, 2 * RECORDS_IN_A_FILE);
    qsi_journal_close(fixture.journal);
    QS_CHECK_STATUS(QS_ECORRUPT,
                    qsi_journal_open(&fixture.journal, fixture.env, fixture.root, fixture.dir,
                                     &fixture.options, &fixture.manifest, 2,
                                     fixture.manifest.checkpoint_lsn - RECORD_BYTES, QS_ERROR));
    QS_CHECK(fixture.journal == NULL && fixture.manifest.session_count == 1);
    fixture_begin(&fixture, 2, fixture.manifest.checkpoint_lsn);
    commit_records(&fixture, 1);
    check_all_there(&fixture);
    fixture_stop(&fixture);
}

/* Spares that were journal files serve the next session like those made of zeros. */
static void test_sessions_go_on_in_files_used_again(void)
{
    struct fixture fixture;

    fixture_start(&fixture);
    for (uint32_t turn = 0; turn < 12; turn++) {
        commit_records(&fixture, 3 * RECORDS_IN_A_FILE + turn);
        if (turn % 2 == 0) {
            checkpoint(&fixture, fixture.next - 1 - turn);
            QS_CHECK_OK(release(&fixture, turn % 5));
        }
        if (turn % 3 == 0) {
            reopen(&fixture);
        }
        check_all_there(&fixture);
    }
    QS_CHECK(count_files(&fixture, 1, 1000) < 12);
    fixture_stop(&fixture);
}

/* ---- failing calls ---- */

/* Over a disk that remembers what is not durable. */
static void start_over_fault(struct fixture *fixture, qs_env **sim_out, qs_env **fault_out)
{
    memset(fixture, 0, sizeof *fixture);
    *sim_out = qsi_env_sim_create(1);
    QS_CHECK(*sim_out != NULL);
    *fault_out = qsi_env_fault_create(*sim_out);
    QS_CHECK(*fault_out != NULL);
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
    copy->memory = copy->env = qsi_env_sim_cut(sim, how, seed);
    QS_CHECK(copy->memory != NULL);
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

static void test_the_journal_goes_on_whatever_fails_in_a_release(void)
{
    static const enum qsi_fault_how hows[] = {QSI_FAULT_EIO, QSI_FAULT_EINTR, QSI_FAULT_SYNC_LOST};

    for (size_t how = 0; how < sizeof hows / sizeof hows[0]; how++) {
        for (uint64_t n = 1;; n++) {
            struct fixture fixture;
            qs_env *sim, *fault;
            qs_status status;
            bool fired;

            start_over_fault(&fixture, &sim, &fault);
            commit_records(&fixture, 5 * RECORDS_IN_A_FILE + 3);
            checkpoint(&fixture, fixture.next - 3);
            qsi_env_fault_arm(fault, QSI_FAULT_ANY, hows[how], n, false);
            status = release(&fixture, 2);
            fired = qsi_env_fault_fired(fault);
            qsi_env_fault_arm(fault, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
            QS_CHECK(status == QS_OK ||
                     (fired && (status == QS_EIO || status == QS_ECORRUPT || status == QS_EINTR)));
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
            if (!fired) {
                QS_CHECK(n > 15);
                break;
            }
        }
    }
}

static void test_the_journal_goes_on_without_memory_for_a_release(void)
{
    static struct qs_test_alloc memory;

    qs_test_alloc_install(&memory);
    for (uint64_t n = 1;; n++) {
        struct fixture fixture;
        qs_status status;
        bool failed;

        fixture_start(&fixture);
        commit_records(&fixture, 5 * RECORDS_IN_A_FILE + 3);
        checkpoint(&fixture, fixture.next - 3);
        qs_test_alloc_arm(&memory, n, false);
        status = release(&fixture, 2);
        failed = memory.has_failed;
        qs_test_alloc_arm(&memory, 0, false);
        QS_CHECK(status == QS_OK || (failed && status == QS_ENOMEM));
        check_all_there(&fixture);
        commit_records(&fixture, 4 * RECORDS_IN_A_FILE);
        check_all_there(&fixture);
        QS_CHECK_OK(release(&fixture, 2));
        QS_CHECK(count_files(&fixture, 1, fixture.manifest.sessions[0].first_file) == 0);
        fixture_stop(&fixture);
        QS_CHECK(memory.alive == 0);
        if (!failed) {
            QS_CHECK(n > 5);
            break;
        }
    }
    qs_allocator_set(NULL);
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
    QS_CHECK(sim != NULL);
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
static void test_power_cuts_around_releases(uint64_t seed)
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
        qsi_journal_note_fill(journal);
    }
}

/* What a cut leaves of zeros ahead of the head, torn or garbage, is neither a block nor damage,
 * and what was durable is there. */
static void test_power_cuts_around_zeros_ahead(uint64_t seed)
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
    uint32_t releases, spares;
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
            sched_yield();
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
static void test_files_change_hands_between_threads(void)
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
    for (uint32_t i = 0; i < THREAD_COMMITS; i++) {
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
    QS_CHECK(shared.releases > 0 && shared.spares > 0);
    check_all_there(&fixture);
    commit_records(&fixture, 40);
    check_all_there(&fixture);
    fixture_stop(&fixture);
    qsi_mutex_fini(&shared.mutex);
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);

    test_reading_begins_at_the_file_in_which_the_lsn_lies();
    test_a_file_counts_when_its_commit_is_finished();
    test_a_file_that_cannot_be_remembered_is_read_from_an_earlier_one();
    test_files_before_a_checkpoint_go();
    test_files_are_used_again();
    test_no_more_files_are_kept_than_asked_for();
    test_the_most_useful_files_are_kept();
    test_other_names_are_not_touched();
    test_a_spare_in_the_making_is_not_touched();
    test_releasing_while_a_commit_is_under_way();
    test_spares_serve_in_the_order_of_their_numbers();
    test_an_overtaken_spare_does_not_count();
    test_the_lock_is_not_held_while_the_directory_is_worked_on();
    test_an_open_removes_what_was_not_released();
    test_no_session_begins_before_the_checkpoint();
    test_sessions_go_on_in_files_used_again();
    test_the_journal_goes_on_whatever_fails_in_a_release();
    test_the_journal_goes_on_without_memory_for_a_release();
    test_files_change_hands_between_threads();
    test_power_cuts_around_releases(seed);
    test_power_cuts_around_zeros_ahead(seed);
    return 0;
}
