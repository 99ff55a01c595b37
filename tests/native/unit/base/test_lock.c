/* Waiting, and what a thread of ours starts with. */
#include "lock.h"
#include "qs_test.h"

#include <signal.h>

struct meeting {
    struct qsi_mutex mutex;
    struct qsi_cond cond;
    int turn;
    bool signals_are_blocked;
};

static void *answer(void *argument)
{
    struct meeting *meeting = argument;
    sigset_t mask;

    QS_CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0);
    qsi_mutex_lock(&meeting->mutex);
    meeting->signals_are_blocked =
        sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGTERM) == 1;
    while (meeting->turn != 1) {
        qsi_cond_wait(&meeting->cond, &meeting->mutex, QSI_WAIT_FOREVER);
    }
    meeting->turn = 2;
    qsi_cond_broadcast(&meeting->cond);
    qsi_mutex_unlock(&meeting->mutex);
    return NULL;
}

static void init_meeting(struct meeting *meeting)
{
    *meeting = (struct meeting){0};
    qsi_mutex_init(&meeting->mutex);
    qsi_cond_init(&meeting->cond);
}

static void fini_meeting(struct meeting *meeting)
{
    qsi_cond_fini(&meeting->cond);
    qsi_mutex_fini(&meeting->mutex);
}

static void test_thread_waits_its_turn_with_signals_blocked(void)
{
    struct meeting meeting;
    pthread_t thread;
    sigset_t mask;

    init_meeting(&meeting);
    QS_CHECK_OK(qsi_thread_start(&thread, "a name that is too long", answer, &meeting, QS_ERROR));
    qsi_mutex_lock(&meeting.mutex);
    meeting.turn = 1;
    qsi_cond_signal(&meeting.cond);
    while (meeting.turn != 2) {
        qsi_cond_wait(&meeting.cond, &meeting.mutex, UINT64_MAX - 1);
    }
    QS_CHECK(meeting.signals_are_blocked);
    qsi_mutex_unlock(&meeting.mutex);
    QS_CHECK(pthread_join(thread, NULL) == 0);
    QS_CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0);
    QS_CHECK(sigismember(&mask, SIGINT) == 0);
    fini_meeting(&meeting);
}

static void test_wait_runs_out_when_nobody_signals(void)
{
    struct meeting meeting;

    init_meeting(&meeting);
    qsi_mutex_lock(&meeting.mutex);
    while (qsi_cond_wait(&meeting.cond, &meeting.mutex, 1000)) {
        /* woken early, which is allowed */
    }
    while (qsi_cond_wait(&meeting.cond, &meeting.mutex, 0)) {
    }
    qsi_mutex_unlock(&meeting.mutex);
    fini_meeting(&meeting);
}

int main(void)
{
    test_thread_waits_its_turn_with_signals_blocked();
    test_wait_runs_out_when_nobody_signals();
    return 0;
}
