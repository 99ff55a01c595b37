/* Giving journal files back behind a checkpoint: what goes, and what is used again.  What fails
 * meanwhile is in test_journal_release_faults.c.
 *
 * All records have one size, so that an LSN tells the number of the record there. */
#include "journal_release_fixture.h"

JOURNAL_TEST(test_reading_begins_at_the_file_in_which_the_lsn_lies)
{
    struct qsi_session start;

    qsi_journal_session_at(fixture->journal, 0, &start); /* nothing was begun */
    QS_CHECK(start.salt == fixture->manifest.sessions[0].salt && start.base_lsn == 0 &&
             start.first_file == 1);
    commit_records(fixture, 5 * RECORDS_IN_A_FILE);
    QS_CHECK_OK(scan(fixture, &seen));
    for (uint32_t i = 0; i <= seen.count; i++) {
        uint32_t file = i < seen.count ? seen.blocks[i].block.file_number
                                       : seen.blocks[seen.count - 1].block.file_number;
        uint32_t first = 0;

        qsi_journal_session_at(fixture->journal, (uint64_t)i * RECORD_BYTES, &start);
        while (seen.blocks[first].block.file_number != file) {
            first += 1;
        }
        QS_CHECK(start.first_file == file && !start.after_crash &&
                 start.salt == seen.blocks[first].block.salt &&
                 start.base_lsn == seen.blocks[first].block.lsn);
    }
}

/* A file that is begun in a commit that is under way is not there yet. */
JOURNAL_TEST(test_a_file_counts_when_its_commit_is_finished)
{
    struct qsi_session start;

    commit_records(fixture, RECORDS_IN_A_FILE);
    append(fixture, RECORD_BYTES);
    QS_CHECK(qsi_journal_seal(fixture->journal));
    QS_CHECK_OK(qsi_journal_write(fixture->journal, QS_ERROR));
    QS_CHECK_OK(qsi_journal_sync(fixture->journal, QS_ERROR));
    qsi_journal_session_at(fixture->journal, RECORDS_IN_A_FILE * RECORD_BYTES, &start);
    QS_CHECK(start.first_file == 1);
    qsi_journal_finish(fixture->journal);
    qsi_journal_session_at(fixture->journal, RECORDS_IN_A_FILE * RECORD_BYTES, &start);
    QS_CHECK(start.first_file == 2 && start.base_lsn == RECORDS_IN_A_FILE * RECORD_BYTES);
}

/* Without memory to remember a file, reading begins at one before it. */
QS_TEST(test_a_file_that_cannot_be_remembered_is_read_from_an_earlier_one)
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
    qs_test_alloc_end(&memory);
}

/* ---- releasing ---- */

JOURNAL_TEST(test_files_before_a_checkpoint_go)
{
    uint32_t first;

    commit_records(fixture, 6 * RECORDS_IN_A_FILE + 3);
    QS_CHECK_OK(release(fixture, 0)); /* nothing lies before the first session */
    check_scan(fixture, fixture->next - 1);
    checkpoint(fixture, 4 * RECORDS_IN_A_FILE + 7);
    first = fixture->manifest.sessions[0].first_file;
    QS_CHECK(first == 5 && count_files(fixture, 1, first) == 4);
    check_all_there(fixture);
    QS_CHECK_OK(release(fixture, 0));
    QS_CHECK(count_files(fixture, 1, first) == 0 && qsi_journal_wants_spare(fixture->journal));
    check_all_there(fixture);
    commit_records(fixture, 40);
    check_all_there(fixture);
}

JOURNAL_TEST(test_files_are_used_again)
{
    uint32_t first;

    commit_records(fixture, 6 * RECORDS_IN_A_FILE + 3);
    checkpoint(fixture, 6 * RECORDS_IN_A_FILE);
    first = fixture->manifest.sessions[0].first_file;
    QS_CHECK(first == 7);
    QS_CHECK_OK(release(fixture, 2));
    QS_CHECK(count_files(fixture, 1, first) == 0 && count_files(fixture, first, 1000) == 3);
    QS_CHECK(!qsi_journal_wants_spare(fixture->journal));
    check_all_there(fixture);
    commit_records(fixture, 3 * RECORDS_IN_A_FILE - 3);
    QS_CHECK(count_files(fixture, first, 1000) == 3); /* nothing had to be made */
    check_all_there(fixture);
    QS_CHECK(seen.result.last_file == 9);
    commit_records(fixture, 1);
    QS_CHECK(count_files(fixture, first, 1000) == 4);
    check_all_there(fixture);
}

JOURNAL_TEST(test_no_more_files_are_kept_than_asked_for)
{
    for (uint32_t keep = 0; keep < 5; keep++) {
        uint32_t first;

        commit_records(fixture, 8 * RECORDS_IN_A_FILE);
        make_spare(fixture, 0, 0);
        checkpoint(fixture, fixture->next - 1);
        first = fixture->manifest.sessions[0].first_file;
        QS_CHECK_OK(release(fixture, keep));
        QS_CHECK(count_files(fixture, 1, first) == 0);
        QS_CHECK(count_files(fixture, first + 1, 1000) == (keep > 1 ? keep : 1));
        check_all_there(fixture);
    }
}

/* The largest ones, if they have the size of a journal file at all. */
QS_TEST(test_the_most_useful_files_are_kept)
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

JOURNAL_TEST(test_other_names_are_not_touched)
{
    static const char *const names[] = {"notes.txt", "1.jnl", "0000000001.jnl.bak",
                                        "0000000000.jnl"};
    qs_file *file;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        QS_CHECK_OK(fixture->env->open(fixture->env, fixture->dir, names[i],
                                       QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &file, QS_ERROR));
        fixture->env->close(fixture->env, file);
    }
    commit_records(fixture, 3 * RECORDS_IN_A_FILE);
    checkpoint(fixture, fixture->next - 1);
    QS_CHECK_OK(release(fixture, 1));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        QS_CHECK_OK(fixture->env->open(fixture->env, fixture->dir, names[i], QS_OPEN_READ, &file,
                                       QS_ERROR));
        fixture->env->close(fixture->env, file);
    }
}

/* ---- beside others ---- */

/* A spare that is being made has a low number when leaders make files of their own meanwhile: it
 * is still being written. */
JOURNAL_TEST(test_a_spare_in_the_making_is_not_touched)
{
    struct qsi_spare slow;
    uint64_t bytes;

    qsi_journal_spare_begin(fixture->journal, &slow, 0, 0, UINT64_MAX, false);
    QS_CHECK_OK(qsi_journal_spare_make(fixture->journal, &slow, QS_ERROR));
    commit_records(fixture, 4 * RECORDS_IN_A_FILE + 1);
    checkpoint(fixture, 4 * RECORDS_IN_A_FILE);
    QS_CHECK_OK(release(fixture, 1));
    QS_CHECK(slow.number == 2 && file_exists(fixture, 2, &bytes));
    QS_CHECK(count_files(fixture, 1, fixture->manifest.sessions[0].first_file) == 1);
    QS_CHECK_OK(qsi_journal_spare_finish(fixture->journal, &slow));
    commit_records(fixture, 4 * RECORDS_IN_A_FILE);
    check_all_there(fixture);
    QS_CHECK_OK(release(fixture, 2)); /* it was overtaken, and goes */
    QS_CHECK(!file_exists(fixture, 2, &bytes));
    commit_records(fixture, 4 * RECORDS_IN_A_FILE);
    check_all_there(fixture);
}

/* Files change hands while a leader writes, in whatever order their numbers were given out. */
QS_TEST(test_releasing_while_a_commit_is_under_way)
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
JOURNAL_TEST(test_spares_serve_in_the_order_of_their_numbers)
{
    struct qsi_spare slow;

    commit_records(fixture, 3 * RECORDS_IN_A_FILE);
    qsi_journal_spare_begin(fixture->journal, &slow, 0, 0, UINT64_MAX, false);
    QS_CHECK_OK(qsi_journal_spare_make(fixture->journal, &slow, QS_ERROR));
    checkpoint(fixture, fixture->next - 1);
    QS_CHECK_OK(release(fixture, 2));
    QS_CHECK_OK(qsi_journal_spare_finish(fixture->journal, &slow));
    commit_records(fixture, 3 * RECORDS_IN_A_FILE);
    check_all_there(fixture);
    QS_CHECK(slow.number == 4 && seen.blocks[0].block.file_number == 4);
    QS_CHECK(seen.result.last_file == 6 && seen.result.highest_file == 6);
}

/* One that was overtaken is no spare any more, and takes nobody's place. */
JOURNAL_TEST(test_an_overtaken_spare_does_not_count)
{
    struct qsi_spare slow;

    qsi_journal_spare_begin(fixture->journal, &slow, 0, 0, UINT64_MAX, false);
    QS_CHECK_OK(qsi_journal_spare_make(fixture->journal, &slow, QS_ERROR));
    commit_records(fixture, 3 * RECORDS_IN_A_FILE);
    QS_CHECK_OK(qsi_journal_spare_finish(fixture->journal, &slow));
    checkpoint(fixture, fixture->next - 1);
    QS_CHECK_OK(release(fixture, 1));
    QS_CHECK(count_files(fixture, 1, 4) == 0 && count_files(fixture, 4, 100) == 2);
    QS_CHECK(!qsi_journal_wants_spare(fixture->journal));
    commit_records(fixture, 2 * RECORDS_IN_A_FILE);
    QS_CHECK(count_files(fixture, 4, 100) == 3);
    check_all_there(fixture);
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

QS_TEST(test_the_lock_is_not_held_while_the_directory_is_worked_on)
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

JOURNAL_TEST(test_an_open_removes_what_was_not_released)
{
    commit_records(fixture, 5 * RECORDS_IN_A_FILE);
    reopen(fixture);
    commit_records(fixture, 5 * RECORDS_IN_A_FILE);
    reopen(fixture);
    QS_CHECK(fixture->manifest.session_count == 3 && count_files(fixture, 1, 11) == 10);
    commit_records(fixture, 2 * RECORDS_IN_A_FILE + 1);
    checkpoint(fixture, fixture->next - 1);
    QS_CHECK(fixture->manifest.session_count == 1);
    reopen(fixture);
    QS_CHECK(count_files(fixture, 1, fixture->manifest.sessions[0].first_file) == 0);
    check_all_there(fixture);
    commit_records(fixture, 20);
    check_all_there(fixture);
}

/* Its records would be passed over as the checkpoint's. */
JOURNAL_TEST(test_no_session_begins_before_the_checkpoint)
{
    commit_records(fixture, 2 * RECORDS_IN_A_FILE);
    checkpoint(fixture, 2 * RECORDS_IN_A_FILE);
    qsi_journal_close(fixture->journal);
    QS_CHECK_STATUS(QS_ECORRUPT,
                    qsi_journal_open(&fixture->journal, fixture->env, fixture->root, fixture->dir,
                                     &fixture->options, &fixture->manifest, 2,
                                     fixture->manifest.checkpoint_lsn - RECORD_BYTES, QS_ERROR));
    QS_CHECK(fixture->journal == NULL && fixture->manifest.session_count == 1);
    fixture_begin(fixture, 2, fixture->manifest.checkpoint_lsn);
    commit_records(fixture, 1);
    check_all_there(fixture);
}

/* Spares that were journal files serve the next session like those made of zeros. */
JOURNAL_TEST(test_sessions_go_on_in_files_used_again)
{
    for (uint32_t turn = 0; turn < 12; turn++) {
        commit_records(fixture, 3 * RECORDS_IN_A_FILE + turn);
        if (turn % 2 == 0) {
            checkpoint(fixture, fixture->next - 1 - turn);
            QS_CHECK_OK(release(fixture, turn % 5));
        }
        if (turn % 3 == 0) {
            reopen(fixture);
        }
        check_all_there(fixture);
    }
    QS_CHECK(count_files(fixture, 1, 1000) < 12);
}
