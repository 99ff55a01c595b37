/* Reading journals with damaged files: one that is missing, shortened, or of another store.  Each
 * test damages copies of one good disk. */
#include "scan_fixture.h"

/* ---- files ---- */

/* Where the scan stands when file number is not what it should be. */
static void check_breaks_before(const struct fixture *copy, uint32_t number)
{
    uint32_t i = 0;

    while (good.blocks[i].block.file_number < number) {
        i++;
    }
    QS_CHECK_STATUS(QS_ECORRUPT, scan(copy, &seen));
    check_seen(&seen, i);
}

QS_BOOL_TEST(test_a_missing_file_is_damage, clean)
{
    struct fixture fixture, copy;

    start_good(&fixture, clean);
    for (uint32_t number = 1; number <= good.result.last_file; number++) {
        fixture_copy(&copy, &fixture);
        remove_file(&copy, number);
        check_breaks_before(&copy, number); /* the last one: the file before it tells of it */
        fixture_stop(&copy);
    }
    fixture_stop(&fixture);
}

QS_BOOL_TEST(test_a_damaged_header_is_damage, clean)
{
    struct fixture fixture, copy;

    start_good(&fixture, clean);
    for (uint32_t number = 1; number <= good.result.last_file; number++) {
        static const uint64_t places[] = {0, 8, 12, 16, 32, 40, 48, 60, 64, 76};

        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            fixture_copy(&copy, &fixture);
            damage(&copy, number, places[i], 1, 4);
            /* Several commits are in each file: a later one proves an earlier one. */
            check_breaks_before(&copy, number);
            fixture_stop(&copy);
        }
    }
    fixture_stop(&fixture);
}

GOOD_TEST(test_a_shortened_file_is_damage)
{
    struct fixture copy;

    for (uint32_t i = 0; i + 1 < RECORDS; i++) {
        const struct qsi_scan_block *block = &good.blocks[i];

        if (block->block.file_number == good.result.last_file) {
            break;
        }
        fixture_copy(&copy, fixture);
        truncate_file(&copy, block->block.file_number, block->offset + 4096);
        check_corrupt(&copy, block->block.file_number, block->offset + 4096);
        fixture_stop(&copy);
    }
}

GOOD_TEST(test_foreign_names_are_ignored)
{
    static const char *const names[] = {"notes.txt", "1.jnl", "0000000001.jnl.bak",
                                        "0000000000.jnl", "lost+found"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        qs_file *file;

        QS_CHECK_OK(fixture->env->open(fixture->env, fixture->dir, names[i],
                                       QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &file, QS_ERROR));
        fixture->env->close(fixture->env, file);
    }
    check_scan(fixture, RECORDS);
}

/* Files of another store belong to no session: they carry another uuid, and blocks of another
 * salt. */
GOOD_TEST(test_files_of_another_store_are_not_read)
{
    fixture->manifest.uuid[0] ^= 1;
    fixture->manifest.sessions[0].salt ^= 1;
    QS_CHECK_STATUS(QS_ECORRUPT, scan(fixture, &seen)); /* its own first file is not there */
    QS_CHECK(seen.count == 0 && seen.result.last_file == 0);
}

/* ---- sessions ---- */

JOURNAL_TEST(test_damage_in_an_earlier_session_is_never_torn)
{
    struct fixture copy;

    append_and_commit(fixture, 5000);
    append_and_commit(fixture, 5000);
    qsi_journal_close(fixture->journal);
    QS_CHECK_OK(scan(fixture, &good));
    fixture_begin(fixture, good.result.last_file, good.result.end_lsn);
    append_and_commit(fixture, 5000);
    for (uint32_t i = 0; i < 2; i++) {
        fixture_copy(&copy, fixture);
        damage(&copy, 1, good.blocks[i].offset + 200, 1, 1);
        check_corrupt(&copy, 1, good.blocks[i].offset);
        fixture_stop(&copy);
    }
    fixture_copy(&copy, fixture);
    remove_file(&copy, 1);
    QS_CHECK_STATUS(QS_ECORRUPT, scan(&copy, &seen));
    QS_CHECK(seen.count == 0);
    fixture_stop(&copy);
    check_scan(fixture, 3);
}

/* What was torn once stays cut off, although it could be read again later. */
JOURNAL_TEST(test_what_was_cut_off_does_not_come_back)
{
    append_and_commit(fixture, 5000);
    append_and_commit(fixture, 5000);
    qsi_journal_close(fixture->journal);
    QS_CHECK_OK(scan(fixture, &good));
    fixture->next = 2; /* the second one was not readable, say */
    fixture_begin(fixture, 1, good.blocks[1].block.lsn);
    append_and_commit(fixture, 6000);
    QS_CHECK_OK(scan(fixture, &seen));
    check_seen(&seen, 2);
    QS_CHECK(seen.blocks[1].session == 1 && seen.blocks[1].block.file_number == 2);
    QS_CHECK(seen.result.end_lsn == 11000);
}
