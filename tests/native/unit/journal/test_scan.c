/* Reading damaged journals: what the last commit left half written is cut off, everything else
 * is refused with its place.
 *
 * Each test damages copies of one good disk.  The random part flips bits anywhere; its seed is
 * printed and is the first argument. */
#include "qs_test_faults.h"
#include "scan_fixture.h"

/* ---- blocks ---- */

QS_BOOL_TEST(test_a_flipped_bit_in_any_block_but_the_last_is_damage, clean)
{
    struct fixture fixture, copy;

    start_good(&fixture, clean);
    for (uint32_t i = 0; i + 1 < RECORDS; i++) {
        const struct qsi_scan_block *block = &good.blocks[i];
        const uint64_t places[] = {0,
                                   4,
                                   8,
                                   16,
                                   24,
                                   32,
                                   36,
                                   40,
                                   60,
                                   64,
                                   QSI_BLOCK_HEADER_BYTES + 2500,
                                   QSI_BLOCK_HEADER_BYTES + block->block.payload_bytes - 1};

        for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
            fixture_copy(&copy, &fixture);
            damage(&copy, block->block.file_number, block->offset + places[k], 1,
                   (uint8_t)(1u << (i + k) % 8));
            check_corrupt(&copy, block->block.file_number, block->offset);
            check_seen(&seen, i);
            fixture_stop(&copy);
        }
    }
    fixture_stop(&fixture);
}

GOOD_TEST(test_the_last_block_is_cut_off_when_it_is_torn)
{
    struct fixture copy;
    const struct qsi_scan_block *last = &good.blocks[RECORDS - 1];

    for (int how = 0; how < 4; how++) {
        uint64_t bytes = qsi_block_bytes(last->block.payload_bytes);

        fixture_copy(&copy, fixture);
        switch (how) {
        case 0: /* a bit */
            damage(&copy, last->block.file_number, last->offset + 1000, 1, 16);
            break;
        case 1: /* the second page was not written */
            damage(&copy, last->block.file_number, last->offset + 4096, bytes - 4096, 0);
            break;
        case 2: /* the first page was not written: nothing tells that there was a block */
            damage(&copy, last->block.file_number, last->offset, 4096, 0);
            break;
        default: /* nothing was */
            damage(&copy, last->block.file_number, last->offset, bytes, 0);
        }
        QS_CHECK_OK(scan(&copy, &seen));
        check_seen(&seen, RECORDS - 1);
        QS_CHECK(seen.result.end_lsn == last->block.lsn && seen.result.end_offset == last->offset &&
                 seen.result.last_file == last->block.file_number);
        QS_CHECK(seen.result.torn_bytes == (how == 2 || how == 3 ? 0 : bytes));
        fixture_stop(&copy);
    }
}

/* A crash leaves files as long as they were made. */
GOOD_TEST(test_a_file_that_was_cut_is_damage_although_its_session_was_not_closed)
{
    struct fixture copy;
    const struct qsi_scan_block *last = &good.blocks[RECORDS - 1];

    fixture_copy(&copy, fixture);
    truncate_file(&copy, last->block.file_number, last->offset + 4096);
    check_corrupt(&copy, last->block.file_number, last->offset + 4096);
    fixture_stop(&copy);
}

/* After an orderly close nothing can be torn. */
QS_TEST(test_the_last_block_of_a_clean_journal_is_damage)
{
    struct fixture fixture, copy;
    const struct qsi_scan_block *last;

    start_good(&fixture, true);
    last = &good.blocks[RECORDS - 1];
    fixture_copy(&copy, &fixture);
    damage(&copy, last->block.file_number, last->offset + 1000, 1, 16);
    check_corrupt(&copy, last->block.file_number, last->offset);
    fixture_stop(&copy);
    fixture_copy(&copy, &fixture);
    truncate_file(&copy, last->block.file_number, last->offset);
    check_corrupt(&copy, last->block.file_number, last->offset);
    fixture_stop(&copy);
    fixture_stop(&fixture);
}

/* The blocks of one commit reach the disk in any order: none of them proves another. */
JOURNAL_TEST(test_any_block_of_the_last_commit_may_be_torn)
{
    struct fixture copy;

    append_and_commit(fixture, 16);
    for (int i = 0; i < 3; i++) { /* the first of them fills the file */
        append(fixture, 40000);
    }
    commit(fixture);
    QS_CHECK_OK(scan(fixture, &good));
    check_seen(&good, 4);
    QS_CHECK(good.block_count == 3 && good.blocks[1].block.file_number == 1 &&
             good.blocks[2].block.file_number > 1);
    fixture_copy(&copy, fixture);
    damage(&copy, good.blocks[2].block.file_number, good.blocks[2].offset + 100, 1, 1);
    QS_CHECK_OK(scan(&copy, &seen));
    check_seen(&seen, 2);
    fixture_stop(&copy);
    /* A file with a header proves that the ones before it were synced. */
    fixture_copy(&copy, fixture);
    damage(&copy, good.blocks[1].block.file_number, good.blocks[1].offset + 100, 1, 1);
    check_corrupt(&copy, good.blocks[1].block.file_number, good.blocks[1].offset);
    fixture_stop(&copy);
}

/* What a commit tells of its records must be so, although its checksum is right. */
QS_TEST(test_a_block_is_made_of_whole_records)
{
    for (int how = 0; how < 3; how++) {
        struct fixture fixture;
        struct qsi_chunk *chunk = qsi_chunk_create(64);

        QS_CHECK(chunk != NULL);
        memset(chunk->data, 0, 64);
        qsi_put_u32(chunk->data, 32);
        qsi_put_u32(chunk->data + 32, how == 0 ? 40 : how == 1 ? 0 : 32);
        chunk->used = 64;
        fixture_start(&fixture);
        QS_CHECK_OK(qsi_journal_reserve(fixture.journal, 1));
        qsi_journal_append(fixture.journal, chunk, 0, 64, how == 2 ? 3 : 2, false);
        qsi_chunk_unref(chunk);
        commit(&fixture);
        check_corrupt(&fixture, 1, QSI_JOURNAL_HEADER_BYTES);
        QS_CHECK(seen.block_count == 0);
        fixture_stop(&fixture);
    }
}

/* ---- groups ---- */

JOURNAL_TEST(test_an_incomplete_chain_is_told_by_its_last_block)
{
    struct fixture copy;

    append_and_commit(fixture, 16);
    for (int i = 0; i < 12; i++) {
        append_group(fixture, 20000, i < 11);
    }
    commit(fixture);
    QS_CHECK_OK(scan(fixture, &good));
    check_seen(&good, 13);
    for (uint32_t i = good.block_count - 1; i > 0; i--) {
        const struct qsi_scan_block *block = &good.blocks[i];

        if (block->block.file_number != good.result.last_file) {
            break;
        }
        fixture_copy(&copy, fixture);
        damage(&copy, block->block.file_number, block->offset + 80, 1, 1);
        QS_CHECK_OK(scan(&copy, &seen));
        QS_CHECK(seen.block_count == i && seen.count < 13);
        QS_CHECK((seen.blocks[i - 1].block.flags & QSI_BLOCK_MORE) != 0);
        fixture_stop(&copy);
    }
}

/* ---- the visitor, faults, memory ---- */

static qs_status refuse_third(void *context, const struct qsi_scan_block *block, qs_error *error)
{
    uint32_t *count = context;

    (void)block;
    (void)error;
    *count += 1;
    return *count == 3 ? QS_EVERSION : QS_OK;
}

GOOD_TEST(test_a_visitor_can_end_the_scan)
{
    struct qsi_scan_options options = {0};
    struct qsi_scan_result result;
    uint32_t count = 0;

    QS_CHECK_STATUS(QS_EVERSION,
                    qsi_journal_scan(fixture->env, fixture->dir, &fixture->manifest, &options,
                                     refuse_third, &count, &result, QS_ERROR));
    QS_CHECK(count == 3 && result.blocks == 2);
}

QS_TEST(test_a_read_error_is_not_taken_for_the_end)
{
    for (struct qs_test_sweep sweep = {.how = QSI_FAULT_EIO, .fewest = RECORDS};
         qs_test_sweep_on(&sweep);) {
        struct fixture fixture;
        qs_status status;

        start_good(&fixture, false);
        qs_test_sweep_calls(&sweep, fixture_put_fault(&fixture));
        status = scan(&fixture, &seen);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == (sweep.has_failed ? QS_EIO : QS_OK));
        fixture_stop(&fixture);
    }
}

QS_TEST(test_missing_memory_is_not_taken_for_the_end)
{
    static struct qs_test_alloc memory;
    struct fixture fixture;

    qs_test_alloc_install(&memory);
    start_good(&fixture, false);
    for (struct qs_test_sweep sweep = {.memory = &memory}; qs_test_sweep_on(&sweep);) {
        qs_status status;

        qs_test_sweep_allocations(&sweep);
        status = scan(&fixture, &seen);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == (sweep.has_failed ? QS_ENOMEM : QS_OK));
    }
    fixture_stop(&fixture);
    qs_test_alloc_end(&memory);
}

/* ---- bits anywhere ---- */

/* Never a wrong record, never a missing one in the middle: a prefix or a refusal, and a refusal
 * whenever a block that a later one proves is gone. */
QS_BOOL_TEST(test_a_flipped_bit_is_found_or_does_no_harm, clean)
{
    struct fixture fixture, copy;

    start_good(&fixture, clean);
    for (int turn = 0; turn < 400; turn++) {
        uint32_t number = 1 + qs_test_below(good.result.last_file);
        uint64_t bytes = 0, offset;
        qs_status status;

        fixture_copy(&copy, &fixture);
        QS_CHECK(file_exists(&copy, number, &bytes) && bytes > 0);
        offset = qs_test_below((uint32_t)bytes);
        damage(&copy, number, offset, 1, (uint8_t)(1u << qs_test_below(8)));
        status = scan(&copy, &seen);
        QS_CHECK(status == QS_OK || status == QS_ECORRUPT);
        for (uint32_t i = 0; i < seen.count; i++) {
            QS_CHECK(seen.numbers[i] == i + 1);
        }
        QS_CHECK(status != QS_OK || seen.count >= RECORDS - (clean ? 0 : 1));
        fixture_stop(&copy);
    }
    fixture_stop(&fixture);
}

/* ---- salvage ---- */

QS_TEST(test_salvage_passes_over_damage_and_counts_it)
{
    struct fixture fixture, copy;

    start_good(&fixture, true);
    for (uint32_t i = 0; i < RECORDS; i++) {
        const struct qsi_scan_block *block = &good.blocks[i];

        fixture_copy(&copy, &fixture);
        damage(&copy, block->block.file_number, block->offset + 300, 1, 1);
        QS_CHECK_OK(scan_how(&copy, true, &seen));
        QS_CHECK(seen.count == RECORDS - 1 && seen.result.lost_ranges == 1);
        QS_CHECK(seen.result.lost_bytes == block->block.payload_bytes);
        for (uint32_t k = 0; k < seen.count; k++) {
            QS_CHECK(seen.numbers[k] == k + 1 + (k >= i));
        }
        QS_CHECK(seen.result.end_lsn == good.result.end_lsn);
        fixture_stop(&copy);
    }
    for (uint32_t number = 1; number <= good.result.last_file; number++) {
        uint32_t inside = 0;

        for (uint32_t i = 0; i < RECORDS; i++) {
            inside += good.blocks[i].block.file_number == number;
        }
        fixture_copy(&copy, &fixture); /* a header: its blocks are whole, and those behind them */
        damage(&copy, number, 40, 1, 1);
        QS_CHECK_OK(scan_how(&copy, true, &seen));
        check_seen(&seen, RECORDS);
        fixture_stop(&copy);
        fixture_copy(&copy, &fixture); /* a file */
        remove_file(&copy, number);
        QS_CHECK_OK(scan_how(&copy, true, &seen));
        QS_CHECK(seen.count == RECORDS - inside && seen.result.lost_ranges == 1);
        fixture_stop(&copy);
    }
    QS_CHECK_OK(scan_how(&fixture, true, &seen));
    check_seen(&seen, RECORDS);
    QS_CHECK(seen.result.lost_ranges == 0 && seen.result.lost_bytes == 0);
    fixture_stop(&fixture);
}
