/* Waiting, what a thread of ours starts with, and what a debug build knows of a lock. */
#include "lock.h"
#include "qs_test_abort.h"

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

/* ---- a lock that is not held where it has to be ---- */

#if QSI_CHECKS_LOCKS
static void touch_without_the_lock(void *argument)
{
    struct meeting *meeting = argument;

    QS_ASSERT_HELD(&meeting->mutex); /* what a function that needs the lock begins with */
    meeting->turn += 1;
}

static void *touch_in_a_thread(void *argument)
{
    touch_without_the_lock(argument);
    return NULL;
}

static void touch_with_the_lock_of_another_thread(void *argument)
{
    struct meeting *meeting = argument;
    pthread_t thread;

    qsi_mutex_lock(&meeting->mutex);
    QS_CHECK(pthread_create(&thread, NULL, touch_in_a_thread, meeting) == 0);
    pthread_join(thread, NULL);
}

static void wait_without_the_lock(void *argument)
{
    struct meeting *meeting = argument;

    qsi_cond_wait(&meeting->cond, &meeting->mutex, 0);
}

static void lock_twice(void *argument)
{
    struct meeting *meeting = argument;

    qsi_mutex_lock(&meeting->mutex);
    qsi_mutex_lock(&meeting->mutex);
}

static void unlock_unlocked(void *argument)
{
    struct meeting *meeting = argument;

    qsi_mutex_unlock(&meeting->mutex);
}

static void end_while_held(void *argument)
{
    struct meeting *meeting = argument;

    qsi_mutex_lock(&meeting->mutex);
    qsi_mutex_fini(&meeting->mutex);
}

static void check_aborts(void (*break_rule)(void *))
{
    struct meeting meeting;

    init_meeting(&meeting);
    QS_CHECK(qs_test_aborts(break_rule, &meeting));
    fini_meeting(&meeting);
}

static void test_broken_rule_of_a_lock_aborts(void)
{
    check_aborts(touch_without_the_lock);
    check_aborts(touch_with_the_lock_of_another_thread);
    check_aborts(wait_without_the_lock);
    check_aborts(lock_twice);
    check_aborts(unlock_unlocked);
    check_aborts(end_while_held);
}

static void test_holder_of_a_lock_passes_the_checks(void)
{
    struct meeting meeting;

    init_meeting(&meeting);
    QS_ASSERT_NOT_HELD(&meeting.mutex);
    qsi_mutex_lock(&meeting.mutex);
    touch_without_the_lock(&meeting);
    (void)qsi_cond_wait(&meeting.cond, &meeting.mutex, 0);
    QS_ASSERT_HELD(&meeting.mutex); /* again, after a wait */
    qsi_mutex_unlock(&meeting.mutex);
    QS_ASSERT_NOT_HELD(&meeting.mutex);
    fini_meeting(&meeting);
}
#endif

int main(void)
{
    test_thread_waits_its_turn_with_signals_blocked();
    test_wait_runs_out_when_nobody_signals();
#if QSI_CHECKS_LOCKS
    test_broken_rule_of_a_lock_aborts();
    test_holder_of_a_lock_passes_the_checks();
#endif
    return 0;
}
