/* Reading the journal behind a checkpoint: what is visited, what counts as damage, and what lies
 * about from before.
 *
 * Blocks of one to five records over several files; each test moves the checkpoint through
 * copies of one good disk. */
#include "journal_fixture.h"

#define COMMITS 40
#define RECORD_BYTES 1600

static struct seen good, seen;

static uint32_t records_in(uint32_t commit_index)
{
    return 1 + commit_index * 3 % 5;
}

static void start_good(struct fixture *fixture)
{
    fixture_start(fixture);
    for (uint32_t i = 0; i < COMMITS; i++) {
        for (uint32_t k = 0; k < records_in(i); k++) {
            append(fixture, RECORD_BYTES);
        }
        commit(fixture);
    }
    QS_CHECK_OK(scan(fixture, &good));
    QS_CHECK(good.block_count >= COMMITS && good.result.last_file >= 4);
}

QS_TEST_FIXTURE(run_with_good, struct fixture, start_good(&fixture), fixture_stop(&fixture))
#define GOOD_TEST(name) QS_TEST_BY(run_with_good, name, (struct fixture * fixture))

/* A copy of the disk as a checkpoint at this LSN leaves it. */
static void copy_with_checkpoint(struct fixture *copy, const struct fixture *fixture, uint64_t lsn)
{
    struct qsi_session start;

    fixture_copy(copy, fixture);
    qsi_journal_session_at(fixture->journal, lsn, &start);
    copy->manifest.checkpoint_number = 1;
    copy->manifest.checkpoint_lsn = lsn;
    qsi_manifest_begin_at(&copy->manifest, &start);
    QS_CHECK_OK(qsi_manifest_store(&copy->manifest, copy->env, copy->root, QS_ERROR));
}

static uint64_t block_end(const struct qsi_scan_block *block)
{
    return block->block.lsn + block->block.payload_bytes;
}

/* The first block that is not in the checkpoint whole. */
static uint32_t first_needed(uint64_t lsn)
{
    uint32_t first = 0;

    while (first < good.block_count && block_end(&good.blocks[first]) <= lsn) {
        first += 1;
    }
    return first;
}

/* Sees the good blocks from first on, without the one at missing. */
static void check_blocks(uint32_t first, uint32_t missing)
{
    uint32_t at = 0;
    uint64_t bytes = 0;

    for (uint32_t i = first; i < good.block_count; i++) {
        if (i == missing) {
            continue;
        }
        QS_CHECK(at < seen.block_count);
        QS_CHECK(seen.blocks[at].block.lsn == good.blocks[i].block.lsn &&
                 seen.blocks[at].offset == good.blocks[i].offset &&
                 seen.blocks[at].block.file_number == good.blocks[i].block.file_number);
        bytes += seen.blocks[at++].block.payload_bytes;
    }
    QS_CHECK(at == seen.block_count);
    QS_CHECK(seen.result.blocks == at && seen.result.bytes == bytes);
}

/* ---- what is visited ---- */

/* A block that the checkpoint cuts in two is visited: what to do with its front is the visitor's
 * business. */
GOOD_TEST(test_blocks_behind_the_checkpoint_are_visited)
{
    struct fixture copy;

    for (uint64_t lsn = 0; lsn <= good.result.end_lsn; lsn += RECORD_BYTES) {
        copy_with_checkpoint(&copy, fixture, lsn);
        QS_CHECK_OK(scan(&copy, &seen));
        check_blocks(first_needed(lsn), good.block_count);
        QS_CHECK(seen.result.end_lsn == good.result.end_lsn &&
                 seen.result.end_offset == good.result.end_offset &&
                 seen.result.last_file == good.result.last_file && seen.result.torn_bytes == 0);
        fixture_stop(&copy);
    }
}

/* Files before the first session may be there, whatever is in them, or not. */
GOOD_TEST(test_files_before_the_checkpoint_are_not_read)
{
    struct fixture copy;

    for (uint32_t how = 0; how < 3; how++) {
        uint64_t lsn = good.blocks[good.block_count - 3].block.lsn;

        copy_with_checkpoint(&copy, fixture, lsn);
        QS_CHECK(copy.manifest.sessions[0].first_file > 3);
        for (uint32_t n = 1; n < copy.manifest.sessions[0].first_file; n++) {
            switch (how) {
            case 0:
                remove_file(&copy, n);
                break;
            case 1:
                damage(&copy, n, 0, 3 * QSI_BLOCK_ALIGN, (uint8_t)(n + 1));
                break;
            default:
                truncate_file(&copy, n, 100);
            }
        }
        QS_CHECK_OK(scan(&copy, &seen));
        check_blocks(good.block_count - 3, good.block_count);
        QS_CHECK_OK(scan_how(&copy, true, &seen));
        check_blocks(good.block_count - 3, good.block_count);
        QS_CHECK(seen.result.lost_ranges == 0);
        fixture_stop(&copy);
    }
}

/* ---- damage ---- */

/* Blocks of the first file that the checkpoint has are checked all the same: without them the
 * place of the next is not known. */
GOOD_TEST(test_damage_before_the_checkpoint_is_refused_and_loses_nothing)
{
    struct fixture copy;

    for (uint32_t i = 0; i < good.block_count; i++) {
        const struct qsi_scan_block *block = &good.blocks[i];
        uint64_t lsn = block_end(block);
        char path[QSI_JOURNAL_PATH_BYTES];

        copy_with_checkpoint(&copy, fixture, lsn);
        if (copy.manifest.sessions[0].first_file != block->block.file_number) {
            fixture_stop(&copy); /* the file is not read any more */
            continue;
        }
        damage(&copy, block->block.file_number, block->offset + 300, 1, 1);
        qsi_journal_path(path, block->block.file_number);
        QS_CHECK_STATUS(QS_ECORRUPT, scan(&copy, &seen));
        QS_CHECK(strcmp(QS_ERROR->path, path) == 0 && QS_ERROR->offset == block->offset);
        QS_CHECK(seen.block_count == 0);
        QS_CHECK_OK(scan_how(&copy, true, &seen));
        check_blocks(i + 1, good.block_count);
        QS_CHECK(seen.result.lost_ranges == 0 && seen.result.lost_bytes == 0);
        QS_CHECK(seen.result.end_lsn == good.result.end_lsn);
        fixture_stop(&copy);
    }
}

/* Of a block that the checkpoint cuts in two, what lies behind the checkpoint is lost. */
GOOD_TEST(test_a_damaged_block_across_the_checkpoint_loses_its_end)
{
    struct fixture copy;
    uint32_t tried = 0;

    for (uint32_t i = 0; i < good.block_count; i++) {
        const struct qsi_scan_block *block = &good.blocks[i];

        if (block->block.record_count < 2) {
            continue;
        }
        copy_with_checkpoint(&copy, fixture, block->block.lsn + RECORD_BYTES);
        damage(&copy, block->block.file_number, block->offset + 300, 1, 1);
        QS_CHECK_STATUS(QS_ECORRUPT, scan(&copy, &seen));
        QS_CHECK(seen.block_count == 0);
        QS_CHECK_OK(scan_how(&copy, true, &seen));
        check_blocks(i + 1, good.block_count);
        QS_CHECK(i + 1 == good.block_count ||
                 (seen.result.lost_ranges == 1 &&
                  seen.result.lost_bytes == block->block.payload_bytes - RECORD_BYTES));
        fixture_stop(&copy);
        tried += 1;
    }
    QS_CHECK(tried > 20);
}

/* It was durable to there, whatever else is known of its end. */
GOOD_TEST(test_a_journal_that_ends_before_the_checkpoint_is_damage)
{
    struct fixture copy;
    const struct qsi_scan_block *last = &good.blocks[good.block_count - 1];

    for (int how = 0; how < 4; how++) {
        for (uint64_t lsn = last->block.lsn; lsn <= block_end(last); lsn += RECORD_BYTES) {
            bool is_torn = lsn == last->block.lsn; /* nothing behind the checkpoint is known of */
            bool is_gone = how >= 2;               /* the file: nobody knows how much it held */

            copy_with_checkpoint(&copy, fixture, lsn);
            switch (how) {
            case 0:
                damage(&copy, last->block.file_number, last->offset + 1000, 1, 16);
                break;
            case 1:
                damage(&copy, last->block.file_number, last->offset, 4096, 0);
                break;
            case 2: /* the rest of the file was never written */
                damage(&copy, last->block.file_number, 0,
                       last->offset + qsi_block_bytes(last->block.payload_bytes), 0);
                is_torn = is_torn && copy.manifest.sessions[0].base_lsn == lsn;
                break;
            default:
                remove_file(&copy, last->block.file_number);
                is_torn = false;
            }
            if (is_torn) {
                QS_CHECK_OK(scan(&copy, &seen));
                QS_CHECK(seen.block_count == 0 && seen.result.end_lsn == lsn);
            } else {
                QS_CHECK_STATUS(QS_ECORRUPT, scan(&copy, &seen));
                QS_CHECK(seen.block_count == 0);
            }
            /* What is journalled next gets no LSN that the checkpoint covers. */
            QS_CHECK_OK(scan_how(&copy, true, &seen));
            QS_CHECK(seen.block_count == 0 &&
                     seen.result.end_lsn == lsn + (is_gone ? QSI_RECORD_ALIGN : 0) &&
                     seen.result.lost_ranges == (is_gone ? 1 : 0));
            fixture_stop(&copy);
        }
    }
}

/* ---- files used again ---- */

/* Behind the end lie spares that are full of blocks and headers from before: they prove nothing,
 * and save nobody. */
GOOD_TEST(test_stale_files_behind_the_end_prove_nothing)
{
    struct fixture copy;
    const struct qsi_scan_block *last;
    uint32_t spare;
    uint64_t bytes;

    make_checkpoint(fixture, qsi_journal_durable_lsn(fixture->journal));
    QS_CHECK_OK(release(fixture, 4));
    append_and_commit(fixture, RECORD_BYTES);
    append_and_commit(fixture, RECORD_BYTES);
    QS_CHECK_OK(scan(fixture, &good));
    QS_CHECK(good.count == 2 && good.result.highest_file >= good.result.last_file + 3);
    last = &good.blocks[1];
    spare = good.result.last_file + 1;
    QS_CHECK(!file_exists(fixture, spare - 2, &bytes) && file_exists(fixture, spare, &bytes));
    for (int salvage = 0; salvage < 2; salvage++) {
        fixture_copy(&copy, fixture); /* torn */
        damage(&copy, last->block.file_number, last->offset + 1000, 1, 16);
        QS_CHECK_OK(scan_how(&copy, salvage != 0, &seen));
        QS_CHECK(seen.count == 1 && seen.numbers[0] == good.numbers[0]);
        QS_CHECK(salvage != 0 || seen.result.torn_bytes > 0);
        fixture_stop(&copy);
    }
    fixture_copy(&copy, fixture); /* all that is left to salvage is stale */
    damage(&copy, last->block.file_number, 0, QSI_BLOCK_ALIGN, 0);
    damage(&copy, last->block.file_number, good.blocks[0].offset, 2 * QSI_BLOCK_ALIGN, 3);
    QS_CHECK_OK(scan_how(&copy, true, &seen));
    QS_CHECK(seen.count == 0);
    fixture_stop(&copy);
}

/* ---- progress and memory ---- */

struct progress {
    uint32_t calls;
    uint64_t done, total;
    uint64_t step_max;
};

static void note_progress(void *context, uint64_t bytes_done, uint64_t bytes_total)
{
    struct progress *progress = context;
    uint64_t step = bytes_done - progress->done;

    QS_CHECK(bytes_done >= progress->done && bytes_done <= bytes_total);
    QS_CHECK(progress->calls == 0 || bytes_total == progress->total);
    progress->step_max = step > progress->step_max ? step : progress->step_max;
    progress->calls += 1;
    progress->done = bytes_done;
    progress->total = bytes_total;
}

static qs_status check_chunk(void *context, const struct qsi_scan_block *block, qs_error *error)
{
    uint32_t *count = context;

    (void)error;
    QS_CHECK(block->chunk->capacity <=
             (block->block.payload_bytes > (64u << 10) ? block->block.payload_bytes : 256u << 10));
    *count += 1;
    return QS_OK;
}

static void scan_large(const struct fixture *fixture, bool salvage, uint32_t expected)
{
    struct progress progress = {0};
    struct qsi_scan_options options = {
        .salvage = salvage, .progress = note_progress, .progress_context = &progress};
    struct qsi_scan_result result;
    uint64_t total = 0;
    uint32_t count = 0;

    QS_CHECK_OK(qsi_journal_scan(fixture->env, fixture->dir, &fixture->manifest, &options,
                                 check_chunk, &count, &result, QS_ERROR));
    for (uint32_t n = fixture->manifest.sessions[0].first_file; n <= result.highest_file; n++) {
        uint64_t bytes = 0;

        total += file_exists(fixture, n, &bytes) ? bytes : 0;
    }
    QS_CHECK(count == expected);
    QS_CHECK(progress.calls >= 4 && progress.done == total && progress.total == total);
    QS_CHECK(progress.step_max < 10u << 20);
}

/* Large and small blocks in turn. */
QS_TEST(test_progress_is_told_and_small_blocks_keep_no_large_chunk)
{
    struct fixture fixture;
    struct qsi_scan_result result;
    struct qsi_scan_options options = {0};
    uint32_t count = 0;

    fixture_init(&fixture);
    fixture.options.file_bytes = 8u << 20;
    fixture_begin(&fixture, 0, 0);
    for (uint32_t i = 0; i < 24; i++) {
        append_and_commit(&fixture, 1u << 20);
        append_and_commit(&fixture, RECORD_BYTES);
    }
    scan_large(&fixture, false, 48);
    make_checkpoint(&fixture, 6 * ((1u << 20) + RECORD_BYTES) + (1u << 20));
    QS_CHECK(fixture.manifest.sessions[0].base_lsn > 0);
    scan_large(&fixture, false, 35);
    damage(&fixture, fixture.manifest.sessions[0].first_file + 1, QSI_JOURNAL_HEADER_BYTES + 100000,
           1, 1);
    scan_large(&fixture, true, 34);
    QS_CHECK_STATUS(QS_ECORRUPT,
                    qsi_journal_scan(fixture.env, fixture.dir, &fixture.manifest, &options,
                                     check_chunk, &count, &result, QS_ERROR));
    fixture_stop(&fixture);
}
