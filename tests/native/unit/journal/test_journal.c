/* Writing the journal, and reading back what was written: commits, files that roll over, spares,
 * groups, sessions. */
#include "journal_fixture.h"
#include "journal_internal.h"
#include "qs_test_alloc.h"

static struct seen seen;

JOURNAL_TEST(test_what_is_committed_is_read_in_order)
{
    uint64_t lsn = 0;

    QS_CHECK(!qsi_journal_seal(fixture->journal));
    for (uint32_t i = 0; i < 100; i++) {
        lsn += 16 + 8 * i;
        QS_CHECK(append(fixture, 16 + 8 * i) == lsn);
        QS_CHECK(qsi_journal_appended_lsn(fixture->journal) == lsn);
        if (i % 7 == 0) {
            commit(fixture);
            QS_CHECK(qsi_journal_durable_lsn(fixture->journal) == lsn);
            QS_CHECK(qsi_journal_unsealed_bytes(fixture->journal) == 0);
        }
    }
    QS_CHECK(qsi_journal_unsealed_bytes(fixture->journal) > 0);
    commit(fixture);
    QS_CHECK_OK(scan(fixture, &seen));
    check_seen(&seen, 100);
    QS_CHECK(seen.result.end_lsn == lsn && seen.result.bytes == lsn);
    QS_CHECK(seen.result.blocks == qsi_journal_counts(fixture->journal).blocks);
    QS_CHECK(qsi_journal_counts(fixture->journal).fdatasyncs >= 16);
    QS_CHECK(qsi_journal_counts(fixture->journal).bytes_written % QSI_BLOCK_ALIGN == 0);
}

JOURNAL_TEST(test_what_is_appended_while_a_commit_is_under_way_is_in_the_next)
{
    append(fixture, 100 * 8);
    QS_CHECK(qsi_journal_seal(fixture->journal));
    append(fixture, 200 * 8);
    QS_CHECK_OK(qsi_journal_write(fixture->journal, QS_ERROR));
    append(fixture, 300 * 8);
    QS_CHECK_OK(qsi_journal_sync(fixture->journal, QS_ERROR));
    qsi_journal_finish(fixture->journal);
    QS_CHECK(qsi_journal_durable_lsn(fixture->journal) == 800);
    QS_CHECK(qsi_journal_unsealed_bytes(fixture->journal) == 500 * 8);
    commit(fixture);
    QS_CHECK_OK(scan(fixture, &seen));
    check_seen(&seen, 3);
    QS_CHECK(seen.block_count == 2 && seen.blocks[0].block.durable_upto == 0 &&
             seen.blocks[1].block.durable_upto == 800 && seen.blocks[1].block.record_count == 2);
}

/* Records behind each other in one chunk, as single messages are. */
QS_TEST(test_neighbours_in_a_chunk_are_one_entry)
{
    struct fixture fixture;
    struct qsi_chunk *chunk = qsi_chunk_create(16 * 64);

    QS_CHECK(chunk != NULL);
    fixture_start(&fixture);
    QS_CHECK_OK(qsi_journal_reserve(fixture.journal, 1));
    for (uint32_t i = 0; i < 64; i++) {
        memset(chunk->data + 16 * i, 0, 16);
        qsi_put_u32(chunk->data + 16 * i, 16);
        qsi_put_u64(chunk->data + 16 * i + 8, i + 1);
        chunk->used += 16;
        qsi_journal_append(fixture.journal, chunk, 16 * i, 16, 1, false);
    }
    QS_CHECK(chunk->refs == 2); /* one entry, one reference */
    commit(&fixture);
    QS_CHECK(chunk->refs == 1);
    QS_CHECK_OK(scan(&fixture, &seen));
    check_seen(&seen, 64);
    QS_CHECK(seen.block_count == 1 && seen.blocks[0].block.record_count == 64);
    qsi_chunk_unref(chunk);
    fixture_stop(&fixture);
}

/* ---- files ---- */

JOURNAL_TEST(test_files_roll_over)
{
    uint64_t count = 0;

    for (; count < 200; count++) {
        append(fixture, 3000 + 8 * (uint32_t)(count % 50) * 10);
        if (count % 3 == 0) {
            commit(fixture);
        }
    }
    commit(fixture);
    QS_CHECK_OK(scan(fixture, &seen));
    check_seen(&seen, count);
    QS_CHECK(seen.result.last_file >= 10 && seen.result.highest_file >= seen.result.last_file);
    for (uint32_t i = 1; i < seen.block_count; i++) {
        const struct qsi_scan_block *block = &seen.blocks[i], *before = &seen.blocks[i - 1];

        QS_CHECK(block->block.lsn == before->block.lsn + before->block.payload_bytes);
        QS_CHECK(block->block.file_number >= before->block.file_number);
        QS_CHECK(block->block.file_number > before->block.file_number
                     ? block->offset == QSI_JOURNAL_HEADER_BYTES
                     : block->offset ==
                           before->offset + qsi_block_bytes(before->block.payload_bytes));
    }
}

/* Into a file that was made in a hurry. */
static void roll(struct fixture *fixture)
{
    uint32_t number = fixture->journal->header.number;

    while (fixture->journal->header.number == number) {
        append_and_commit(fixture, 8000);
    }
}

static void fill(struct fixture *fixture, uint64_t bytes)
{
    QS_CHECK_OK(qsi_journal_fill(fixture->journal, bytes, QS_ERROR));
    qsi_journal_record_fill(fixture->journal);
}

/* Zeros ahead of the head change nothing but the next commits' time. */
JOURNAL_TEST(test_what_is_ahead_in_a_file_made_in_a_hurry_is_filled_with_zeros)
{
    uint64_t steps = 0;

    QS_CHECK(!qsi_journal_wants_fill(fixture->journal)); /* the first one is made with zeros */
    roll(fixture);
    QS_CHECK(qsi_journal_wants_fill(fixture->journal));
    for (; qsi_journal_wants_fill(fixture->journal); steps++) {
        uint64_t left = fixture->journal->fill_left;
        fill(fixture, 3 * QSI_BLOCK_ALIGN);
        QS_CHECK(fixture->journal->fill_left <= left - QSI_BLOCK_ALIGN && steps < 1000);
        check_scan(fixture, fixture->next - 1);
        append_and_commit(fixture, steps % 5 == 0 ? 16000 : 16); /* now ahead of them */
        check_scan(fixture, fixture->next - 1);
    }
    QS_CHECK(steps > 2);
    fill(fixture, UINT64_MAX);
    roll(fixture);
    QS_CHECK(qsi_journal_wants_fill(fixture->journal));
    fill(fixture, UINT64_MAX);
    QS_CHECK(!qsi_journal_wants_fill(fixture->journal));
    qsi_env_mem_advance(fixture->memory,
                        10 * (uint64_t)1000000000); /* no hurry: with zeros already */
    make_spare(fixture, 0, 0);
    roll(fixture);
    QS_CHECK(!qsi_journal_wants_fill(fixture->journal));
    check_scan(fixture, fixture->next - 1);
}

QS_TEST(test_a_fill_that_fails_is_the_last_and_harms_nothing)
{
    struct fixture fixture;
    qs_env *fault;

    fixture_init(&fixture);
    fault = fixture_put_fault(&fixture);
    fixture_begin(&fixture, 0, 0);
    roll(&fixture);
    qsi_env_fault_arm(fault, QSI_FAULT_WRITE, QSI_FAULT_EIO, 1, false);
    QS_CHECK_STATUS(QS_EIO, qsi_journal_fill(fixture.journal, 8192, QS_ERROR));
    qsi_journal_record_fill(fixture.journal);
    QS_CHECK(!qsi_journal_wants_fill(fixture.journal));
    append_and_commit(&fixture, 16);
    roll(&fixture);
    QS_CHECK(qsi_journal_wants_fill(fixture.journal));
    check_scan(&fixture, fixture.next - 1);
    fixture_stop(&fixture);
}

JOURNAL_TEST(test_a_commit_may_need_several_files)
{
    for (int i = 0; i < 100; i++) {
        append(fixture, 8000);
    }
    commit(fixture);
    append(fixture, 300000); /* larger than any file is meant to be */
    append(fixture, 16);
    commit(fixture);
    check_scan(fixture, 102);
}

JOURNAL_TEST(test_room_comes_from_spares)
{
    uint64_t first_bytes;
    uint32_t made = 0;

    QS_CHECK(qsi_journal_wants_spare(fixture->journal));
    QS_CHECK(file_exists(fixture, 1, &first_bytes) && first_bytes == FILE_BYTES);
    QS_CHECK(qsi_journal_has_room(fixture->journal, 20000, 1000));
    QS_CHECK(!qsi_journal_has_room(fixture->journal, FILE_BYTES, 1000));
    for (int i = 0; i < 200; i++) {
        while (!qsi_journal_has_room(fixture->journal, 5000, 5000)) {
            make_spare(fixture, 5000, 5000);
            made += 1;
            QS_CHECK(!qsi_journal_wants_spare(fixture->journal));
        }
        append(fixture, 5000);
        if (i % 5 == 4) {
            commit(fixture);
        }
    }
    commit(fixture);
    check_scan(fixture, 200);
    QS_CHECK_OK(scan(fixture, &seen));
    QS_CHECK(seen.result.last_file <= made + 1); /* no leader had to make a file of its own */
}

JOURNAL_TEST(test_spares_that_a_commit_did_not_need_serve_the_next)
{
    make_spare(fixture, 1000, 1000);
    append(fixture, 1000);
    QS_CHECK(qsi_journal_seal(fixture->journal));
    QS_CHECK(!qsi_journal_wants_spare(fixture->journal)); /* the leader holds it */
    make_spare(fixture, 1000, 1000);
    make_spare(fixture, 1000, 1000);
    QS_CHECK_OK(qsi_journal_write(fixture->journal, QS_ERROR));
    QS_CHECK_OK(qsi_journal_sync(fixture->journal, QS_ERROR));
    qsi_journal_finish(fixture->journal);
    for (int i = 0; i < 20; i++) { /* six of them fit a file */
        append_and_commit(fixture, 5000);
    }
    QS_CHECK_OK(scan(fixture, &seen));
    check_seen(&seen, 21);
    QS_CHECK(seen.result.last_file == 4 && qsi_journal_wants_spare(fixture->journal));
}

/* A leader in need makes a file with a higher number than spares that come later; those are of
 * no use then. */
JOURNAL_TEST(test_an_overtaken_spare_is_passed_over)
{
    struct qsi_spare slow;

    qsi_journal_spare_begin(fixture->journal, &slow, 0, 0, UINT64_MAX, false);
    QS_CHECK_OK(qsi_journal_spare_make(fixture->journal, &slow, QS_ERROR));
    for (int i = 0; i < 15; i++) {
        append_and_commit(fixture, 5000);
    }
    QS_CHECK_OK(qsi_journal_spare_finish(fixture->journal, &slow));
    for (int i = 0; i < 25; i++) {
        append_and_commit(fixture, 5000);
    }
    QS_CHECK_OK(scan(fixture, &seen));
    check_seen(&seen, 40);
    QS_CHECK(slow.number == 2 && seen.result.last_file > 3);
    for (uint32_t i = 0; i < seen.block_count; i++) {
        QS_CHECK(seen.blocks[i].block.file_number != slow.number);
    }
}

QS_TEST(test_no_space_for_a_spare_changes_nothing)
{
    struct fixture fixture;
    struct qsi_spare spare;
    qs_env *fault;

    fixture_init(&fixture);
    fault = fixture_put_fault(&fixture);
    fixture_begin(&fixture, 0, 0);
    append_and_commit(&fixture, 5000);
    qsi_env_fault_arm(fault, QSI_FAULT_ALLOCATE, QSI_FAULT_ENOSPC, 1, false);
    qsi_journal_spare_begin(fixture.journal, &spare, 5000, 5000, UINT64_MAX, true);
    QS_CHECK_STATUS(QS_ENOSPC, qsi_journal_spare_make(fixture.journal, &spare, QS_ERROR));
    QS_CHECK(qsi_journal_wants_spare(fixture.journal));
    make_spare(&fixture, 5000, 5000);
    append_and_commit(&fixture, 5000);
    check_scan(&fixture, 2);
    fixture_stop(&fixture);
}

/* The disk is nearly full: what is left of it became a spare while the leader looked for a file. */
QS_TEST(test_a_spare_made_meanwhile_serves_the_leader)
{
    struct fixture fixture;
    struct qsi_spare spare, slow;
    qs_env *fault;

    fixture_init(&fixture);
    fault = fixture_put_fault(&fixture);
    fixture_begin(&fixture, 0, 0);
    qsi_journal_spare_begin(fixture.journal, &slow, 0, 0, UINT64_MAX, false);
    QS_CHECK_OK(qsi_journal_spare_make(fixture.journal, &slow, QS_ERROR));
    for (int i = 0; i < 8; i++) { /* overtakes the slow one; six of them fit a file */
        append_and_commit(&fixture, 5000);
    }
    for (int i = 0; i < 8; i++) {
        append(&fixture, 5000);
    }
    QS_CHECK(qsi_journal_seal(fixture.journal));
    qsi_journal_spare_begin(fixture.journal, &spare, 5000, 5000, UINT64_MAX, true);
    QS_CHECK_OK(qsi_journal_spare_make(fixture.journal, &spare, QS_ERROR));
    qsi_env_fault_arm(fault, QSI_FAULT_ALLOCATE, QSI_FAULT_ENOSPC, 1, true);
    QS_CHECK_STATUS(QS_ENOSPC, qsi_journal_write(fixture.journal, QS_ERROR));
    QS_CHECK(qsi_journal_wants_file(fixture.journal));
    QS_CHECK_OK(qsi_journal_spare_finish(fixture.journal, &slow));
    QS_CHECK_OK(qsi_journal_spare_finish(fixture.journal, &spare));
    qsi_journal_take_spares(fixture.journal);
    QS_CHECK_OK(qsi_journal_write(fixture.journal, QS_ERROR));
    QS_CHECK_OK(qsi_journal_sync(fixture.journal, QS_ERROR));
    qsi_journal_finish(fixture.journal);
    qsi_env_fault_arm(fault, QSI_FAULT_ALLOCATE, QSI_FAULT_ENOSPC, 0, false);
    check_scan(&fixture, 16);
    QS_CHECK_OK(scan(&fixture, &seen));
    QS_CHECK(seen.result.last_file == spare.number);
    fixture_stop(&fixture);
}

/* It offers no room, whoever was promised some would meet a full disk in the commit. */
JOURNAL_TEST(test_an_overtaken_spare_is_no_room)
{
    struct qsi_spare slow;

    qsi_journal_spare_begin(fixture->journal, &slow, 0, 0, UINT64_MAX, false);
    QS_CHECK_OK(qsi_journal_spare_make(fixture->journal, &slow, QS_ERROR));
    for (int i = 0; i < 15; i++) {
        append_and_commit(fixture, 5000);
    }
    QS_CHECK_OK(qsi_journal_spare_finish(fixture->journal, &slow));
    QS_CHECK(qsi_journal_wants_spare(fixture->journal));
    QS_CHECK(!qsi_journal_has_room(fixture->journal, FILE_BYTES, 1000));
}

/* ---- groups ---- */

JOURNAL_TEST(test_a_small_group_is_in_one_block)
{
    for (int i = 0; i < 20; i++) {
        append(fixture, 800);
        append_group(fixture, 800, true);
        append_group(fixture, 800, true);
        append(fixture, 800);
        if (i % 4 == 0) {
            commit(fixture);
        }
    }
    commit(fixture);
    QS_CHECK_OK(scan(fixture, &seen));
    check_seen(&seen, 80);
    for (uint32_t i = 0; i < seen.block_count; i++) {
        QS_CHECK((seen.blocks[i].block.flags & QSI_BLOCK_MORE) == 0);
    }
}

/* Which block each record is in; groups of three, records 4 k + 2 to 4 k + 4. */
JOURNAL_TEST(test_a_large_group_is_a_chain_of_blocks_of_its_own)
{
    uint32_t more = 0, ends = 0;
    bool inside = false;

    for (int i = 0; i < 5; i++) {
        append(fixture, 16);
        for (int k = 0; k < 30; k++) {
            append_group(fixture, 6000, k < 29);
        }
        append(fixture, 16);
        if (i % 2 == 0) {
            commit(fixture);
        }
    }
    commit(fixture);
    QS_CHECK_OK(scan(fixture, &seen));
    check_seen(&seen, 5 * 32);
    for (uint32_t i = 0; i < seen.block_count; i++) {
        bool goes_on = (seen.blocks[i].block.flags & QSI_BLOCK_MORE) != 0;

        if (inside || goes_on) { /* nothing of another group among them, but for the last block */
            QS_CHECK(!goes_on || seen.blocks[i].block.payload_bytes % 6000 == 0);
        }
        more += goes_on;
        ends += inside && !goes_on;
        inside = goes_on;
    }
    QS_CHECK(more >= 10 && ends == 5 && !inside);
}

/* Appends up to 3 MiB: small records next to each other, large ones, groups.  *commit_out,
 * *lsn_out: of each append. */
static uint32_t append_some(struct fixture *fixture, uint32_t *seed, uint64_t *commit_out,
                            uint64_t *lsn_out)
{
    enum { SMALL = 64 << 10, LARGE = 1 << 20 };
    struct qsi_chunk *chunk = qsi_chunk_create(LARGE);
    uint32_t count = 0, group = 0;

    QS_CHECK(chunk != NULL);
    for (; count < 12 || group > 0; count++) {
        *seed = *seed * 1103515245u + 12345u;
        group = group > 0 ? group - 1 : *seed >> 16 & 15 ? 0 : 3;
        commit_out[count] = qsi_journal_commits(fixture->journal).open;
        if (group > 0 || (*seed >> 20 & 3) == 0 || chunk->capacity - chunk->used < SMALL) {
            lsn_out[count] = append_group(fixture, (*seed >> 22 & 3) == 0 ? LARGE : SMALL, group);
            continue;
        }
        memset(chunk->data + chunk->used, 0, SMALL);
        qsi_put_u32(chunk->data + chunk->used, SMALL);
        chunk->used += SMALL;
        QS_CHECK_OK(qsi_journal_reserve(fixture->journal, 1));
        lsn_out[count] =
            qsi_journal_append(fixture->journal, chunk, chunk->used - SMALL, SMALL, 1, false);
    }
    qsi_chunk_unref(chunk);
    return count;
}

JOURNAL_TEST(test_a_commit_has_all_that_was_appended_with_its_number_and_no_more)
{
    uint64_t commits[64], lsns[64];
    uint32_t seed = 1;

    for (int round = 0; round < 60; round++) {
        uint32_t count = append_some(fixture, &seed, commits, lsns);
        while (qsi_journal_seal(fixture->journal)) {
            if (round % 3 == 0 && count < 40) { /* some come while it is written */
                count += append_some(fixture, &seed, commits + count, lsns + count);
            }
            QS_CHECK_OK(qsi_journal_write(fixture->journal, QS_ERROR));
            QS_CHECK_OK(qsi_journal_sync(fixture->journal, QS_ERROR));
            qsi_journal_finish(fixture->journal);
            qsi_journal_check(fixture->journal);
            for (uint32_t i = 0; i < count; i++) {
                QS_CHECK((lsns[i] <= qsi_journal_durable_lsn(fixture->journal)) ==
                         (commits[i] < qsi_journal_commits(fixture->journal).durable));
            }
        }
    }
}
