/* The journal's sessions: one after the other, clean ends, files that a session left over; and
 * calls that fail at the beginning and the end of one. */
#include "journal_fixture.h"
#include "journal_internal.h"
#include "qs_test_alloc.h"
#include "qs_test_faults.h"

static struct seen seen;

static void end_session(struct fixture *fixture, bool clean)
{
    uint64_t end_lsn;

    if (clean) {
        QS_CHECK_OK(qsi_journal_close_clean(fixture->journal, &fixture->manifest, QS_ERROR));
    }
    qsi_journal_close(fixture->journal);
    fixture->journal = NULL;
    qsi_manifest_fini(&fixture->manifest);
    QS_CHECK_OK(qsi_manifest_load(&fixture->manifest, fixture->env, fixture->root, QS_ERROR));
    QS_CHECK(fixture->manifest.clean == clean);
    QS_CHECK_OK(scan(fixture, &seen));
    end_lsn = seen.result.end_lsn;
    fixture_begin(fixture, seen.result.last_file, end_lsn);
}

JOURNAL_TEST(test_sessions_follow_each_other)
{
    uint64_t count = 0;

    for (uint32_t session = 0; session < 12; session++) {
        for (uint32_t i = 0; i < 3 * (session % 4) * (session % 4); i++, count++) {
            append_and_commit(fixture, 5000);
        }
        end_session(fixture, session % 3 != 0);
        check_scan(fixture, count);
    }
    /* Sessions in which nothing was journalled are replaced by the next. */
    QS_CHECK(fixture->manifest.session_count == 10);
    for (uint32_t i = 1; i < fixture->manifest.session_count; i++) {
        QS_CHECK(fixture->manifest.sessions[i].base_lsn >
                 fixture->manifest.sessions[i - 1].base_lsn);
        QS_CHECK(fixture->manifest.sessions[i].salt != fixture->manifest.sessions[i - 1].salt);
    }
}

JOURNAL_TEST(test_a_crash_is_remembered_until_the_next_session_that_journals)
{
    append_and_commit(fixture, 16);
    end_session(fixture, false);
    QS_CHECK(fixture->manifest.sessions[1].after_crash);
    end_session(fixture, true); /* nothing journalled: its place is taken, its knowledge kept */
    QS_CHECK(fixture->manifest.session_count == 2 && fixture->manifest.sessions[1].after_crash);
    append_and_commit(fixture, 16);
    end_session(fixture, true);
    QS_CHECK(fixture->manifest.session_count == 3);
    QS_CHECK(fixture->manifest.sessions[1].after_crash &&
             !fixture->manifest.sessions[2].after_crash);
}

JOURNAL_TEST(test_a_clean_end_gives_the_tail_back)
{
    uint64_t bytes;

    append_and_commit(fixture, 5000);
    QS_CHECK_OK(qsi_journal_close_clean(fixture->journal, &fixture->manifest, QS_ERROR));
    QS_CHECK(file_exists(fixture, 1, &bytes));
    QS_CHECK(bytes == QSI_JOURNAL_HEADER_BYTES + qsi_block_bytes(5000));
    check_scan(fixture, 1);
}

/* A file that was made and never used serves the next session, whatever lies in it. */
JOURNAL_TEST(test_leftover_files_are_used_again)
{
    uint64_t bytes;

    append_and_commit(fixture, 16);
    make_spare(fixture, 1000, 1000);
    make_spare(fixture, 1000, 1000);
    make_spare(fixture, 1000, 1000);
    end_session(fixture, false);
    QS_CHECK(fixture->manifest.sessions[1].first_file >= 2);
    for (uint32_t number = 2; number <= 5; number++) { /* kills leave no heap of files */
        QS_CHECK(file_exists(fixture, number, &bytes) ==
                 (number == fixture->manifest.sessions[1].first_file));
    }
    append_and_commit(fixture, 16);
    check_scan(fixture, 2);
}

/* Blocks of an earlier generation behind the new ones, at any distance: they carry another salt. */
QS_TEST(test_stale_blocks_in_a_leftover_file_are_not_read)
{
    for (uint32_t fresh = 0; fresh < 8; fresh++) {
        struct fixture fixture;

        fixture_start(&fixture);
        for (int i = 0; i < 8; i++) {
            append_and_commit(&fixture, 4000); /* a page each */
        }
        qsi_journal_close(fixture.journal);
        /* As if all of it had been cut off: file 1 holds nothing of any session. */
        fixture.next = 1;
        fixture_begin(&fixture, 0, 0);
        QS_CHECK(fixture.manifest.session_count == 1 &&
                 fixture.manifest.sessions[0].first_file == 1);
        for (uint32_t i = 0; i < fresh; i++) {
            append_and_commit(&fixture, 4000);
        }
        check_scan(&fixture, fresh);
        fixture_stop(&fixture);
    }
}

QS_TEST(test_tiny_leftovers_are_removed)
{
    struct fixture fixture;
    char name[QSI_JOURNAL_NAME_BYTES];
    uint64_t bytes;
    qs_file *file;

    fixture_init(&fixture);
    qsi_journal_name(name, 7);
    QS_CHECK_OK(fixture.env->open(fixture.env, fixture.dir, name,
                                  QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &file, QS_ERROR));
    fixture.env->close(fixture.env, file);
    fixture_begin(&fixture, 0, 0);
    QS_CHECK(!file_exists(&fixture, 7, &bytes) && file_exists(&fixture, 8, &bytes));
    append_and_commit(&fixture, 16);
    check_scan(&fixture, 1);
    fixture_stop(&fixture);
}

QS_TEST(test_a_failed_commit_ends_the_journal_in_front_of_it)
{
    struct fixture fixture;
    qs_env *fault;

    fixture_init(&fixture);
    fault = fixture_put_fault(&fixture);
    fixture_begin(&fixture, 0, 0);
    append_and_commit(&fixture, 16);
    append(&fixture, 16);
    QS_CHECK(qsi_journal_seal(fixture.journal));
    QS_CHECK_OK(qsi_journal_write(fixture.journal, QS_ERROR));
    qsi_env_fault_arm(fault, QSI_FAULT_SYNC, QSI_FAULT_EIO, 1, false);
    QS_CHECK_STATUS(QS_EIO, qsi_journal_sync(fixture.journal, QS_ERROR));
    QS_CHECK_OK(qsi_journal_give_up(fixture.journal, &fixture.manifest, QS_ERROR));
    qsi_manifest_fini(&fixture.manifest);
    QS_CHECK_OK(qsi_manifest_load(&fixture.manifest, fixture.env, fixture.root, QS_ERROR));
    QS_CHECK(fixture.manifest.failed && !fixture.manifest.clean && fixture.manifest.end_lsn == 16);
    check_scan(&fixture, 1);
    fixture_stop(&fixture);
}

/* ---- out of memory ---- */

QS_TEST(test_reserving_may_fail_and_appending_cannot)
{
    static struct qs_test_alloc memory;
    struct fixture fixture;
    struct qsi_chunk *chunk;

    qs_test_alloc_install(&memory);
    fixture_start(&fixture);
    chunk = qsi_chunk_create(32);
    QS_CHECK(chunk != NULL);
    memset(chunk->data, 0, 32);
    qsi_put_u32(chunk->data, 16);
    qsi_put_u64(chunk->data + 8, 1);
    chunk->used = 16;
    for (uint64_t n = 1; n <= 2; n++) {
        qs_test_alloc_arm(&memory, n, true);
        QS_CHECK(qsi_journal_reserve(fixture.journal, 100) == QS_ENOMEM);
        qs_test_alloc_arm(&memory, 0, false);
    }
    QS_CHECK_OK(qsi_journal_reserve(fixture.journal, 100));
    qs_test_alloc_arm(&memory, 1, true);
    qsi_journal_append(fixture.journal, chunk, 0, 16, 1, false);
    qs_test_alloc_arm(&memory, 0, false);
    commit(&fixture);
    check_scan(&fixture, 1);
    qsi_chunk_unref(chunk);
    fixture_stop(&fixture);
    qs_test_alloc_end(&memory);
}

QS_TEST(test_opening_may_fail_at_any_call)
{
    for (struct qs_test_sweep sweep = {.how = QSI_FAULT_EIO}; qs_test_sweep_on(&sweep);) {
        struct fixture fixture;
        qs_status status;

        fixture_init(&fixture);
        qs_test_sweep_calls(&sweep, fixture_put_fault(&fixture));
        status = qsi_journal_open(&fixture.journal, fixture.env, fixture.root, fixture.dir,
                                  &fixture.options, &fixture.manifest, 0, 0, QS_ERROR);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(sweep.has_failed || status == QS_OK);
        QS_CHECK(status == QS_OK || (status == QS_EIO && fixture.journal == NULL));
        fixture_stop(&fixture);
    }
}
