/* Timers: compared with a list that is searched from end to end. */
#include "qs_test.h"
#include "splitmix.h"
#include "timers.h"

enum { COUNT = 200, STEPS = 20000 };

static struct qsi_timer timers[COUNT];
static uint64_t model[COUNT];

static uint64_t first_of_model(void)
{
    uint64_t first = QSI_TIMER_NEVER;

    for (int i = 0; i < COUNT; i++) {
        first = model[i] < first ? model[i] : first;
    }
    return first;
}

QS_SEED_TEST(test_timers_come_in_the_order_in_which_they_are_due)
{
    struct qsi_timers heap = {0};
    uint64_t random = seed, now_ns = 0;

    for (int i = 0; i < COUNT; i++) {
        model[i] = QSI_TIMER_NEVER;
    }
    QS_CHECK_OK(qsi_timers_reserve(&heap, COUNT));
    for (int step = 0; step < STEPS; step++) {
        uint64_t draw = qsi_splitmix_next(&random);
        size_t which = draw % COUNT;
        struct qsi_timer *due;
        model[which] = draw >> 32 & 7 ? now_ns + (draw >> 40 & 1023) : QSI_TIMER_NEVER;
        qsi_timers_set(&heap, &timers[which], model[which]);
        QS_CHECK(qsi_timers_next_ns(&heap) == first_of_model());
        now_ns += draw >> 50 & 15;
        while ((due = qsi_timers_take_due(&heap, now_ns)) != NULL) {
            QS_CHECK(model[due - timers] == first_of_model() && due->due_ns <= now_ns);
            model[due - timers] = QSI_TIMER_NEVER;
        }
        QS_CHECK(first_of_model() > now_ns);
    }
    qsi_timers_fini(&heap);
}

QS_TEST(test_a_timer_that_is_not_set_is_never_due)
{
    struct qsi_timers heap = {0};
    struct qsi_timer timer = {0};

    QS_CHECK(qsi_timers_next_ns(&heap) == QSI_TIMER_NEVER);
    QS_CHECK(qsi_timers_take_due(&heap, UINT64_MAX - 1) == NULL);
    qsi_timers_set(&heap, &timer, QSI_TIMER_NEVER);
    QS_CHECK(heap.count == 0);
}
