/* A journal whose records have one size, so that an LSN tells the number of the record there. */
#ifndef JOURNAL_RELEASE_FIXTURE_H
#define JOURNAL_RELEASE_FIXTURE_H

#include "journal_fixture.h"
#include "lock.h"
#include "qs_test_alloc.h"

#include <sched.h>

#define RECORD_BYTES 4000 /* a page each, in commits of one */
#define RECORDS_IN_A_FILE 12

static struct seen seen;

static inline void checkpoint(struct fixture *fixture, uint64_t record_count)
{
    make_checkpoint(fixture, record_count * RECORD_BYTES);
}

static inline void commit_records(struct fixture *fixture, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        append_and_commit(fixture, RECORD_BYTES);
    }
}

/* Sees the records behind the checkpoint up to the end, each once and in order, and of those
 * before it only what shares a block with the first of them. */
static inline void check_behind_checkpoint(const struct fixture *fixture, uint64_t last_min,
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

static inline void check_all_there(const struct fixture *fixture)
{
    QS_CHECK_OK(scan(fixture, &seen));
    check_behind_checkpoint(fixture, fixture->next - 1, fixture->next - 1);
}

static inline uint32_t count_files(const struct fixture *fixture, uint32_t from, uint32_t to)
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

static inline void reopen(struct fixture *fixture)
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

#endif
