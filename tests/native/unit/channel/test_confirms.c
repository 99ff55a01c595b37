/* Publish numbers and their verdicts: each number gets one, acks of what is durable come together.
 *
 * The random part keeps a verdict for each number; its seed is printed and is the first
 * argument. */
#include "confirms.h"
#include "qs_test_memory.h"
#include "qs_test_sweep.h"

static uint64_t durable_now; /* what those who reserve know of */

static uint64_t add(struct qsi_confirms *confirms, uint64_t count, uint64_t lsn)
{
    QS_CHECK_OK(qsi_confirms_reserve(confirms, durable_now));
    return qsi_confirms_add(confirms, count, lsn);
}

QS_TEST_FIXTURE(run_confirms, struct qsi_confirms, fixture = (struct qsi_confirms){0},
                qsi_confirms_fini(&fixture))
#define CONFIRMS_TEST(name) QS_TEST_BY(run_confirms, name, (struct qsi_confirms * confirms))

static void expect(struct qsi_confirms *confirms, uint64_t durable, bool failed,
                   enum qsi_verdict verdict, uint64_t number, bool multiple, uint64_t count)
{
    uint64_t got_number = 0, got_count = 0, refusing;
    bool got_multiple = false;
    enum qsi_verdict got = qsi_confirms_next(confirms, durable, failed, &got_number, &got_multiple,
                                             &got_count, &refusing);

    QS_CHECK(refusing == 0); /* nothing is refused by a queue here */

    if (got != verdict ||
        (got != QSI_VERDICT_NONE &&
         (got_number != number || got_multiple != multiple || got_count != count))) {
        fprintf(stderr, "verdict %d of %" PRIu64 " (%d), %" PRIu64 " messages\n", (int)got,
                got_number, got_multiple, got_count);
        QS_CHECK(!"verdict");
    }
}

static void expect_none(struct qsi_confirms *confirms, uint64_t durable)
{
    expect(confirms, durable, false, QSI_VERDICT_NONE, 0, false, 0);
}

CONFIRMS_TEST(test_acks_come_when_durable_and_together)
{
    QS_CHECK(qsi_confirms_last_lsn(confirms) == 0);
    QS_CHECK(add(confirms, 1, 100) == 1);
    QS_CHECK(add(confirms, 1, 200) == 2);
    QS_CHECK(add(confirms, 1, 300) == 3);
    QS_CHECK(qsi_confirms_last_lsn(confirms) == 300);
    expect_none(confirms, 99);
    expect(confirms, 100, false, QSI_VERDICT_ACK, 1, false, 1);
    expect_none(confirms, 199);
    QS_CHECK(add(confirms, 1, 400) == 4);
    expect(confirms, 399, false, QSI_VERDICT_ACK, 3, true, 2);
    expect_none(confirms, 399);
    expect(confirms, 1000, false, QSI_VERDICT_ACK, 4, false, 1);
    QS_CHECK(qsi_confirms_last_lsn(confirms) == 0);
}

CONFIRMS_TEST(test_a_batch_is_a_range_of_numbers)
{
    QS_CHECK(add(confirms, 1000, 100) == 1);
    QS_CHECK(add(confirms, 1, 100) == 1001);
    QS_CHECK(add(confirms, 50, 200) == 1002);
    QS_CHECK(confirms->pending.count == 2); /* neighbours that share a fate */
    expect(confirms, 150, false, QSI_VERDICT_ACK, 1001, true, 1001);
    expect(confirms, 200, false, QSI_VERDICT_ACK, 1051, true, 50);
}

CONFIRMS_TEST(test_what_needs_no_disk_is_acked_ahead_of_the_others)
{
    add(confirms, 1, 100);
    add(confirms, 1, 0);
    add(confirms, 1, 0);
    add(confirms, 1, 200);
    add(confirms, 1, 0);
    expect(confirms, 0, false, QSI_VERDICT_ACK, 2, false, 1);
    expect(confirms, 100, false, QSI_VERDICT_ACK, 1, false, 1);
    expect(confirms, 100, false, QSI_VERDICT_ACK, 3, false, 1);
    expect(confirms, 200, false, QSI_VERDICT_ACK, 4, true, 1);
    expect(confirms, 200, false, QSI_VERDICT_ACK, 5, false, 1);
    expect_none(confirms, UINT64_MAX);
}

CONFIRMS_TEST(test_an_ack_covers_immediate_ones_before_it)
{
    add(confirms, 1, 100);
    add(confirms, 3, 0);
    add(confirms, 1, 200);
    add(confirms, 2, 0);
    expect(confirms, 200, false, QSI_VERDICT_ACK, 5, true, 5);
    expect(confirms, 200, false, QSI_VERDICT_ACK, 6, false, 1);
    expect(confirms, 200, false, QSI_VERDICT_ACK, 7, false, 1);
    expect_none(confirms, 200);
}

CONFIRMS_TEST(test_nothing_pending_makes_an_immediate_ack)
{
    add(confirms, 5, 0);
    QS_CHECK(qsi_confirms_last_lsn(confirms) == 0);
    expect(confirms, 0, false, QSI_VERDICT_ACK, 5, true, 5);
    expect_none(confirms, 0);
}

CONFIRMS_TEST(test_a_failure_nacks_what_is_not_durable)
{
    add(confirms, 1, 100);
    add(confirms, 1, 200);
    add(confirms, 1, 0);
    add(confirms, 2, 300);
    expect(confirms, 100, true, QSI_VERDICT_ACK, 1, false, 1);
    expect(confirms, 100, true, QSI_VERDICT_ACK, 3, false, 1);
    QS_CHECK(!confirms->nacked);
    expect(confirms, 100, true, QSI_VERDICT_NACK, 5, true, 3);
    QS_CHECK(confirms->nacked);
    expect(confirms, 100, true, QSI_VERDICT_NONE, 0, false, 0);
}

/* A wait that was told of a failure has been told of the nacks that follow. */
CONFIRMS_TEST(test_nacks_that_a_wait_has_told_are_not_told_again)
{
    add(confirms, 1, 100);
    confirms->nack_reported = true;
    expect(confirms, 0, true, QSI_VERDICT_NACK, 1, false, 1);
    QS_CHECK(!confirms->nacked);
}

/* ---- a verdict for each number ---- */

#define NUMBERS_MAX 20000

struct numbers {
    uint64_t lsns[NUMBERS_MAX];
    char verdicts[NUMBERS_MAX];     /* 0, 'a' or 'n' */
    uint64_t refusing[NUMBERS_MAX]; /* a queue's id; 0: no queue refused it */
    uint64_t count;
};

/* Takes every verdict that there is.  With multiple, a verdict is for every number before it
 * that has none. */
static void take_verdicts(struct qsi_confirms *confirms, struct numbers *numbers, uint64_t durable,
                          bool failed)
{
    enum qsi_verdict verdict;
    uint64_t number, count, refusing;
    bool multiple;

    while ((verdict = qsi_confirms_next(confirms, durable, failed, &number, &multiple, &count,
                                        &refusing)) != QSI_VERDICT_NONE) {
        uint64_t first = multiple ? 1 : number;
        uint64_t covered = 0;

        QS_CHECK(number >= 1 && number <= numbers->count && numbers->verdicts[number] == 0);
        for (uint64_t i = first; i <= number; i++) {
            if (numbers->verdicts[i] != 0) {
                continue;
            }
            covered += 1;
            numbers->verdicts[i] = verdict == QSI_VERDICT_ACK ? 'a' : 'n';
            QS_CHECK(verdict == QSI_VERDICT_ACK
                         ? numbers->lsns[i] <= durable && numbers->refusing[i] == 0
                         : numbers->refusing[i] != 0 || (failed && numbers->lsns[i] > durable));
            QS_CHECK(refusing == numbers->refusing[i]);
        }
        QS_CHECK(covered == count);
    }
    for (uint64_t i = 1; i <= numbers->count; i++) {
        QS_CHECK(numbers->verdicts[i] != 0 || (numbers->lsns[i] > durable && !failed));
    }
}

/* A batch of which full queues refuse some rows: single ones, many together, all or none. */
static void add_refused(struct qsi_confirms *confirms, struct numbers *numbers, uint64_t count,
                        uint64_t lsn)
{
    uint64_t *refusing = &numbers->refusing[numbers->count + 1];
    uint32_t turn = qs_test_below(4);

    for (uint64_t row = 0; row < count; row++) {
        bool is_refused = turn < 2 ? qs_test_below(2) == 0 : turn == 2 ? row > count / 2 : true;
        refusing[row] = is_refused ? 1 + qs_test_below(2) : 0;
        numbers->lsns[numbers->count + 1 + row] = lsn;
    }
    QS_CHECK_OK(qsi_confirms_reserve_batch(confirms, count, durable_now));
    QS_CHECK(qsi_confirms_add_batch(confirms, count, lsn, refusing) == numbers->count + 1);
    numbers->count += count;
}

QS_TEST(test_each_number_gets_one_verdict)
{
    static struct numbers numbers;

    for (int turn = 0; turn < 200; turn++) {
        struct qsi_confirms confirms = {0};
        uint64_t lsn = 0, durable = 0;

        memset(&numbers, 0, sizeof numbers);
        durable_now = 0;
        for (int step = 0; step < 200; step++) {
            qsi_confirms_check(&confirms);
            if (qs_test_below(4) > 0) {
                uint64_t count = 1 + qs_test_below(5);
                bool immediate = qs_test_below(3) == 0;

                lsn += immediate ? 0 : 1 + qs_test_below(100);
                QS_CHECK(add(&confirms, count, immediate ? 0 : lsn) == numbers.count + 1);
                for (; count > 0; count--) {
                    numbers.lsns[++numbers.count] = immediate ? 0 : lsn;
                }
            } else if (qs_test_below(3) == 0) {
                lsn += 1 + qs_test_below(100);
                add_refused(&confirms, &numbers, 1 + qs_test_below(150),
                            qs_test_below(3) == 0 ? 0 : lsn);
            } else if (numbers.count > 0 && qs_test_below(2) == 0) {
                uint64_t number = 1 + qs_test_below((uint32_t)numbers.count);
                if (qsi_confirms_early(&confirms, number)) {
                    numbers.lsns[number] = 0; /* it waits for no disk any more */
                }
            } else {
                durable += lsn > durable ? qs_test_below((uint32_t)(lsn - durable) + 1) : 0;
                durable_now = durable;
                if (qs_test_below(2) == 0) {
                    continue; /* nobody asks */
                }
                take_verdicts(&confirms, &numbers, durable, false);
            }
        }
        take_verdicts(&confirms, &numbers, durable, turn % 2 == 0);
        take_verdicts(&confirms, &numbers, turn % 2 == 0 ? durable : lsn, turn % 2 == 0);
        qsi_confirms_fini(&confirms);
    }
}

CONFIRMS_TEST(test_confirms_that_nobody_reads_take_no_more_memory)
{
    for (uint64_t number = 1; number <= 100000; number++) {
        durable_now = number > 10 ? 10 * (number - 10) : 0;
        QS_CHECK(add(confirms, 1, number % 3 == 2 ? 0 : 10 * number) == number);
    }
    QS_CHECK(confirms->pending.capacity <= 64 && confirms->immediate.capacity <= 64);
    expect(confirms, 1000000, false, QSI_VERDICT_ACK, 100000, true, 100000);
    expect_none(confirms, 1000000);
    durable_now = 0;
}

/* Numbers that are told of out of order, each once. */
CONFIRMS_TEST(test_a_number_may_be_confirmed_ahead_of_its_lsn)
{
    uint64_t first, last;

    for (uint64_t number = 1; number <= 5; number++) {
        add(confirms, 1, 10 * number);
    }
    add(confirms, 3, 60); /* 6 to 8: of a batch none is by itself */
    QS_CHECK(qsi_confirms_early(confirms, 4) && qsi_confirms_early(confirms, 2));
    QS_CHECK(qsi_confirms_early(confirms, 3) && !qsi_confirms_early(confirms, 3));
    QS_CHECK(!qsi_confirms_early(confirms, 7) && confirms->immediate.count == 1);
    QS_CHECK(qsi_confirms_next_pending(confirms, 0, 1, 8, &first, &last));
    QS_CHECK(first == 1 && last == 1);
    QS_CHECK(qsi_confirms_next_pending(confirms, 0, 2, 7, &first, &last));
    QS_CHECK(first == 5 && last == 7);
    QS_CHECK(qsi_confirms_next_pending(confirms, 10, 1, 8, &first, &last) && first == 5);
    QS_CHECK(!qsi_confirms_next_pending(confirms, 60, 1, 8, &first, &last));
    expect(confirms, 0, false, QSI_VERDICT_ACK, 2, false, 1);
    expect(confirms, 50, false, QSI_VERDICT_ACK, 5, true, 4); /* 1, 3, 4 and 5 */
    QS_CHECK(!qsi_confirms_early(confirms, 5));
    expect_none(confirms, 50);
    add(confirms, 1, 70);
    QS_CHECK(qsi_confirms_early(confirms, 9) && qsi_confirms_last_lsn(confirms) == 60);
    add(confirms, 1, 0);
    expect(confirms, 50, true, QSI_VERDICT_ACK, 9, false, 1);
    expect(confirms, 50, true, QSI_VERDICT_ACK, 10, false, 1);
    expect(confirms, 50, true, QSI_VERDICT_NACK, 8, true, 3);
}

QS_TEST(test_confirms_ahead_that_nobody_reads_take_no_more_memory)
{
    for (int every = 1; every <= 3; every++) {
        struct qsi_confirms confirms = {0};
        for (uint64_t number = 1; number <= 100000; number++) {
            durable_now = number > 10 ? 10 * (number - 10) : 0;
            QS_CHECK(add(&confirms, 1, 10 * number) == number);
            QS_CHECK(number % (uint64_t)every != 0 || qsi_confirms_early(&confirms, number));
        }
        QS_CHECK(confirms.pending.capacity <= 64 && confirms.immediate.capacity <= 64);
        durable_now = 0;
        qsi_confirms_fini(&confirms);
    }
}

CONFIRMS_TEST(test_confirming_ahead_may_lack_memory_and_changes_nothing_then)
{
    for (uint64_t number = 1; number <= 100; number++) {
        add(confirms, 1, 10 * number);
    }
    qs_test_alloc_arm(&memory, 1, true);
    for (uint64_t number = 2; number <= 100; number += 2) {
        (void)qsi_confirms_early(confirms, number);
    }
    qs_test_alloc_arm(&memory, 0, false);
    QS_CHECK(confirms->immediate.count == confirms->immediate.capacity);
    QS_CHECK(confirms->immediate.count + confirms->pending.count == 100);
    qsi_confirms_check(confirms);
}

QS_TEST(test_reserving_may_fail_and_adding_cannot)
{
    for (struct qs_test_sweep sweep = {.memory = &memory}; qs_test_sweep_on(&sweep);) {
        struct qsi_confirms confirms = {0};
        bool failed = false;

        qs_test_sweep_allocations(&sweep);
        for (uint64_t i = 0; i < 100;) {
            if (qsi_confirms_reserve(&confirms, 0) != QS_OK) {
                QS_CHECK(!failed);
                failed = true;
                continue;
            }
            i += 1;
            QS_CHECK(qsi_confirms_add(&confirms, 1, i % 2 == 0 ? 10 * i : 0) == i);
        }
        qs_test_sweep_rest(&sweep);
        QS_CHECK(failed == sweep.has_failed);
        qsi_confirms_fini(&confirms);
    }
}
