/* Threads that wait in one store on disk: they share commits, and a close wakes them. */
#include "concurrent_fixture.h"
#include "qs_test_calls.h"

/* ---- committing ---- */

#define COMMITTERS 4
#define COMMITS 60

static void *publish_and_wait(void *argument)
{
    struct shared *shared = argument;
    qs_channel *channel = open_channel(shared);

    for (int i = 0; i < COMMITS; i++) {
        qs_receipt receipt;

        QS_CHECK_OK(qs_channel_publish(channel, NONE, text(queue_names[0]), PERSISTENT,
                                       text("waited for"), 0, 0, &receipt, QS_ERROR));
        QS_CHECK_OK(qs_store_wait_durable(shared->engine.store, receipt.lsn, QS_FOREVER, QS_ERROR));
    }
    qs_channel_close(channel);
    return NULL;
}

static void *commit_transactions(void *argument)
{
    struct shared *shared = argument;
    qs_channel *channel = open_channel(shared);

    QS_CHECK_OK(qs_channel_tx_select(channel, QS_ERROR));
    for (int i = 0; i < COMMITS; i++) {
        for (int k = 0; k < 2; k++) {
            QS_CHECK_OK(
                qs_test_publish(channel, "", queue_names[k], PERSISTENT, text("together"), 0));
        }
        QS_CHECK_OK(qs_test_commit(channel, NONE, 0));
    }
    qs_channel_close(channel);
    return NULL;
}

QS_TEST(test_waiters_share_commits)
{
    static struct shared shared;
    pthread_t threads[COMMITTERS + 1];

    start_store(&shared, false);
    for (int i = 0; i < COMMITTERS; i++) {
        threads[i] = start(publish_and_wait, &shared);
    }
    threads[COMMITTERS] = start(commit_transactions, &shared);
    for (int i = 0; i <= COMMITTERS; i++) {
        QS_CHECK(pthread_join(threads[i], NULL) == 0);
    }
    check_counts(&shared.engine, queue_names[0], (COMMITTERS + 1) * COMMITS, 0);
    check_counts(&shared.engine, queue_names[1], COMMITS, 0);
    engine_stop(&shared.engine);
}

/* ---- closing ---- */

#define WAITERS 3

struct waiter {
    struct shared *shared;
    int kind;
    pthread_barrier_t *ready;
};

static void *wait_for_ever(void *argument)
{
    struct waiter *waiter = argument;
    qs_channel *channel = open_channel(waiter->shared);
    struct received received;
    qs_event event;
    qs_status status;

    if (waiter->kind == 0) {
        QS_CHECK_OK(qs_test_consume(channel, queue_names[0], "", 0, NONE));
    }
    pthread_barrier_wait(waiter->ready);
    if (waiter->kind == 1) {
        status = qs_channel_get_batch(channel, text(queue_names[1]), 10, 1000, 0, QS_FOREVER,
                                      &received.schema, &received.array, QS_ERROR);
    } else {
        status =
            qs_channel_next_event(channel, waiter->kind == 0 ? QS_EVENT_DELIVERY : QS_EVENT_ACK,
                                  QS_FOREVER, &event, QS_ERROR);
    }
    QS_CHECK(status == QS_ESTORE_CLOSED);
    QS_CHECK_STATUS(QS_ESTORE_CLOSED, qs_channel_confirm_select(channel, QS_ERROR));
    qs_channel_close(channel);
    return NULL;
}

QS_TEST(test_close_wakes_those_who_wait)
{
    static struct shared shared;
    struct waiter waiters[WAITERS];
    pthread_t threads[WAITERS];
    pthread_barrier_t ready;

    for (int turn = 0; turn < 5; turn++) {
        start_store(&shared, false);
        QS_CHECK(pthread_barrier_init(&ready, NULL, WAITERS + 1) == 0);
        for (int i = 0; i < WAITERS; i++) {
            waiters[i] = (struct waiter){&shared, i, &ready};
            threads[i] = start(wait_for_ever, &waiters[i]);
        }
        pthread_barrier_wait(&ready);
        /* Whether they wait by now or not: what they are told is the same. */
        QS_CHECK_OK(qs_store_close(shared.engine.store, QS_ERROR));
        for (int i = 0; i < WAITERS; i++) {
            QS_CHECK(pthread_join(threads[i], NULL) == 0);
        }
        qs_channel_close(shared.engine.channel);
        pthread_barrier_destroy(&ready);
        engine_fini(&shared.engine);
    }
}
