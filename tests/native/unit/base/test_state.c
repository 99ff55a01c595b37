/* A step that its table does not have ends the process, in release builds too. */
#include "qs_test_abort.h"
#include "state.h"

enum door { DOOR_SHUT, DOOR_OPEN, DOOR_LOCKED };

static const uint32_t follows[] = {
    [DOOR_SHUT] = QSI_MAY_BE(DOOR_OPEN) | QSI_MAY_BE(DOOR_LOCKED),
    [DOOR_OPEN] = QSI_MAY_BE(DOOR_SHUT),
    [DOOR_LOCKED] = QSI_MAY_BE(DOOR_SHUT),
};

static void step(enum door *door, enum door next)
{
    QSI_STATE_STEP(door, next, follows);
}

static void lock_while_open(void *door)
{
    step(door, DOOR_LOCKED);
}

QS_TEST(test_steps_of_the_table_are_made)
{
    enum door door = DOOR_SHUT;

    step(&door, DOOR_LOCKED);
    QS_CHECK(door == DOOR_LOCKED);
    step(&door, DOOR_SHUT);
    step(&door, DOOR_OPEN);
    QS_CHECK(door == DOOR_OPEN);
}

QS_TEST(test_step_that_the_table_lacks_aborts)
{
    enum door door = DOOR_OPEN;

    QS_CHECK(!qsi_state_may_follow(follows, DOOR_OPEN, DOOR_LOCKED));
    QS_CHECK(qs_test_aborts(lock_while_open, &door));
    QS_CHECK(door == DOOR_OPEN);
}
