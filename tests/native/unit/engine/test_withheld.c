/* Messages that were taken and never reached the caller: their bodies are damaged, or memory ran
 * out on the way.
 *
 * Method: whoever settles all that was handed out, in each way that there is, must not settle
 * those.  They stay unacked, and are ready again, as if nobody had taken them, when the channel
 * is closed.  / */
#include "arrow_table.h"
#include "engine_damage.h"
#include "qs_test_alloc.h"
#include "qs_test_calls.h"

#define LARGE 20000u
#define MESSAGES 5u
#define BAD 2u

/* Five large bodies, of which one is damaged on the disk. */
static void fill_with_a_damaged_one(struct engine *engine, const char *queue)
{
    declare(engine, queue, QS_DURABLE);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        QS_TEST_FREED char *body = make_body(LARGE, i);
        body[0] = (char)('0' + i);
        publish(engine, queue, body);
    }
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    {
        QS_TEST_FREED char *body = make_body(LARGE, BAD);
        body[0] = (char)('0' + BAD);
        damage(engine, "messages", ".msg", body, 100);
    }
}

static uint64_t last_tag; /* that was handed out */

static uint32_t number_of(const qs_message *message)
{
    return (uint32_t)(((const char *)message->body.data)[0] - '0');
}

/* Gets them one by one; returns how many were handed out. */
static uint32_t get_all(struct engine *engine, const char *queue)
{
    uint32_t count = 0;
    qs_message message;
    qs_status status;

    while ((status = qs_channel_get(engine->channel, text(queue), 0, &message, QS_ERROR)) !=
           QS_EEMPTY) {
        if (status == QS_OK) {
            QS_CHECK(number_of(&message) != BAD && !message.redelivered);
            last_tag = message.delivery_tag;
            count += 1;
        } else {
            QS_CHECK(status == QS_ECORRUPT && strstr(QS_ERROR->path, "messages/") != NULL);
        }
        qs_message_release(&message);
    }
    return count;
}

/* By a consumer that may have one message more than is handed out: the damaged one takes none of
 * its room. */
static uint32_t consume_all(struct engine *engine, const char *queue)
{
    uint32_t count = 0;
    qs_event event;
    qs_status status;

    QS_CHECK_OK(qs_channel_qos(engine->channel, MESSAGES - 1, 0, 0, QS_ERROR));
    QS_CHECK_OK(qs_test_consume(engine->channel, queue, "", 0, NONE));
    while ((status = qs_channel_next_event(engine->channel, QS_EVENT_DELIVERY, 0, &event,
                                           QS_ERROR)) != QS_EEMPTY) {
        QS_CHECK(status == QS_OK || status == QS_ECORRUPT);
        count += status == QS_OK;
        last_tag = status == QS_OK ? event.message.delivery_tag : last_tag;
        qs_message_release(&event.message);
    }
    return count;
}

static uint32_t get_batches(struct engine *engine, const char *queue)
{
    uint32_t count = 0;

    for (;;) {
        struct ArrowSchema schema;
        struct ArrowArray array;
        int64_t length;
        qs_status status = qs_channel_get_batch(engine->channel, text(queue), 100, UINT64_MAX, 0, 0,
                                                &schema, &array, QS_ERROR);
        QS_CHECK(status == QS_OK || status == QS_ECORRUPT);
        if (status != QS_OK) {
            continue;
        }
        length = array.length;
        if (length > 0) {
            last_tag = ((const uint64_t *)array.children[0]->buffers[1])[length - 1];
        }
        count += (uint32_t)length;
        array.release(&array);
        schema.release(&schema);
        if (length == 0) {
            return count;
        }
    }
}

enum settling { ACK_ALL, ACK_UP_TO, NACK_ALL, RANGE, TX, SETTLINGS };

static void settle_all(struct engine *engine, enum settling how)
{
    switch (how) {
    case ACK_ALL:
        ack(engine, 0, QS_MULTIPLE);
        break;
    case ACK_UP_TO:
        ack(engine, last_tag, QS_MULTIPLE);
        break;
    case NACK_ALL:
        QS_CHECK_OK(qs_channel_nack(engine->channel, 0, QS_MULTIPLE, 0, QS_ERROR));
        break;
    case RANGE:
        QS_CHECK_OK(qs_channel_settle_range(engine->channel, 1, UINT64_MAX, 0, 0, QS_ERROR));
        break;
    case TX:
        QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
        ack(engine, 0, QS_MULTIPLE);
        QS_CHECK_OK(qs_test_commit(engine->channel, NONE, 0));
        break;
    case SETTLINGS:
        break;
    }
}

typedef uint32_t taking(struct engine *engine, const char *queue);

ENGINE_TEST(test_multiple_ack_settled_a_message_that_raised)
{
    static taking *const ways[] = {get_all, consume_all, get_batches};
    char queue[16];

    for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++) {
        for (int how = 0; how < SETTLINGS; how++) {
            snprintf(queue, sizeof queue, "q%zu.%d", way, how);
            fill_with_a_damaged_one(engine, queue);
            QS_CHECK(ways[way](engine, queue) == MESSAGES - 1);
            settle_all(engine, (enum settling)how);
            check_counts(engine, queue, 0, 1);
            engine_new_channel(engine);
            check_counts(engine, queue, 1, 0);
            QS_CHECK_STATUS(QS_ECORRUPT, qs_test_get(engine->channel, queue, 0));
            engine_reopen(engine);
            check_counts(engine, queue, 1, 0);
            engine_stop(engine); /* damage finds the body in the first file */
            engine_start(engine, engine->memory != NULL ? IN_MEMORY : ON_DISK);
        }
    }
}

/* RabbitMQ recovers all that a channel has unacked. */
ENGINE_TEST(test_recover_brings_back_what_was_withheld)
{
    fill_with_a_damaged_one(engine, "q");
    QS_CHECK(get_all(engine, "q") == MESSAGES - 1);
    QS_CHECK_OK(qs_channel_recover(engine->channel, QS_REQUEUE | QS_WITHHELD, QS_ERROR));
    check_counts(engine, "q", 1, MESSAGES - 1);
    QS_CHECK_STATUS(QS_ECORRUPT, qs_test_get(engine->channel, "q", 0));
    QS_CHECK_OK(qs_channel_recover(engine->channel, QS_REQUEUE, QS_ERROR));
    check_counts(engine, "q", MESSAGES, 0);
}

/* What could not be handed out was not delivered: it is neither flagged, nor counted, nor dropped
 * for having been delivered too often. */
IN_MEMORY_TEST(test_failed_deliveries_used_up_the_delivery_limit)
{
    struct qs_test_alloc memory;
    QS_TEST_FREED char *body = make_body(LARGE, 7);

    qs_test_declare_with(engine->channel, "q", QS_DURABLE, "x-delivery-limit=1");
    publish(engine, "q", body);
    qs_channel_close(engine->channel);
    QS_CHECK_OK(qs_store_close(engine->store, QS_ERROR));
    qs_test_alloc_install(&memory); /* with what it allocates, a store begins and ends */
    engine_open(engine);
    for (int i = 0; i < 6; i++) {
        struct ArrowSchema schema;
        struct ArrowArray array;
        qs_message message;
        qs_status status = QS_OK;
        for (uint64_t n = 1; i % 2 == 0 && status != QS_ENOMEM && n < 40; n++) {
            qs_test_alloc_arm(&memory, n, true);
            status = qs_channel_get(engine->channel, text("q"), 0, &message, QS_ERROR);
            qs_test_alloc_arm(&memory, 0, false);
            if (status == QS_OK) {
                qs_message_release(&message);
            }
        }
        for (uint64_t n = 1; i % 2 == 1 && status != QS_ENOMEM && n < 40; n++) {
            qs_test_alloc_arm(&memory, n, true);
            status = qs_channel_get_batch(engine->channel, text("q"), 10, UINT64_MAX, 0, 0, &schema,
                                          &array, QS_ERROR);
            qs_test_alloc_arm(&memory, 0, false);
        }
        QS_CHECK(status == QS_ENOMEM);
        engine_new_channel(engine);
    }
    check_counts(engine, "q", 1, 0);
    {
        qs_message message;
        QS_CHECK_OK(qs_channel_get(engine->channel, text("q"), 0, &message, QS_ERROR));
        QS_CHECK(!message.redelivered && message.delivery_count == 0);
        qs_message_release(&message);
    }
    qs_channel_close(engine->channel);
    QS_CHECK_OK(qs_store_close(engine->store, QS_ERROR));
    qs_allocator_set(NULL);
    engine_open(engine);
}

/* Each allocation of each way to take a message fails once; what was handed out is acked, all the
 * rest is there. */
IN_MEMORY_TEST(test_memory_that_ran_out_on_the_way_cost_messages)
{
    struct qs_test_alloc memory;
    uint64_t failures = 0;

    for (int way = 0; way < 3; way++) {
        for (uint64_t n = 1;; n++) {
            uint32_t handed_out = 0;
            qs_queue_status queue;
            bool has_failed;

            declare(engine, "q", QS_DURABLE);
            for (uint32_t i = 0; i < 3; i++) {
                QS_TEST_FREED char *body = make_body(i == 1 ? LARGE : 100, i);
                publish(engine, "q", body);
            }
            engine_close(engine);
            qs_test_alloc_install(&memory);
            engine_open(engine);
            if (way == 1) {
                QS_CHECK_OK(qs_test_consume(engine->channel, "q", "", 0, NONE));
            }
            qs_test_alloc_arm(&memory, n, false);
            for (int i = 0; i < 4; i++) {
                struct ArrowSchema schema;
                struct ArrowArray array;
                qs_message message;
                qs_event event;
                if (way == 0 &&
                    qs_channel_get(engine->channel, text("q"), 0, &message, QS_ERROR) == QS_OK) {
                    handed_out += 1;
                    qs_message_release(&message);
                } else if (way == 1 && qs_channel_next_event(engine->channel, QS_EVENT_DELIVERY, 0,
                                                             &event, QS_ERROR) == QS_OK) {
                    handed_out += 1;
                    qs_message_release(&event.message);
                } else if (way == 2 &&
                           qs_channel_get_batch(engine->channel, text("q"), 10, UINT64_MAX, 0, 0,
                                                &schema, &array, QS_ERROR) == QS_OK) {
                    handed_out += (uint32_t)array.length;
                    array.release(&array);
                    schema.release(&schema);
                }
            }
            has_failed = memory.has_failed;
            qs_test_alloc_arm(&memory, 0, false);
            failures += has_failed;
            ack(engine, 0, QS_MULTIPLE);
            engine_new_channel(engine);
            QS_CHECK_OK(qs_store_queue_status(engine->store, text("q"), &queue, QS_ERROR));
            QS_CHECK(queue.messages_ready == 3 - handed_out && queue.messages_unacked == 0);
            engine_close(engine);
            qs_allocator_set(NULL);
            engine_open(engine);
            check_counts(engine, "q", 3 - handed_out, 0);
            QS_CHECK_OK(qs_test_purge(engine->channel, "q"));
            if (!has_failed) {
                break;
            }
        }
    }
    QS_CHECK(failures >= 6);
}

/* What a caller above cannot hand out, it withholds. */
ENGINE_TEST(test_a_withheld_tag_is_unknown_to_its_verbs)
{
    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "1");
    publish(engine, "q", "2");
    publish(engine, "q", "3");
    get(engine, "q", "1");
    get(engine, "q", "2");
    get(engine, "q", "3");
    QS_CHECK_OK(qs_channel_withhold(engine->channel, 2, 2, QS_ERROR));
    ack(engine, 3, QS_MULTIPLE);
    check_counts(engine, "q", 0, 1);
    CHECK_CHANNEL_ERROR(engine, QS_PRECONDITION_FAILED,
                        qs_channel_ack(engine->channel, 2, 0, QS_ERROR));
    QS_CHECK(!get(engine, "q", "2").redelivered);
    QS_CHECK_OK(qs_channel_withhold(engine->channel, 1, 1, QS_ERROR));
    {
        uint64_t count;
        QS_CHECK_OK(qs_channel_queue_delete(engine->channel, text("q"), 0, &count, QS_ERROR));
        QS_CHECK(count == 0);
    }
    engine_new_channel(engine); /* it goes with its queue */
    QS_CHECK(!has_queue(engine, "q"));
}
