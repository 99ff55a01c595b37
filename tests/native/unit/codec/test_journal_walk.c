/* Blocks are laid one behind the other by hand; the walk ends where one is not whole, is cut off,
 * is not to be read yet, or ends its file, and says why. */
#include "qstore/codec.h"

#include "block.h"
#include "qs_test.h"
#include "record.h"

#define BLOCKS 5
#define RECORDS_BYTES QSI_SETTLE_BYTES
#define BASE_LSN 1000
#define REFS 4

static const struct qsi_settle settle = {
    .queue_id = 7, .first_seq = 3, .count = 1, .kind = QSI_SETTLE_ACK};
static const qs_journal_walk start = {
    .salt = 11, .upto_lsn = UINT64_MAX, .lsn = BASE_LSN, .file = 2};

static uint8_t file[BLOCKS * QSI_BLOCK_ALIGN];
static uint8_t refs[REFS * QS_BODY_REFERENCE_BYTES];

static void put(uint32_t index, const uint8_t *records, uint32_t bytes, uint32_t next_file)
{
    uint8_t *at = file + (size_t)index * QSI_BLOCK_ALIGN;
    const struct qsi_block block = {
        .lsn = BASE_LSN + (uint64_t)index * RECORDS_BYTES,
        .durable_upto = BASE_LSN,
        .salt = start.salt,
        .file_number = start.file,
        .payload_bytes = bytes,
        .record_count = bytes > 0,
        .flags = next_file != 0 ? QSI_BLOCK_LAST : 0,
        .next_file = next_file,
    };
    const qs_part part = {records, bytes};

    memset(at, 0, QSI_BLOCK_ALIGN);
    qsi_block_encode(at, &block, &part, bytes > 0 ? 1 : 0);
    memcpy(at + QSI_BLOCK_HEADER_BYTES, records, bytes);
}

/* The last one is an end block. */
static void fill(void)
{
    uint8_t records[RECORDS_BYTES] = {0};

    qsi_settle_encode(records, &settle);
    for (uint32_t i = 0; i + 1 < BLOCKS; i++) {
        put(i, records, sizeof records, 0);
    }
    put(BLOCKS - 1, records, 0, 9);
}

static qs_journal_walk walk_from(qs_journal_walk walk, size_t bytes)
{
    QS_CHECK_OK(qs_journal_walk_blocks(file, bytes, refs, REFS, &walk, QS_ERROR));
    QS_CHECK(walk.walked_bytes % QSI_BLOCK_ALIGN == 0 && walk.ref_count == 0);
    return walk;
}

QS_TEST(test_walk_goes_to_the_end_block)
{
    qs_journal_walk walk;

    fill();
    walk = walk_from(start, sizeof file);
    QS_CHECK(walk.walked_bytes == sizeof file && walk.next_file == 9 && walk.wanted_bytes == 0);
    QS_CHECK(walk.lsn == BASE_LSN + (BLOCKS - 1) * RECORDS_BYTES && !walk.is_elsewhere);
    QS_CHECK(walk_from(start, 0).walked_bytes == 0);
}

QS_TEST(test_walk_ends_where_a_block_is_cut_off_and_says_what_it_wants)
{
    fill();
    for (size_t bytes = 0; bytes < sizeof file; bytes += 32) {
        qs_journal_walk walk = walk_from(start, bytes);
        size_t behind = bytes % QSI_BLOCK_ALIGN;

        QS_CHECK(walk.walked_bytes == bytes - behind && walk.next_file == 0);
        QS_CHECK(walk.wanted_bytes == (behind >= QSI_BLOCK_HEADER_BYTES ? QSI_BLOCK_ALIGN : 0));
    }
}

QS_TEST(test_walk_ends_at_what_is_not_durable_yet)
{
    qs_journal_walk walk = start;

    fill();
    for (uint64_t upto = BASE_LSN; upto < BASE_LSN + 3 * RECORDS_BYTES; upto++) {
        walk.upto_lsn = upto;
        QS_CHECK(walk_from(walk, sizeof file).lsn ==
                 BASE_LSN + (upto - BASE_LSN) / RECORDS_BYTES * RECORDS_BYTES);
    }
}

QS_TEST(test_walk_ends_at_a_flipped_bit_and_in_a_file_of_another_salt_or_number)
{
    qs_journal_walk walk = start;

    fill();
    for (size_t bit = 0; bit < (size_t)8 * (QSI_BLOCK_HEADER_BYTES + RECORDS_BYTES); bit++) {
        file[QSI_BLOCK_ALIGN + bit / 8] ^= (uint8_t)(1 << bit % 8);
        QS_CHECK(walk_from(start, sizeof file).walked_bytes == QSI_BLOCK_ALIGN);
        file[QSI_BLOCK_ALIGN + bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    walk.salt += 1;
    QS_CHECK(walk_from(walk, sizeof file).walked_bytes == 0);
    walk = start;
    walk.file += 1;
    QS_CHECK(walk_from(walk, sizeof file).walked_bytes == 0);
    walk = start;
    walk.lsn += 8;
    QS_CHECK(walk_from(walk, sizeof file).walked_bytes == 0);
}

QS_TEST(test_walk_ends_at_records_that_lead_into_files_of_streams)
{
    static const uint8_t types[] = {QSI_RECORD_STREAM_WRITTEN, QSI_RECORD_STREAM_ADOPTED};

    for (size_t i = 0; i < sizeof types; i++) {
        uint8_t records[RECORDS_BYTES] = {0};
        qs_journal_walk walk;

        fill();
        qsi_record_put_head(records, RECORDS_BYTES, types[i], 0);
        put(2, records, sizeof records, 0);
        walk = walk_from(start, sizeof file);
        QS_CHECK(walk.is_elsewhere && walk.walked_bytes == (size_t)2 * QSI_BLOCK_ALIGN);
        walk = start;
        walk.from_lsn = BASE_LSN + 3 * RECORDS_BYTES;
        walk = walk_from(walk, sizeof file);
        QS_CHECK(!walk.is_elsewhere && walk.walked_bytes == sizeof file);
    }
}

QS_TEST(test_records_that_make_no_sense_are_refused)
{
    uint8_t records[RECORDS_BYTES] = {0};
    qs_journal_walk walk = start;

    fill();
    qsi_record_put_head(records, RECORDS_BYTES + 8, QSI_RECORD_SETTLE, 0);
    put(1, records, sizeof records, 0);
    QS_CHECK_STATUS(QS_ECORRUPT,
                    qs_journal_walk_blocks(file, sizeof file, refs, REFS, &walk, QS_ERROR));
    qsi_record_put_head(records, RECORDS_BYTES, QSI_RECORD_MESSAGES, 0);
    put(1, records, sizeof records, 0);
    walk = start;
    QS_CHECK_STATUS(QS_ECORRUPT,
                    qs_journal_walk_blocks(file, sizeof file, refs, REFS, &walk, QS_ERROR));
}
