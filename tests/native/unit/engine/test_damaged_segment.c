/* Segments that cannot be read: their file is gone, or damaged where it tells of itself or of
 * the state of its messages.
 *
 * Method: a queue of several segments, one of which is damaged in each way.  In a strict store
 * whoever comes to it is told, once in each channel, and is served from what lies behind;
 * salvage passes over it and counts it.  Every other message is delivered. */
#include "engine_damage.h"
#include "qs_test_calls.h"

#define ENTRIES 64u
#define MESSAGES 1000u
#define SEGMENT 7u /* the damaged one */
#define LOST ENTRIES

/* A lazy queue of a thousand messages; one of each segment was acked, so that each has a state
 * on the disk. */
static void make_store(struct engine *engine, enum place place, bool has_settled)
{
    engine_init(engine, place);
    engine->options.segment_entries = ENTRIES;
    engine_open(engine);
    qs_test_declare_with(engine->channel, "q", QS_DURABLE, "x-queue-mode=lazy");
    publish_numbers(engine, "q", 0, MESSAGES);
    check_counts(engine, "q", MESSAGES, 0); /* who asks waits until they are in segments */
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    for (uint32_t i = 0; has_settled && i < MESSAGES; i++) {
        qs_message message;
        QS_CHECK_OK(qs_channel_get(engine->channel, text("q"), 0, &message, QS_ERROR));
        if (i % ENTRIES == 3) {
            ack(engine, message.delivery_tag, 0);
        }
        qs_message_release(&message);
    }
    engine_close(engine);
}

struct heard {
    uint32_t messages, errors;
};

/* Everything there is, in order, beside what the damaged segment held. */
static struct heard get_all(struct engine *engine, uint32_t damaged, bool has_settled)
{
    struct heard heard = {0};
    uint32_t next = 0;

    for (;;) {
        qs_message message;
        qs_status status = qs_channel_get(engine->channel, text("q"), 0, &message, QS_ERROR);
        if (status == QS_EEMPTY) {
            return heard;
        }
        if (status != QS_OK) {
            QS_CHECK(status == QS_ECORRUPT && QS_ERROR->path[0] != '\0');
            heard.errors += 1;
            continue;
        }
        while (next / ENTRIES == damaged || (has_settled && next % ENTRIES == 3)) {
            next += 1;
        }
        {
            char expected[16];
            snprintf(expected, sizeof expected, "%u", next);
            QS_CHECK(holds(message.body, expected));
        }
        next += 1;
        heard.messages += 1;
        qs_message_release(&message);
    }
}

PLACE_TEST(test_a_damaged_segment_took_everything_behind_it)
{
    for (int kind = 0; kind < KINDS; kind++) {
        for (int place_of = 0; place_of < 2; place_of++) {
            uint32_t number = place_of == 0 ? SEGMENT : 0;
            struct engine engine;
            struct heard heard;
            uint32_t lost = LOST - 1, whole = MESSAGES - 16 - lost;

            make_store(&engine, place, true);
            damage_segment(&engine, number, (enum damage_kind)kind);
            engine_open(&engine);
            check_counts(&engine, "q", MESSAGES - 16, 0);
            heard = get_all(&engine, number, true);
            QS_CHECK(heard.messages == whole && heard.errors == 1);
            check_counts(&engine, "q", 0, MESSAGES - 16);
            ack(&engine, 0, QS_MULTIPLE);
            check_counts(&engine, "q", 0, lost);
            {
                uint64_t count;
                QS_CHECK_OK(qs_channel_queue_purge(engine.channel, text("q"), 0, &count, QS_ERROR));
                QS_CHECK(count == 0);
            }
            publish(&engine, "q", "new");
            get(&engine, "q", "new");
            engine_new_channel(&engine);
            check_counts(&engine, "q", lost + 1, 0);
            QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
            engine_reopen(&engine);
            check_counts(&engine, "q", lost + 1, 0);
            {
                qs_message message;
                uint64_t count;
                QS_CHECK_STATUS(QS_ECORRUPT,
                                qs_channel_get(engine.channel, text("q"), 0, &message, QS_ERROR));
                get(&engine, "q", "new");
                QS_CHECK_OK(
                    qs_channel_queue_delete(engine.channel, text("q"), 0, &count, QS_ERROR));
            }
            engine_reopen(&engine);
            QS_CHECK(!has_queue(&engine, "q"));
            engine_stop(&engine);
        }
    }
}

/* Consumers and batches. */
PLACE_TEST(test_consumers_pass_over_a_damaged_segment)
{
    struct engine engine;
    uint32_t count = 0, errors = 0;

    make_store(&engine, place, false);
    damage_segment(&engine, SEGMENT, HEADER);
    engine_open(&engine);
    QS_CHECK_OK(qs_test_consume(engine.channel, "q", "", 0, NONE));
    for (;;) {
        qs_event event;
        qs_status status =
            qs_channel_next_event(engine.channel, QS_EVENT_DELIVERY, 0, &event, QS_ERROR);
        if (status == QS_EEMPTY) {
            break;
        }
        count += status == QS_OK;
        errors += status == QS_ECORRUPT;
        qs_message_release(&event.message);
    }
    QS_CHECK(count == MESSAGES - LOST && errors == 1);
    engine_new_channel(&engine);
    for (count = errors = 0;;) {
        struct ArrowSchema schema;
        struct ArrowArray array;
        int64_t length;
        qs_status status = qs_channel_get_batch(engine.channel, text("q"), 100, UINT64_MAX, 0, 0,
                                                &schema, &array, QS_ERROR);
        if (status != QS_OK) {
            errors += status == QS_ECORRUPT;
            continue;
        }
        length = array.length;
        array.release(&array);
        schema.release(&schema);
        count += (uint32_t)length;
        if (length == 0) {
            break;
        }
    }
    QS_CHECK(count == MESSAGES - LOST && errors == 1);
    engine_stop(&engine);
}

#define MOST 500u                                 /* messages, or as many bytes as they have */
#define MOST_BYTES 2000u                          /* of 4 bytes each */
#define NEXT_SEGMENT (MESSAGES / 2 / ENTRIES + 1) /* the first one that is whole */

/* A lazy queue that is full: of its messages those from 500 on are left. */
static void make_full_queue(struct engine *engine, enum place place, bool of_bytes)
{
    struct qs_test_fields fields = qs_test_fields_of("x-queue-mode=lazy");

    engine_init(engine, place);
    engine->options.segment_entries = ENTRIES;
    engine_open(engine);
    qs_test_put_long(&fields, of_bytes ? "x-max-length-bytes" : "x-max-length",
                     of_bytes ? MOST_BYTES : MOST);
    qs_test_declare(engine->channel, "q", QS_DURABLE, &fields);
}

static void publish_four_bytes(struct engine *engine, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        char body[16];
        snprintf(body, sizeof body, "%04u", i);
        publish(engine, "q", body);
    }
}

/* What cannot be read does not count, and the oldest of the others go. */
PLACE_TEST(test_a_queue_grew_beyond_its_limit_behind_a_damaged_segment)
{
    for (int of_bytes = 0; of_bytes < 2; of_bytes++) {
        struct engine engine;
        uint32_t published = MESSAGES;

        make_full_queue(&engine, place, of_bytes != 0);
        publish_four_bytes(&engine, 0, MESSAGES);
        check_counts(&engine, "q", MOST, 0);
        engine_close(&engine);
        damage_segment(&engine, NEXT_SEGMENT, FILE_GONE);
        engine_open(&engine);
        check_counts(&engine, "q", MOST, 0);
        for (uint32_t round = 0; round < 4; round++, published += 100) {
            publish_four_bytes(&engine, published, published + 100);
        }
        check_counts(&engine, "q", MOST + LOST, 0);
        {
            QS_CHECK_STATUS(QS_ECORRUPT, qs_test_get(engine.channel, "q", 0));
        }
        for (uint32_t i = published - MOST; i < published; i++) {
            char body[16];
            snprintf(body, sizeof body, "%04u", i);
            get(&engine, "q", body);
        }
        check_counts(&engine, "q", 0, MOST + LOST);
        engine_stop(&engine);
    }
}

static void open_salvaged(struct engine *engine)
{
    engine->options.recovery = QS_RECOVERY_SALVAGE;
    engine_open(engine);
}

/* Any segment: the first, one in between, and the last, to which messages are added. */
PLACE_TEST(test_salvage_stopped_where_a_segment_was_damaged)
{
    static const uint32_t numbers[] = {0, SEGMENT, MESSAGES / ENTRIES};

    for (int kind = 0; kind < KINDS; kind++) {
        for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
            struct engine engine;
            struct heard heard;
            uint32_t held = numbers[i] == MESSAGES / ENTRIES ? MESSAGES % ENTRIES : ENTRIES;

            make_store(&engine, place, true);
            damage_segment(&engine, numbers[i], (enum damage_kind)kind);
            open_salvaged(&engine);
            QS_CHECK(stats_of(&engine).lost_segments == 1);
            QS_CHECK(stats_of(&engine).lost_messages == held - 1);
            check_counts(&engine, "q", MESSAGES - 16 - (held - 1), 0);
            heard = get_all(&engine, numbers[i], true);
            QS_CHECK(heard.messages == MESSAGES - 16 - (held - 1) && heard.errors == 0);
            publish(&engine, "q", "new");
            get(&engine, "q", "new");
            engine_reopen(&engine); /* it forgets nothing */
            QS_CHECK(stats_of(&engine).lost_segments == 1);
            check_counts(&engine, "q", MESSAGES - 16 - (held - 1) + 1, 0);
            engine_stop(&engine);
        }
    }
}

/* The first journal file begins with the declarations. */
PLACE_TEST(test_salvage_lost_the_messages_of_a_queue_whose_declaration_was_damaged)
{
    struct engine engine;
    qs_queue_status status;
    qs_slice recovered;
    char name[32] = "";
    uint32_t found = 0;

    engine_init(&engine, place);
    engine.options.checkpoint_bytes = 0;
    engine_open(&engine);
    declare(&engine, "whole", QS_DURABLE);
    declare(&engine, "lost name", QS_DURABLE);
    declare_exchange(&engine, "exchange", "fanout", QS_DURABLE);
    bind_queue(&engine, "lost name", "exchange", "");
    for (uint32_t i = 0; i < 200; i++) {
        publish_number(&engine, i % 2 == 0 ? "lost name" : "whole", i);
        QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
    }
    get(&engine, "lost name", "0");
    ack(&engine, 1, 0);
    engine_close(&engine);
    damage_first(&engine, "journal", "0000000001.jnl", "lost name", 9, 1);
    engine.options.recovery = QS_RECOVERY_STRICT;
    QS_CHECK_STATUS(QS_ECORRUPT, qs_store_open(&engine.store, engine.path, &engine.options,
                                               engine.env, QS_ERROR));
    open_salvaged(&engine);
    for (uint64_t id = 1; id < 10 && found == 0; id++) {
        snprintf(name, sizeof name, "recovered.%" PRIu64, id);
        found = has_queue(&engine, name);
    }
    QS_CHECK(found == 1 && !has_queue(&engine, "lost name"));
    QS_CHECK(stats_of(&engine).recovered_queues == 1 && stats_of(&engine).lost_ranges > 0);
    recovered = text(name);
    QS_CHECK_OK(qs_store_queue_status(engine.store, recovered, &status, QS_ERROR));
    QS_CHECK(status.durable && status.messages_ready == 99);
    for (uint32_t i = 2; i < 200; i += 2) {
        get_number(&engine, name, i);
    }
    check_counts(&engine, "whole", 100, 0);
    ack(&engine, 50, QS_MULTIPLE);
    engine_reopen(&engine);
    check_counts(&engine, name, 49, 0);
    engine_stop(&engine);
}
