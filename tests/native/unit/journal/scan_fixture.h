/* What the tests of damaged journals share: one good disk, and what was seen of it. */
#ifndef SCAN_FIXTURE_H
#define SCAN_FIXTURE_H

#include "journal_fixture.h"
#include "qs_test_alloc.h"

#define RECORDS 40

static struct seen good, seen;

/* Forty commits of one record, over several files.  clean: the end is written down. */
static inline void start_good(struct fixture *fixture, bool clean)
{
    fixture_start(fixture);
    for (uint32_t i = 0; i < RECORDS; i++) {
        append_and_commit(fixture, 5000 + 8 * i);
    }
    if (clean) {
        QS_CHECK_OK(qsi_journal_close_clean(fixture->journal, &fixture->manifest, QS_ERROR));
    }
    qsi_journal_close(fixture->journal);
    fixture->journal = NULL;
    QS_CHECK_OK(scan(fixture, &good));
    check_seen(&good, RECORDS);
    QS_CHECK(good.block_count == RECORDS && good.result.last_file >= 5);
}

QS_TEST_FIXTURE(run_with_good, struct fixture, start_good(&fixture, false), fixture_stop(&fixture))
#define GOOD_TEST(name) QS_TEST_BY(run_with_good, name, (struct fixture * fixture))

static inline void check_corrupt(const struct fixture *fixture, uint32_t number, uint64_t offset)
{
    char path[QSI_JOURNAL_PATH_BYTES];

    qsi_journal_path(path, number);
    QS_CHECK_STATUS(QS_ECORRUPT, scan(fixture, &seen));
    if (strcmp(QS_ERROR->path, path) != 0 || QS_ERROR->offset != offset) {
        fprintf(stderr, "not %s, %" PRIu64 ": %s\n", path, offset, QS_ERROR->text);
        QS_CHECK(!"place of the damage");
    }
    QS_CHECK(strstr(QS_ERROR->text, path) != NULL);
    for (uint32_t i = 0; i < seen.count; i++) {
        QS_CHECK(seen.numbers[i] == i + 1);
    }
}

#endif
