/* What the tests of the journal share: a journal in memory, records that tell their number, and
 * a scan that writes down what it saw. */
#ifndef JOURNAL_FIXTURE_H
#define JOURNAL_FIXTURE_H

#include "env_test.h"
#include "file.h"
#include "journal.h"
#include "qs_test.h"
#include "record.h"
#include "scan.h"

#define SEEN_RECORDS_MAX 8192
#define SEEN_BLOCKS_MAX 2048
#define FILE_BYTES (64u << 10)

struct fixture {
    qs_env *memory;
    qs_env *fault; /* around memory; NULL: none */
    qs_env *env;
    qs_dir *root, *dir;
    struct qsi_journal_options options;
    struct qsi_manifest manifest;
    struct qsi_journal *journal;
    uint64_t next; /* number of the next record */
    uint64_t salt; /* for environments made of others */
};

struct seen {
    uint64_t numbers[SEEN_RECORDS_MAX];
    uint32_t count;
    struct qsi_scan_block blocks[SEEN_BLOCKS_MAX]; /* without their chunks */
    uint32_t block_count;
    struct qsi_scan_result result;
};

static inline void fixture_open_dirs(struct fixture *fixture)
{
    bool created;

    QS_CHECK_OK(fixture->env->dir_open_root(fixture->env, "store", true, &fixture->root, &created,
                                            QS_ERROR));
    QS_CHECK_OK(fixture->env->dir_open(fixture->env, fixture->root, "journal", true, &fixture->dir,
                                       &created, QS_ERROR));
}

static inline void fixture_init(struct fixture *fixture)
{
    memset(fixture, 0, sizeof *fixture);
    fixture->memory = qsi_env_mem_create(1);
    fixture->env = fixture->memory;
    fixture->options.file_bytes = FILE_BYTES;
    fixture->options.sync = true;
    memcpy(fixture->options.uuid, "a store's uuid..", QSI_UUID_BYTES);
    memcpy(fixture->manifest.uuid, "a store's uuid..", QSI_UUID_BYTES);
    fixture->next = 1;
    fixture_open_dirs(fixture);
}

/* Its calls may fail from here on; the environment that fails them ends with the fixture. */
static inline qs_env *fixture_put_fault(struct fixture *fixture)
{
    fixture->env->dir_close(fixture->env, fixture->dir);
    fixture->env->dir_close(fixture->env, fixture->root);
    fixture->env = fixture->fault = qsi_env_fault_create(fixture->memory);
    fixture_open_dirs(fixture);
    return fixture->fault;
}

/* Begins a session behind what is there. */
static inline void fixture_begin(struct fixture *fixture, uint32_t used_upto, uint64_t end_lsn)
{
    QS_CHECK_OK(qsi_journal_open(&fixture->journal, fixture->env, fixture->root, fixture->dir,
                                 &fixture->options, &fixture->manifest, used_upto, end_lsn,
                                 QS_ERROR));
}

static inline void fixture_start(struct fixture *fixture)
{
    fixture_init(fixture);
    fixture_begin(fixture, 0, 0);
}

static inline void fixture_stop(struct fixture *fixture)
{
    qsi_journal_close(fixture->journal);
    qsi_manifest_fini(&fixture->manifest);
    fixture->env->dir_close(fixture->env, fixture->dir);
    fixture->env->dir_close(fixture->env, fixture->root);
    qsi_env_fault_destroy(fixture->fault);
    qsi_env_mem_destroy(fixture->memory);
    memset(fixture, 0, sizeof *fixture);
}

QS_TEST_FIXTURE(run_with_journal, struct fixture, fixture_start(&fixture), fixture_stop(&fixture))
#define JOURNAL_TEST(name) QS_TEST_BY(run_with_journal, name, (struct fixture * fixture))

/* A copy of the disk as it is now, with the manifest as it is on it, and no journal open. */
static inline void fixture_copy(struct fixture *copy, const struct fixture *fixture)
{
    *copy = *fixture;
    copy->journal = NULL;
    copy->fault = NULL;
    copy->memory = copy->env = qsi_env_mem_clone(fixture->memory, 7);
    fixture_open_dirs(copy);
    QS_CHECK_OK(qsi_manifest_load(&copy->manifest, copy->env, copy->root, QS_ERROR));
}

/* ---- writing ---- */

/* A record of these bytes with the next number. */
static inline uint64_t append_group(struct fixture *fixture, uint32_t bytes, bool more)
{
    struct qsi_chunk *chunk = qsi_chunk_create(bytes);
    uint64_t lsn;

    QS_CHECK(chunk != NULL && bytes >= 16 && bytes % 8 == 0);
    memset(chunk->data, (int)(fixture->next % 251), bytes);
    qsi_put_u32(chunk->data, bytes);
    qsi_put_u64(chunk->data + 8, fixture->next++);
    chunk->used = bytes;
    QS_CHECK_OK(qsi_journal_reserve(fixture->journal, 1));
    lsn = qsi_journal_append(fixture->journal, chunk, 0, bytes, 1, more);
    QS_CHECK(lsn == qsi_journal_appended_lsn(fixture->journal));
    qsi_chunk_unref(chunk);
    return lsn;
}

static inline uint64_t append(struct fixture *fixture, uint32_t bytes)
{
    return append_group(fixture, bytes, false);
}

static inline void commit(struct fixture *fixture)
{
    while (qsi_journal_seal(fixture->journal)) {
        QS_CHECK_OK(qsi_journal_write(fixture->journal, QS_ERROR));
        QS_CHECK_OK(qsi_journal_sync(fixture->journal, QS_ERROR));
        qsi_journal_finish(fixture->journal);
        qsi_journal_check(fixture->journal);
    }
    QS_CHECK(qsi_journal_durable_lsn(fixture->journal) ==
             qsi_journal_appended_lsn(fixture->journal));
}

static inline void append_and_commit(struct fixture *fixture, uint32_t bytes)
{
    append(fixture, bytes);
    commit(fixture);
}

static inline void make_spare(struct fixture *fixture, uint64_t bytes, uint64_t entry_bytes)
{
    struct qsi_spare spare;

    qsi_journal_spare_begin(fixture->journal, &spare, bytes, entry_bytes, UINT64_MAX, false);
    QS_CHECK_OK(qsi_journal_spare_make(fixture->journal, &spare, QS_ERROR));
    QS_CHECK_OK(qsi_journal_spare_finish(fixture->journal, &spare));
}

/* A checkpoint, as far as the journal is concerned. */
static inline void make_checkpoint(struct fixture *fixture, uint64_t lsn)
{
    struct qsi_session start;

    qsi_journal_session_at(fixture->journal, lsn, &start);
    fixture->manifest.checkpoint_number += 1;
    fixture->manifest.checkpoint_lsn = lsn;
    qsi_manifest_begin_at(&fixture->manifest, &start);
    QS_CHECK_OK(qsi_manifest_store(&fixture->manifest, fixture->env, fixture->root, QS_ERROR));
}

static inline qs_status release(struct fixture *fixture, uint32_t keep)
{
    return qsi_journal_release(fixture->journal, fixture->manifest.sessions[0].first_file, keep,
                               QS_ERROR);
}

/* ---- reading ---- */

static inline qs_status see(void *context, const struct qsi_scan_block *block, qs_error *error)
{
    struct seen *seen = context;
    const uint8_t *at = block->chunk->data + block->from;
    uint64_t left = block->block.payload_bytes;

    (void)error;
    QS_CHECK(seen->block_count < SEEN_BLOCKS_MAX);
    seen->blocks[seen->block_count] = *block;
    seen->blocks[seen->block_count++].chunk = NULL;
    for (; left > 0; left -= qsi_record_length(at), at += qsi_record_length(at)) {
        QS_CHECK(qsi_record_fits(at, left) && seen->count < SEEN_RECORDS_MAX);
        seen->numbers[seen->count++] = qsi_get_u64(at + 8);
        for (uint32_t i = 16; i < qsi_record_length(at); i++) {
            QS_CHECK(at[i] == (uint8_t)(qsi_get_u64(at + 8) % 251));
        }
    }
    return QS_OK;
}

static inline qs_status scan_how(const struct fixture *fixture, bool salvage, struct seen *seen)
{
    struct qsi_scan_options options = {.salvage = salvage};

    memset(seen, 0, sizeof *seen);
    return qsi_journal_scan(fixture->env, fixture->dir, &fixture->manifest, &options, see, seen,
                            &seen->result, QS_ERROR);
}

static inline qs_status scan(const struct fixture *fixture, struct seen *seen)
{
    return scan_how(fixture, false, seen);
}

/* Sees the records from 1 to count, in order. */
static inline void check_seen(const struct seen *seen, uint64_t count)
{
    if (seen->count != count) {
        fprintf(stderr, "%u records, not %" PRIu64 "\n", seen->count, count);
        QS_CHECK(seen->count == count);
    }
    for (uint32_t i = 0; i < seen->count; i++) {
        QS_CHECK(seen->numbers[i] == i + 1);
    }
}

static inline void check_scan(const struct fixture *fixture, uint64_t count)
{
    static struct seen seen;

    QS_CHECK_OK(scan(fixture, &seen));
    check_seen(&seen, count);
    QS_CHECK(seen.result.torn_bytes == 0 && seen.result.lost_bytes == 0);
}

/* ---- files ---- */

static inline bool file_exists(const struct fixture *fixture, uint32_t number, uint64_t *bytes_out)
{
    char name[QSI_JOURNAL_NAME_BYTES];
    qs_file *file;
    qs_status status;

    qsi_journal_name(name, number);
    status = fixture->env->open(fixture->env, fixture->dir, name, QS_OPEN_READ, &file, QS_ERROR);
    if (status == QS_ENOENT) {
        return false;
    }
    QS_CHECK(status == QS_OK);
    QS_CHECK_OK(fixture->env->size(fixture->env, file, bytes_out, QS_ERROR));
    fixture->env->close(fixture->env, file);
    return true;
}

static inline void remove_file(const struct fixture *fixture, uint32_t number)
{
    char name[QSI_JOURNAL_NAME_BYTES];

    qsi_journal_name(name, number);
    QS_CHECK_OK(fixture->env->remove(fixture->env, fixture->dir, name, QS_ERROR));
}

/* Changes bytes of a file: xor with mask, or zero for mask 0. */
static inline void damage(const struct fixture *fixture, uint32_t number, uint64_t offset,
                          uint64_t bytes, uint8_t mask)
{
    char name[QSI_JOURNAL_NAME_BYTES];
    QS_TEST_FREED uint8_t *data = malloc(bytes);
    qs_part part = {data, bytes};
    qs_file *file;
    size_t got = 0;

    QS_CHECK(data != NULL);
    qsi_journal_name(name, number);
    QS_CHECK_OK(
        fixture->env->open(fixture->env, fixture->dir, name, QS_OPEN_WRITE, &file, QS_ERROR));
    QS_CHECK_OK(qsi_file_read(fixture->env, file, data, bytes, offset, &got, QS_ERROR));
    QS_CHECK(got == bytes);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = mask == 0 ? 0 : data[i] ^ mask;
    }
    QS_CHECK_OK(qsi_file_write(fixture->env, file, &part, 1, offset, QS_ERROR));
    fixture->env->close(fixture->env, file);
}

static inline void truncate_file(const struct fixture *fixture, uint32_t number, uint64_t bytes)
{
    char name[QSI_JOURNAL_NAME_BYTES];
    qs_file *file;

    qsi_journal_name(name, number);
    QS_CHECK_OK(
        fixture->env->open(fixture->env, fixture->dir, name, QS_OPEN_WRITE, &file, QS_ERROR));
    QS_CHECK_OK(fixture->env->truncate(fixture->env, file, bytes, QS_ERROR));
    fixture->env->close(fixture->env, file);
}

#endif
