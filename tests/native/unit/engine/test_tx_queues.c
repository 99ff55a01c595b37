/* Transactions to many queues in turn: several messages for each, of queues that the one before had
 * as well, in another order.  What each queue gets, in which order, and what a crash leaves. */
#include "engine_fixture.h"

#define QUEUES 70u /* more than are counted without memory of their own, several times over */
#define TURNS 3u
#define NAME_BYTES 32u

static const char *queue_name(char *name, uint32_t queue)
{
    snprintf(name, NAME_BYTES, "q%u", queue);
    return name;
}

static const char *body_of(char *body, uint32_t commit, uint32_t turn, uint32_t queue)
{
    snprintf(body, NAME_BYTES, "%u %u %u", commit, turn, queue);
    return body;
}

/* In the middle turn what every third queue gets is transient. */
static bool is_transient(uint32_t turn, uint32_t queue)
{
    return turn == 1 && queue % 3 == 0;
}

/* commit 0 goes to the queues as they were declared, commit 1 the other way round. */
static void publish_turns(struct engine *engine, uint32_t commit)
{
    char name[NAME_BYTES], body[NAME_BYTES];

    for (uint32_t turn = 0; turn < TURNS; turn++) {
        for (uint32_t i = 0; i < QUEUES; i++) {
            uint32_t queue = commit == 0 ? i : QUEUES - 1 - i;
            publish_to(engine, "", queue_name(name, queue),
                       is_transient(turn, queue) ? TRANSIENT : PERSISTENT,
                       text(body_of(body, commit, turn, queue)));
        }
    }
    QS_CHECK_OK(qs_test_commit(engine->channel, text(""), 0));
}

static void check_all(struct engine *engine, uint32_t first_queue, bool has_transients)
{
    char name[NAME_BYTES], body[NAME_BYTES];

    for (uint32_t queue = first_queue; queue < QUEUES; queue++) {
        for (uint32_t commit = 0; commit < 2; commit++) {
            for (uint32_t turn = 0; turn < TURNS; turn++) {
                if (has_transients || !is_transient(turn, queue)) {
                    get(engine, queue_name(name, queue), body_of(body, commit, turn, queue));
                }
            }
        }
        get_nothing(engine, queue_name(name, queue));
    }
}

static void declare_queues(struct engine *engine)
{
    char name[NAME_BYTES];

    for (uint32_t queue = 0; queue < QUEUES; queue++) {
        declare(engine, queue_name(name, queue), QS_DURABLE);
    }
}

ENGINE_TEST(test_each_of_many_queues_gets_its_own_in_order)
{
    declare_queues(engine);
    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
    publish_turns(engine, 0);
    publish_turns(engine, 1);
    check_all(engine, 0, true);
    engine_reopen(engine);
    check_all(engine, 0, false);
}

/* The places of those behind it are others than in the transaction before. */
ENGINE_TEST(test_the_others_get_theirs_when_the_first_queues_are_gone)
{
    char name[NAME_BYTES], body[NAME_BYTES];
    uint64_t count;

    declare_queues(engine);
    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
    publish_turns(engine, 0);
    for (uint32_t i = 0; i < TURNS * QUEUES; i++) {
        uint32_t queue = QUEUES - 1 - i % QUEUES;
        publish_to(engine, "", queue_name(name, queue),
                   is_transient(i / QUEUES, queue) ? TRANSIENT : PERSISTENT,
                   text(body_of(body, 1, i / QUEUES, queue)));
    }
    for (uint32_t queue = 0; queue < QUEUES / 2; queue++) {
        QS_CHECK_OK(qs_channel_queue_delete(engine->channel, text(queue_name(name, queue)), 0,
                                            &count, QS_ERROR));
        QS_CHECK(count == TURNS);
    }
    QS_CHECK_OK(qs_test_commit(engine->channel, text(""), 0));
    check_all(engine, QUEUES / 2, true);
    engine_reopen(engine);
    check_all(engine, QUEUES / 2, false);
}
