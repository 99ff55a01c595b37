/* Writing the journal, and reading back what was written: commits, files that roll over, spares,
 * groups, sessions. */
#include "journal_fixture.h"
#include "journal_internal.h"
#include "qs_test_alloc.h"

static struct seen seen;

static void test_what_is_committed_is_read_in_order(void)
{
    struct fixture fixture;
    uint64_t lsn = 0;

    fixture_start(&fixture);
    QS_CHECK(!qsi_journal_seal(fixture.journal));
    for (uint32_t i = 0; i < 100; i++) {
        lsn += 16 + 8 * i;
        QS_CHECK(append(&fixture, 16 + 8 * i) == lsn);
        QS_CHECK(qsi_journal_appended_lsn(fixture.journal) == lsn);
        if (i % 7 == 0) {
            commit(&fixture);
            QS_CHECK(qsi_journal_durable_lsn(fixture.journal) == lsn);
            QS_CHECK(qsi_journal_unsealed_bytes(fixture.journal) == 0);
        }
    }
    QS_CHECK(qsi_journal_unsealed_bytes(fixture.journal) > 0);
    commit(&fixture);
    QS_CHECK_OK(scan(&fixture, &seen));
    check_seen(&seen, 100);
    QS_CHECK(seen.result.end_lsn == lsn && seen.result.bytes == lsn);
    QS_CHECK(seen.result.blocks == qsi_journal_counts(fixture.journal).blocks);
    QS_CHECK(qsi_journal_counts(fixture.journal).fdatasyncs >= 16);
    QS_CHECK(qsi_journal_counts(fixture.journal).bytes_written % QSI_BLOCK_ALIGN == 0);
    fixture_stop(&fixture);
}

static void test_what_is_appended_while_a_commit_is_under_way_is_in_the_next(void)
{
    struct fixture fixture;

    fixture_start(&fixture);
    append(&fixture, 100 * 8);
    QS_CHECK(qsi_journal_seal(fixture.journal));
    append(&fixture, 200 * 8);
    QS_CHECK_OK(qsi_journal_write(fixture.journal, QS_ERROR));
    append(&fixture, 300 * 8);
    QS_CHECK_OK(qsi_journal_sync(fixture.journal, QS_ERROR));
    qsi_journal_finish(fixture.journal);
    QS_CHECK(qsi_journal_durable_lsn(fixture.journal) == 800);
    QS_CHECK(qsi_journal_unsealed_bytes(fixture.journal) == 500 * 8);
    commit(&fixture);
    QS_CHECK_OK(scan(&fixture, &seen));
    check_seen(&seen, 3);
    QS_CHECK(seen.block_count == 2 && seen.blocks[0].block.durable_upto == 0 &&
             seen.blocks[1].block.durable_upto == 800 && seen.blocks[1].block.record_count == 2);
    fixture_stop(&fixture);
}

/* Records behind each other in one chunk, as single messages are. */
static void test_neighbours_in_a_chunk_are_one_entry(void)
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

static void test_files_roll_over(void)
{
    struct fixture fixture;
    uint64_t count = 0;

    fixture_start(&fixture);
    for (; count < 200; count++) {
        append(&fixture, 3000 + 8 * (uint32_t)(count % 50) * 10);
        if (count % 3 == 0) {
            commit(&fixture);
        }
    }
    commit(&fixture);
    QS_CHECK_OK(scan(&fixture, &seen));
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
    fixture_stop(&fixture);
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
    qsi_journal_note_fill(fixture->journal);
}

/* Zeros ahead of the head change nothing but the next commits' time. */
static void test_what_is_ahead_in_a_file_made_in_a_hurry_is_filled_with_zeros(void)
{
    struct fixture fixture;
    uint64_t steps = 0;

    fixture_start(&fixture);
    QS_CHECK(!qsi_journal_wants_fill(fixture.journal)); /* the first one is made with zeros */
    roll(&fixture);
    QS_CHECK(qsi_journal_wants_fill(fixture.journal));
    for (; qsi_journal_wants_fill(fixture.journal); steps++) {
        uint64_t left = fixture.journal->fill_left;
        fill(&fixture, 3 * QSI_BLOCK_ALIGN);
        QS_CHECK(fixture.journal->fill_left <= left - QSI_BLOCK_ALIGN && steps < 1000);
        check_scan(&fixture, fixture.next - 1);
        append_and_commit(&fixture, steps % 5 == 0 ? 16000 : 16); /* now ahead of them */
        check_scan(&fixture, fixture.next - 1);
    }
    QS_CHECK(steps > 2);
    fill(&fixture, UINT64_MAX);
    roll(&fixture);
    QS_CHECK(qsi_journal_wants_fill(fixture.journal));
    fill(&fixture, UINT64_MAX);
    QS_CHECK(!qsi_journal_wants_fill(fixture.journal));
    qsi_env_mem_advance(fixture.memory,
                        10 * (uint64_t)1000000000); /* no hurry: with zeros already */
    make_spare(&fixture, 0, 0);
    roll(&fixture);
    QS_CHECK(!qsi_journal_wants_fill(fixture.journal));
    check_scan(&fixture, fixture.next - 1);
    fixture_stop(&fixture);
}

static void test_a_fill_that_fails_is_the_last_and_harms_nothing(void)
{
    struct fixture fixture;
    qs_env *fault;

    fixture_init(&fixture);
    fixture.env->dir_close(fixture.env, fixture.dir);
    fixture.env->dir_close(fixture.env, fixture.root);
    fault = qsi_env_fault_create(fixture.memory);
    QS_CHECK(fault != NULL);
    fixture.env = fault;
    fixture_open_dirs(&fixture);
    fixture_begin(&fixture, 0, 0);
    roll(&fixture);
    qsi_env_fault_arm(fault, QSI_FAULT_WRITE, QSI_FAULT_EIO, 1, false);
    QS_CHECK_STATUS(QS_EIO, qsi_journal_fill(fixture.journal, 8192, QS_ERROR));
    qsi_journal_note_fill(fixture.journal);
    QS_CHECK(!qsi_journal_wants_fill(fixture.journal));
    append_and_commit(&fixture, 16);
    roll(&fixture);
    QS_CHECK(qsi_journal_wants_fill(fixture.journal));
    check_scan(&fixture, fixture.next - 1);
    fixture_stop(&fixture);
    qsi_env_fault_destroy(fault);
}

static void test_a_commit_may_need_several_files(void)
{
    struct fixture fixture;

    fixture_start(&fixture);
    for (int i = 0; i < 100; i++) {
        append(&fixture, 8000);
    }
    commit(&fixture);
    append(&fixture, 300000); /* larger than any file is meant to be */
    append(&fixture, 16);
    commit(&fixture);
    check_scan(&fixture, 102);
    fixture_stop(&fixture);
}

static void test_room_comes_from_spares(void)
{
    struct fixture fixture;
    uint64_t first_bytes;
    uint32_t made = 0;

    fixture_start(&fixture);
    QS_CHECK(qsi_journal_wants_spare(fixture.journal));
    QS_CHECK(file_exists(&fixture, 1, &first_bytes) && first_bytes == FILE_BYTES);
    QS_CHECK(qsi_journal_has_room(fixture.journal, 20000, 1000));
    QS_CHECK(!qsi_journal_has_room(fixture.journal, FILE_BYTES, 1000));
    for (int i = 0; i < 200; i++) {
        while (!qsi_journal_has_room(fixture.journal, 5000, 5000)) {
            make_spare(&fixture, 5000, 5000);
            made += 1;
            QS_CHECK(!qsi_journal_wants_spare(fixture.journal));
        }
        append(&fixture, 5000);
        if (i % 5 == 4) {
            commit(&fixture);
        }
    }
    commit(&fixture);
    check_scan(&fixture, 200);
    QS_CHECK_OK(scan(&fixture, &seen));
    QS_CHECK(seen.result.last_file <= made + 1); /* no leader had to make a file of its own */
    fixture_stop(&fixture);
}

static void test_spares_that_a_commit_did_not_need_serve_the_next(void)
{
    struct fixture fixture;

    fixture_start(&fixture);
    make_spare(&fixture, 1000, 1000);
    append(&fixture, 1000);
    QS_CHECK(qsi_journal_seal(fixture.journal));
    QS_CHECK(!qsi_journal_wants_spare(fixture.journal)); /* the leader holds it */
    make_spare(&fixture, 1000, 1000);
    make_spare(&fixture, 1000, 1000);
    QS_CHECK_OK(qsi_journal_write(fixture.journal, QS_ERROR));
    QS_CHECK_OK(qsi_journal_sync(fixture.journal, QS_ERROR));
    qsi_journal_finish(fixture.journal);
    for (int i = 0; i < 20; i++) { /* six of them fit a file */
        append_and_commit(&fixture, 5000);
    }
    QS_CHECK_OK(scan(&fixture, &seen));
    check_seen(&seen, 21);
    QS_CHECK(seen.result.last_file == 4 && qsi_journal_wants_spare(fixture.journal));
    fixture_stop(&fixture);
}

/* A leader in need makes a file with a higher number than spares that come later; those are of
 * no use then. */
static void test_an_overtaken_spare_is_passed_over(void)
{
    struct fixture fixture;
    struct qsi_spare slow;

    fixture_start(&fixture);
    qsi_journal_spare_begin(fixture.journal, &slow, 0, 0, UINT64_MAX, false);
    QS_CHECK_OK(qsi_journal_spare_make(fixture.journal, &slow, QS_ERROR));
    for (int i = 0; i < 15; i++) {
        append_and_commit(&fixture, 5000);
    }
    QS_CHECK_OK(qsi_journal_spare_finish(fixture.journal, &slow));
    for (int i = 0; i < 25; i++) {
        append_and_commit(&fixture, 5000);
    }
    QS_CHECK_OK(scan(&fixture, &seen));
    check_seen(&seen, 40);
    QS_CHECK(slow.number == 2 && seen.result.last_file > 3);
    for (uint32_t i = 0; i < seen.block_count; i++) {
        QS_CHECK(seen.blocks[i].block.file_number != slow.number);
    }
    fixture_stop(&fixture);
}

static void test_no_space_for_a_spare_changes_nothing(void)
{
    struct fixture fixture;
    struct qsi_spare spare;
    qs_env *fault;

    fixture_init(&fixture);
    fixture.env->dir_close(fixture.env, fixture.dir);
    fixture.env->dir_close(fixture.env, fixture.root);
    fault = qsi_env_fault_create(fixture.memory);
    QS_CHECK(fault != NULL);
    fixture.env = fault;
    fixture_open_dirs(&fixture);
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
    qsi_env_fault_destroy(fault);
}

/* ---- groups ---- */

static void test_a_small_group_is_in_one_block(void)
{
    struct fixture fixture;

    fixture_start(&fixture);
    for (int i = 0; i < 20; i++) {
        append(&fixture, 800);
        append_group(&fixture, 800, true);
        append_group(&fixture, 800, true);
        append(&fixture, 800);
        if (i % 4 == 0) {
            commit(&fixture);
        }
    }
    commit(&fixture);
    QS_CHECK_OK(scan(&fixture, &seen));
    check_seen(&seen, 80);
    for (uint32_t i = 0; i < seen.block_count; i++) {
        QS_CHECK((seen.blocks[i].block.flags & QSI_BLOCK_MORE) == 0);
    }
    fixture_stop(&fixture);
}

/* Which block each record is in; groups of three, records 4 k + 2 to 4 k + 4. */
static void test_a_large_group_is_a_chain_of_blocks_of_its_own(void)
{
    struct fixture fixture;
    uint32_t more = 0, ends = 0;
    bool inside = false;

    fixture_start(&fixture);
    for (int i = 0; i < 5; i++) {
        append(&fixture, 16);
        for (int k = 0; k < 30; k++) {
            append_group(&fixture, 6000, k < 29);
        }
        append(&fixture, 16);
        if (i % 2 == 0) {
            commit(&fixture);
        }
    }
    commit(&fixture);
    QS_CHECK_OK(scan(&fixture, &seen));
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
    fixture_stop(&fixture);
}

/* ---- sessions ---- */

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

static void test_sessions_follow_each_other(void)
{
    struct fixture fixture;
    uint64_t count = 0;

    fixture_start(&fixture);
    for (uint32_t session = 0; session < 12; session++) {
        for (uint32_t i = 0; i < 3 * (session % 4) * (session % 4); i++, count++) {
            append_and_commit(&fixture, 5000);
        }
        end_session(&fixture, session % 3 != 0);
        check_scan(&fixture, count);
    }
    /* Sessions in which nothing was journalled are replaced by the next. */
    QS_CHECK(fixture.manifest.session_count == 10);
    for (uint32_t i = 1; i < fixture.manifest.session_count; i++) {
        QS_CHECK(fixture.manifest.sessions[i].base_lsn > fixture.manifest.sessions[i - 1].base_lsn);
        QS_CHECK(fixture.manifest.sessions[i].salt != fixture.manifest.sessions[i - 1].salt);
    }
    fixture_stop(&fixture);
}

static void test_a_crash_is_remembered_until_the_next_session_that_journals(void)
{
    struct fixture fixture;

    fixture_start(&fixture);
    append_and_commit(&fixture, 16);
    end_session(&fixture, false);
    QS_CHECK(fixture.manifest.sessions[1].after_crash);
    end_session(&fixture, true); /* nothing journalled: its place is taken, its knowledge kept */
    QS_CHECK(fixture.manifest.session_count == 2 && fixture.manifest.sessions[1].after_crash);
    append_and_commit(&fixture, 16);
    end_session(&fixture, true);
    QS_CHECK(fixture.manifest.session_count == 3);
    QS_CHECK(fixture.manifest.sessions[1].after_crash && !fixture.manifest.sessions[2].after_crash);
    fixture_stop(&fixture);
}

static void test_a_clean_end_gives_the_tail_back(void)
{
    struct fixture fixture;
    uint64_t bytes;

    fixture_start(&fixture);
    append_and_commit(&fixture, 5000);
    QS_CHECK_OK(qsi_journal_close_clean(fixture.journal, &fixture.manifest, QS_ERROR));
    QS_CHECK(file_exists(&fixture, 1, &bytes));
    QS_CHECK(bytes == QSI_JOURNAL_HEADER_BYTES + qsi_block_bytes(5000));
    check_scan(&fixture, 1);
    fixture_stop(&fixture);
}

/* A file that was made and never used serves the next session, whatever lies in it. */
static void test_leftover_files_are_used_again(void)
{
    struct fixture fixture;
    uint64_t bytes;

    fixture_start(&fixture);
    append_and_commit(&fixture, 16);
    make_spare(&fixture, 1000, 1000);
    make_spare(&fixture, 1000, 1000);
    make_spare(&fixture, 1000, 1000);
    end_session(&fixture, false);
    QS_CHECK(fixture.manifest.sessions[1].first_file >= 2);
    for (uint32_t number = 2; number <= 5; number++) { /* kills leave no heap of files */
        QS_CHECK(file_exists(&fixture, number, &bytes) ==
                 (number == fixture.manifest.sessions[1].first_file));
    }
    append_and_commit(&fixture, 16);
    check_scan(&fixture, 2);
    fixture_stop(&fixture);
}

/* Blocks of an earlier generation behind the new ones, at any distance: they carry another salt. */
static void test_stale_blocks_in_a_leftover_file_are_not_read(void)
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

static void test_tiny_leftovers_are_removed(void)
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

static void test_a_failed_commit_ends_the_journal_in_front_of_it(void)
{
    struct fixture fixture;
    qs_env *fault;

    fixture_init(&fixture);
    fixture.env->dir_close(fixture.env, fixture.dir);
    fixture.env->dir_close(fixture.env, fixture.root);
    fault = qsi_env_fault_create(fixture.memory);
    QS_CHECK(fault != NULL);
    fixture.env = fault;
    fixture_open_dirs(&fixture);
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
    qsi_env_fault_destroy(fault);
}

/* ---- out of memory ---- */

static void test_reserving_may_fail_and_appending_cannot(void)
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
    QS_CHECK(memory.alive == 0);
    qs_allocator_set(NULL);
}

static void test_opening_may_fail_at_any_call(void)
{
    for (uint64_t n = 1;; n++) {
        struct fixture fixture;
        qs_env *fault;
        qs_status status;

        fixture_init(&fixture);
        fixture.env->dir_close(fixture.env, fixture.dir);
        fixture.env->dir_close(fixture.env, fixture.root);
        fault = qsi_env_fault_create(fixture.memory);
        QS_CHECK(fault != NULL);
        fixture.env = fault;
        fixture_open_dirs(&fixture);
        qsi_env_fault_arm(fault, QSI_FAULT_ANY, QSI_FAULT_EIO, n, false);
        status = qsi_journal_open(&fixture.journal, fixture.env, fixture.root, fixture.dir,
                                  &fixture.options, &fixture.manifest, 0, 0, QS_ERROR);
        QS_CHECK(qsi_env_fault_fired(fault) || status == QS_OK);
        QS_CHECK(status == QS_OK || (status == QS_EIO && fixture.journal == NULL));
        fixture_stop(&fixture);
        if (!qsi_env_fault_fired(fault)) {
            qsi_env_fault_destroy(fault);
            break;
        }
        qsi_env_fault_destroy(fault);
    }
}

int main(void)
{
    test_what_is_committed_is_read_in_order();
    test_what_is_appended_while_a_commit_is_under_way_is_in_the_next();
    test_neighbours_in_a_chunk_are_one_entry();
    test_files_roll_over();
    test_what_is_ahead_in_a_file_made_in_a_hurry_is_filled_with_zeros();
    test_a_fill_that_fails_is_the_last_and_harms_nothing();
    test_a_commit_may_need_several_files();
    test_room_comes_from_spares();
    test_spares_that_a_commit_did_not_need_serve_the_next();
    test_an_overtaken_spare_is_passed_over();
    test_no_space_for_a_spare_changes_nothing();
    test_a_small_group_is_in_one_block();
    test_a_large_group_is_a_chain_of_blocks_of_its_own();
    test_sessions_follow_each_other();
    test_a_crash_is_remembered_until_the_next_session_that_journals();
    test_a_clean_end_gives_the_tail_back();
    test_leftover_files_are_used_again();
    test_stale_blocks_in_a_leftover_file_are_not_read();
    test_tiny_leftovers_are_removed();
    test_a_failed_commit_ends_the_journal_in_front_of_it();
    test_reserving_may_fail_and_appending_cannot();
    test_opening_may_fail_at_any_call();
    return 0;
}
