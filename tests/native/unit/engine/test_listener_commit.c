/* A loop that commits what it is asked for, itself: when it does, that a confirm is of what no
 * power cut takes, and what comes of a disk that fails. */
#include "armed_fixture.h"
#include "qs_test_calls.h"
#include "sim_disk.h"

enum { TURNS = 40, TRIES = 100000 };

/* What a turn of a loop came to. */
struct turn {
    bool led; /* the loop made the commit itself */
    qs_event event;
};

static qs_listener *listener_of(struct engine *engine)
{
    qs_listener *listener;

    QS_CHECK_OK(qs_listener_open(&listener, engine->store, QS_ERROR));
    QS_CHECK_OK(qs_listener_add(listener, engine->channel, engine, QS_ERROR));
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    declare(engine, "q", QS_DURABLE);
    return listener;
}

static qs_status next_answer(struct engine *engine, uint32_t flags, qs_event *event_out)
{
    uint32_t count;
    qs_status status = qs_channel_next_events(engine->channel, ANSWERS | QS_NO_WAIT | flags, 1,
                                              UINT64_MAX, event_out, &count, QS_ERROR);

    QS_CHECK(count == (status == QS_OK ? 1u : 0u));
    return status;
}

/* A message is published, and what becomes of it heard. */
static struct turn take_turn(struct engine *engine, qs_listener *listener, const char *body,
                             bool may_wait)
{
    struct turn turn;
    qs_status status;
    void *tag;

    qs_listener_hold(listener);
    publish(engine, "q", body);
    status = next_answer(engine, QS_EVENT_ARM, &turn.event);
    turn.led = qs_listener_go(listener, may_wait);
    QS_CHECK(!turn.led || (may_wait && status == QS_EEMPTY));
    if (status == QS_EEMPTY) {
        QS_CHECK(turn.led ? !is_signalled(qs_listener_fd(listener), 0)
                          : is_signalled(qs_listener_fd(listener), AWAITED));
        QS_CHECK(qs_listener_next(listener, &tag, 1, NULL) == 1 && tag == engine);
        QS_CHECK_OK(next_answer(engine, 0, &turn.event));
    }
    return turn;
}

/* A channel that is armed already waits for what it publishes. */
THREADS_TEST(test_who_publishes_while_armed_is_looked_after)
{
    qs_listener *listener = listener_of(engine);

    for (int i = 0; i < TURNS; i++) {
        qs_event event;
        void *tag;
        bool led, rang;
        arm(engine->channel, ANSWERS);
        qs_listener_hold(listener);
        QS_CHECK(!qs_listener_is_awaited(listener));
        publish(engine, "q", "body");
        QS_CHECK(qs_listener_is_awaited(listener));
        led = qs_listener_go(listener, i % 2 == 0);
        QS_CHECK(!qs_listener_is_awaited(listener));
        rang = led || is_signalled(qs_listener_fd(listener), AWAITED);
        QS_CHECK(rang && qs_listener_next(listener, &tag, 1, NULL) == 1);
        QS_CHECK_OK(next_answer(engine, 0, &event));
        QS_CHECK(event.kind == QS_EVENT_ACK);
    }
    qs_listener_close(listener);
}

/* The store's own thread may come first: until it does not. */
static void lead_a_turn(struct engine *engine, qs_listener *listener, const char *body)
{
    struct turn turn;
    int tries = 0;

    do {
        QS_CHECK(tries++ < TRIES);
        turn = take_turn(engine, listener, body, true);
        QS_CHECK(turn.event.kind == QS_EVENT_ACK && turn.event.count == 1);
    } while (!turn.led);
}

/* The clock of a disk in memory tells of commits that are short, whatever the machine does. */
THREADS_TEST(test_a_loop_with_nothing_else_to_do_commits_what_it_is_asked_for)
{
    qs_listener *listener = listener_of(engine);

    for (int i = 0; i < TURNS; i++) {
        lead_a_turn(engine, listener, "1");
        QS_CHECK(!take_turn(engine, listener, "2", false).led);
    }
    qs_listener_close(listener);
}

/* Of each kind there may be too much for one who has others to serve, too. */
THREADS_TEST(test_a_loop_leaves_much_to_the_store)
{
    qs_listener *listener = listener_of(engine);
    QS_TEST_FREED char *journalled = make_body(17000, 1), *stored = make_body(100000, 1);

    lead_a_turn(engine, listener, "1");
    for (int i = 0; i < TURNS; i++) {
        QS_CHECK(!take_turn(engine, listener, journalled, true).led);
        QS_CHECK(!take_turn(engine, listener, stored, true).led);
    }
    qs_listener_close(listener);
}

THREADS_TEST(test_a_listener_may_be_closed_while_it_holds)
{
    qs_listener *listener = listener_of(engine);
    bool nacked;

    publish(engine, "q", "body");
    qs_listener_hold(listener);
    arm(engine->channel, QS_EVENT_ACK);
    qs_listener_close(listener);
    QS_CHECK_OK(qs_channel_wait_confirms(engine->channel, QS_FOREVER, &nacked, QS_ERROR));
}

THREADS_TEST(test_a_store_may_be_closed_while_its_listener_holds)
{
    qs_listener *listener = listener_of(engine);

    qs_listener_hold(listener);
    publish(engine, "q", "body");
    arm(engine->channel, QS_EVENT_ACK);
    engine_close(engine);
    QS_CHECK(!qs_listener_go(listener, true));
    qs_listener_close(listener);
    engine_open(engine);
    get(engine, "q", "body");
}

/* ---- power cuts, and disks that fail ---- */

/* A disk that remembers what a cut could leave; calls of it fail on demand. */
static qs_env *start_on_sim(struct engine *engine)
{
    qs_env *sim = qsi_env_sim_create(1);

    engine_init(engine, IN_MEMORY);
    qsi_env_mem_destroy(engine->memory);
    engine->env = qsi_env_fault_create(sim);
    engine->memory = NULL;
    engine->options.background = true;
    engine_open(engine);
    return sim;
}

static void stop_on_sim(struct engine *engine, qs_env *sim)
{
    qsi_env_fault_destroy(engine->env);
    qsi_env_sim_destroy(sim);
}

/* The power fails now, while threads of the store may be at work. */
static qs_env *cut(qs_env *sim)
{
    struct sim_disk *disk = sim->data;
    qs_env *left;

    qsi_mutex_lock(&disk->ram.mutex);
    left = qsi_env_sim_cut(sim, QSI_CUT_DROP_ALL, 1);
    qsi_mutex_unlock(&disk->ram.mutex);
    return left;
}

/* What is there after the cut: at least so many messages. */
static void check_left(const struct engine *engine, qs_env *left, uint64_t confirmed)
{
    struct engine after = *engine;
    qs_queue_status status;

    after.env = after.memory = left;
    after.options.background = false;
    engine_open(&after);
    QS_CHECK_OK(qs_store_queue_status(after.store, text("q"), &status, QS_ERROR));
    QS_CHECK(status.messages_ready >= confirmed);
    engine_stop(&after);
}

QS_TEST(test_no_power_cut_takes_what_a_loop_has_confirmed)
{
    struct engine engine;
    qs_env *sim = start_on_sim(&engine);
    qs_listener *listener = listener_of(&engine);
    uint64_t confirmed = 0, led = 0;

    for (int tries = 0; led < TURNS; tries++) {
        QS_CHECK(tries < TRIES);
        struct turn turn = take_turn(&engine, listener, "body", true);
        QS_CHECK(turn.event.kind == QS_EVENT_ACK);
        confirmed += turn.event.count;
        led += turn.led;
        check_left(&engine, cut(sim), confirmed);
    }
    qs_listener_close(listener);
    engine_close(&engine);
    stop_on_sim(&engine, sim);
}

/* False: the store's own thread came first. */
static bool fails_as_ever(bool may_wait, enum qsi_fault_kind kind, enum qsi_fault_how how)
{
    struct engine engine;
    qs_env *sim = start_on_sim(&engine);
    qs_listener *listener = listener_of(&engine);
    struct turn turn;
    qs_error error;

    lead_a_turn(&engine, listener, "confirmed");
    qsi_env_fault_arm(engine.env, kind, how, 1, true);
    turn = take_turn(&engine, listener, "lost", may_wait);
    QS_CHECK(turn.event.kind == QS_EVENT_NACK && turn.event.reason == QS_ESTORE_FAILED);
    QS_CHECK(next_answer(&engine, 0, &turn.event) == QS_EEMPTY);
    QS_CHECK_STATUS(QS_ESTORE_FAILED, qs_store_failure(engine.store, &error));
    QS_CHECK_STATUS(QS_ESTORE_FAILED,
                    qs_test_publish(engine.channel, "", "q", PERSISTENT, text("next"), 0));
    qs_listener_hold(listener); /* and there is nothing more to lead */
    arm(engine.channel, QS_EVENT_ACK);
    QS_CHECK(!qs_listener_go(listener, true));
    check_left(&engine, cut(sim), 1);
    qs_listener_close(listener);
    qs_channel_close(engine.channel);
    QS_CHECK_STATUS(QS_ESTORE_FAILED, qs_store_close(engine.store, QS_ERROR));
    stop_on_sim(&engine, sim);
    return turn.led == may_wait;
}

QS_TEST(test_a_disk_that_fails_a_loop_fails_the_store)
{
    static const struct {
        enum qsi_fault_kind kind;
        enum qsi_fault_how how;
    } faults[] = {
        {QSI_FAULT_WRITE, QSI_FAULT_EIO},        {QSI_FAULT_WRITE, QSI_FAULT_SHORT_EIO},
        {QSI_FAULT_SYNC, QSI_FAULT_EIO},         {QSI_FAULT_SYNC, QSI_FAULT_SYNC_LOST},
        {QSI_FAULT_CHECK_LINKED, QSI_FAULT_EIO},
    };

    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        int tries = 0;
        while (!fails_as_ever(true, faults[i].kind, faults[i].how)) {
            QS_CHECK(tries++ < TRIES);
        }
        QS_CHECK(fails_as_ever(false, faults[i].kind, faults[i].how));
    }
}
