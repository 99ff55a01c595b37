/* Batches of messages, made by hand: routes, delivery modes and sizes by row, and refusals that
 * publish nothing. */
#include "arrow_table.h"
#include "engine_fixture.h"

static const char *const three[] = {"one", "two", "three"};

static qs_receipt publish_table(struct engine *engine, struct table *table, const char *exchange,
                                const char *key, uint32_t flags)
{
    qs_receipt receipt;

    QS_CHECK_OK(table_publish(engine->channel, table, exchange, key, flags, &receipt, QS_ERROR));
    QS_CHECK(receipt.count == (uint64_t)table->array.length);
    return receipt;
}

ENGINE_TEST(test_rows_arrive_in_order_and_persistent)
{
    struct table table;
    qs_receipt receipt;
    qs_message message;

    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "before");
    table_init(&table, 3);
    table_add_strings(&table, "body", "z", three);
    receipt = publish_table(engine, &table, "", "q", 0);
    QS_CHECK(receipt.first_number == 0 && receipt.lsn > 0);
    publish(engine, "q", "after");
    engine_reopen(engine);
    get(engine, "q", "before");
    QS_CHECK_OK(qs_channel_get(engine->channel, text("q"), 0, &message, QS_ERROR));
    QS_CHECK(holds(message.body, "one") && holds(message.routing_key, "q") &&
             message.properties.bytes == PERSISTENT.bytes);
    qs_message_release(&message);
    get(engine, "q", "two");
    get(engine, "q", "three");
    get(engine, "q", "after");
    get_nothing(engine, "q");
    table_fini(&table);
}

ENGINE_TEST(test_batches_are_numbered_and_confirmed_as_one)
{
    struct table table, empty;
    qs_receipt receipt;
    qs_event event;
    bool nacked;

    declare(engine, "q", QS_DURABLE);
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    table_init(&table, 3);
    table_add_strings(&table, "body", "u", three);
    table_init(&empty, 0);
    table_add_strings(&empty, "body", "u", three);
    receipt = publish_table(engine, &table, "", "q", 0);
    QS_CHECK(receipt.first_number == 1 && receipt.last_number == 3);
    receipt = publish_table(engine, &empty, "", "q", 0);
    QS_CHECK(receipt.first_number == 0 && receipt.last_number == 0 && receipt.lsn == 0);
    receipt = publish_table(engine, &table, "", "q", 0);
    QS_CHECK(receipt.first_number == 4 && receipt.last_number == 6);
    QS_CHECK_OK(qs_channel_wait_confirms(engine->channel, QS_FOREVER, &nacked, QS_ERROR));
    QS_CHECK(!nacked);
    event = expect_event(engine, QS_EVENT_ACK, QS_EVENT_ACK);
    QS_CHECK(event.multiple && (event.publish_number == 3 || event.publish_number == 6));
    table_fini(&table);
    table_fini(&empty);
}

ENGINE_TEST(test_rows_find_their_queues_by_key)
{
    static const char *const bodies[] = {"1", "2", "3", "4", "5", "6"};
    static const char *const keys[] = {"a", "b", NULL, "a", "nobody", "b"};
    struct table table;

    declare(engine, "a", QS_DURABLE);
    declare(engine, "b", QS_DURABLE);
    declare(engine, "c", 0);
    table_init(&table, 6);
    table_add_strings(&table, "body", "z", bodies);
    table_add_strings(&table, "routing_key", "u", keys);
    publish_table(engine, &table, "", "c", 0);
    check_counts(engine, "a", 2, 0);
    check_counts(engine, "b", 2, 0);
    get(engine, "c", "3");
    engine_reopen(engine);
    get(engine, "a", "1");
    get(engine, "a", "4");
    get(engine, "b", "2");
    get(engine, "b", "6");
    table_fini(&table);
}

ENGINE_TEST(test_exchange_column_leads_to_fanout_and_topic)
{
    static const char *const bodies[] = {"1", "2", "3", "4"};
    static const char *const exchanges[] = {"amq.fanout", "amq.topic", "", NULL};
    static const char *const keys[] = {"x", "a.b", "a", "a.c"};
    struct table table;

    declare(engine, "a", QS_DURABLE);
    declare(engine, "b", QS_DURABLE);
    bind_queue(engine, "a", "amq.fanout", "");
    bind_queue(engine, "b", "amq.fanout", "");
    bind_queue(engine, "a", "amq.topic", "a.*");
    bind_queue(engine, "b", "amq.topic", "#.b");
    table_init(&table, 4);
    table_add_strings(&table, "exchange", "u", exchanges);
    table_add_strings(&table, "body", "z", bodies);
    table_add_strings(&table, "routing_key", "u", keys);
    publish_table(engine, &table, "amq.topic", "unused", 0);
    for (int turn = 0; turn < 2; turn++) {
        struct received received;

        QS_CHECK_OK(qs_channel_get_batch(engine->channel, text("a"), 10, UINT64_MAX, 0, 0,
                                         &received.schema, &received.array, QS_ERROR));
        QS_CHECK(received.array.length == 4);
        QS_CHECK(holds(received_name(&received, "exchange", 0), "amq.fanout") &&
                 holds(received_name(&received, "exchange", 2), "") &&
                 holds(received_name(&received, "routing_key", 3), "a.c"));
        QS_CHECK(holds(received_body(&received, 2), "3"));
        received_release(&received);
        engine_reopen(engine);
    }
    get(engine, "b", "1");
    get(engine, "b", "2");
    get_nothing(engine, "b");
    table_fini(&table);
}

/* One record for ten queues: the bodies are journalled once. */
ENGINE_TEST(test_fanout_of_a_batch_journals_its_bodies_once)
{
    const char *bodies[20];
    QS_TEST_FREED char *body = make_body(1000, 0);
    struct table table;
    uint64_t before;
    char name[16];

    for (int i = 0; i < 10; i++) {
        snprintf(name, sizeof name, "q%d", i);
        declare(engine, name, QS_DURABLE);
        bind_queue(engine, name, "amq.fanout", "");
    }
    for (int row = 0; row < 20; row++) {
        bodies[row] = body;
    }
    table_init(&table, 20);
    table_add_strings(&table, "body", "z", bodies);
    before = stats_of(engine).appended_lsn;
    publish_table(engine, &table, "amq.fanout", "", 0);
    QS_CHECK(stats_of(engine).appended_lsn - before < 21000);
    QS_CHECK(stats_of(engine).messages_routed == 200);
    engine_reopen(engine);
    for (int i = 0; i < 10; i++) {
        snprintf(name, sizeof name, "q%d", i);
        check_counts(engine, name, 20, 0);
    }
    table_fini(&table);
}

ENGINE_TEST(test_delivery_modes_by_row)
{
    static const char *const bodies[] = {"p1", "t1", "p2", "t2", "t3", "p3"};
    static const uint8_t modes[] = {2, 1, 2, 1, 1, 2};
    static const uint8_t transient[] = {1, 1, 1, 1, 1, 1};
    struct table table;

    declare(engine, "q", QS_DURABLE);
    declare(engine, "lost", 0);
    bind_queue(engine, "q", "amq.fanout", "");
    bind_queue(engine, "lost", "amq.fanout", "");
    table_init(&table, 6);
    table_add_strings(&table, "body", "z", bodies);
    table_add_bytes(&table, "delivery_mode", modes);
    QS_CHECK(publish_table(engine, &table, "amq.fanout", "", 0).lsn > 0);
    check_counts(engine, "q", 6, 0);
    check_counts(engine, "lost", 6, 0);
    get(engine, "lost", "p1");
    engine_reopen(engine);
    get(engine, "q", "p1");
    get(engine, "q", "p2");
    get(engine, "q", "p3");
    get_nothing(engine, "q");
    table_fini(&table);

    table_init(&table, 6);
    table_add_strings(&table, "body", "z", bodies);
    table_add_bytes(&table, "delivery_mode", transient);
    QS_CHECK(publish_table(engine, &table, "", "q", 0).lsn == 0);
    check_counts(engine, "q", 6, 3);
    table_fini(&table);
}

ENGINE_TEST(test_large_bodies_among_small_ones)
{
    static const uint8_t modes[] = {2, 2, 1, 1, 2, 2, 2, 2};
    const char *bodies[8], *keys[8];
    struct table table;
    struct received received;
    uint64_t stored;

    declare(engine, "q", QS_DURABLE);
    declare(engine, "transient", 0);
    for (uint32_t row = 0; row < 8; row++) {
        bodies[row] = make_body(row % 2 == 0 ? 20000 + row : 10 + row, row);
        keys[row] = row == 4 ? "transient" : "q";
    }
    table_init(&table, 8);
    table_add_strings(&table, "body", "z", bodies);
    table_add_strings(&table, "routing_key", "u", keys);
    table_add_bytes(&table, "delivery_mode", modes);
    publish_table(engine, &table, "", "", 0);
    stored =
        stats_of(engine).bytes_stored; /* rows 0 and 6: 2 is transient and 4 in a transient queue */
    QS_CHECK(stored > 40000 && stored < 41000);
    for (int turn = 0; turn < 2; turn++) {
        static const uint32_t all[] = {0, 1, 2, 3, 5, 6, 7};
        static const uint32_t kept[] = {0, 1, 5, 6, 7};
        const uint32_t *rows = turn == 0 ? all : kept;
        int64_t count = turn == 0 ? 7 : 5;

        QS_CHECK_OK(qs_channel_get_batch(engine->channel, text("q"), 10, UINT64_MAX, 0, 0,
                                         &received.schema, &received.array, QS_ERROR));
        QS_CHECK(received.array.length == count);
        for (int64_t row = 0; row < count; row++) {
            QS_CHECK(holds(received_body(&received, row), bodies[rows[row]]));
        }
        received_release(&received);
        if (turn == 0) {
            get(engine, "transient", bodies[4]);
        }
        engine_reopen(engine);
    }
    table_fini(&table);
    for (int row = 0; row < 8; row++) {
        free((void *)(uintptr_t)bodies[row]);
    }
}

/* More than a record, a block and a file take, in every size of row. */
ENGINE_TEST(test_big_batches_are_divided)
{
    enum { ROWS = 3000 };
    static const char *bodies[ROWS];
    struct table table;
    int64_t got = 0;

    engine_close(engine);
    engine->options.journal_file_bytes = 64u << 10;
    engine_open(engine);
    declare(engine, "q", QS_DURABLE);
    for (uint32_t row = 0; row < ROWS; row++) {
        bodies[row] = make_body(row % 700, row);
    }
    table_init(&table, ROWS);
    table_add_strings(&table, "body", "z", bodies);
    publish_table(engine, &table, "", "q", 0);
    engine_reopen(engine);
    while (got < ROWS) {
        struct received received;

        QS_CHECK_OK(qs_channel_get_batch(engine->channel, text("q"), 1000, UINT64_MAX, 0, 0,
                                         &received.schema, &received.array, QS_ERROR));
        QS_CHECK(received.array.length > 0);
        for (int64_t row = 0; row < received.array.length; row++) {
            QS_CHECK(holds(received_body(&received, row), bodies[got + row]));
        }
        got += received.array.length;
        received_release(&received);
    }
    QS_CHECK(got == ROWS);
    table_fini(&table);
    for (int row = 0; row < ROWS; row++) {
        free((void *)(uintptr_t)bodies[row]);
    }
}

ENGINE_TEST(test_mandatory_rows_come_back)
{
    static const char *const bodies[] = {"there", "back 1", "there", "back 2"};
    static const char *const keys[] = {"q", "nobody", "q", "nobody"};
    struct table table;
    qs_event event;

    declare(engine, "q", QS_DURABLE);
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    table_init(&table, 4);
    table_add_strings(&table, "body", "z", bodies);
    table_add_strings(&table, "routing_key", "u", keys);
    publish_table(engine, &table, "", "", QS_MANDATORY);
    for (int i = 1; i <= 2; i++) {
        event = expect_event(engine, QS_EVENT_RETURN | QS_EVENT_ACK, QS_EVENT_RETURN);
        QS_CHECK(holds(event.message.body, bodies[2 * i - 1]) &&
                 holds(event.message.routing_key, "nobody"));
        qs_message_release(&event.message);
    }
    event = expect_event(engine, QS_EVENT_RETURN | QS_EVENT_ACK, QS_EVENT_ACK);
    QS_CHECK(event.publish_number == 4 && event.multiple);
    check_counts(engine, "q", 2, 0);
    table_fini(&table);
}

/* Nobody reads returns: in confirm mode the first is kept, and counted with all the others. */
ENGINE_TEST(test_ignored_returns_are_counted_and_the_first_is_kept)
{
    static const char *const bodies[] = {"there", "back 1", "there", "back 2"};
    static const char *const keys[] = {"q", "nobody", "q", "nobody"};
    struct table table;
    qs_receipt receipt;
    qs_event event;
    uint64_t count;

    declare(engine, "q", QS_DURABLE);
    QS_CHECK_OK(qs_channel_ignore_returns(engine->channel, true, QS_ERROR));
    table_init(&table, 4);
    table_add_strings(&table, "body", "z", bodies);
    table_add_strings(&table, "routing_key", "u", keys);
    receipt = publish_table(engine, &table, "", "", QS_MANDATORY);
    QS_CHECK(receipt.unrouted_count == 2 && receipt.refused_count == 0);
    QS_CHECK_OK(qs_channel_take_ignored(engine->channel, &event, &count, QS_ERROR));
    QS_CHECK(count == 0 && event.kind == 0);
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    for (int i = 0; i < 2; i++) {
        publish_table(engine, &table, "", "", QS_MANDATORY);
        QS_CHECK(publish_table(engine, &table, "", "nobody", 0).unrouted_count == 2);
        QS_CHECK_OK(qs_channel_publish(engine->channel, text(""), text("nobody"), text(""),
                                       text("single"), QS_MANDATORY, 0, &receipt, QS_ERROR));
        QS_CHECK(receipt.unrouted_count == 1);
        QS_CHECK_OK(qs_channel_take_ignored(engine->channel, &event, &count, QS_ERROR));
        QS_CHECK(count == 3 && event.kind == QS_EVENT_RETURN);
        QS_CHECK(holds(event.message.body, "back 1"));
        qs_message_release(&event.message);
    }
    table_fini(&table);
}

ENGINE_TEST(test_receipts_name_the_rows_that_were_refused)
{
    const char *bodies[200];
    struct table table;
    qs_receipt receipt;

    qs_test_declare_with(engine->channel, "full", QS_DURABLE,
                         "x-max-length=150 x-overflow=reject-publish");
    for (int row = 0; row < 200; row++) {
        bodies[row] = "x";
    }
    table_init(&table, 200);
    table_add_strings(&table, "body", "z", bodies);
    receipt = publish_table(engine, &table, "", "full", 0);
    QS_CHECK(receipt.refused_count == 50 && receipt.count == 200);
    QS_CHECK(strcmp(receipt.refused_queue, "full") == 0);
    for (uint64_t i = 0; i < QS_RECEIPT_ROWS; i++) {
        QS_CHECK(receipt.refused_rows[i] == 150 + i);
    }
    receipt = publish_table(engine, &table, "", "full", 0);
    QS_CHECK(receipt.refused_count == 200 && receipt.refused_rows[7] == 7);
    table_fini(&table);
}

/* Whatever is wrong with whichever row: no other row is published. */
ENGINE_TEST(test_a_refused_batch_publishes_nothing)
{
    static const char *const with_null[] = {"one", "two", NULL};
    static const char *const missing[] = {"amq.fanout", "amq.fanout", "no such exchange"};
    static const char *const internal[] = {"amq.fanout", "internal", "amq.fanout"};
    static const uint8_t modes[] = {2, 1, 3};
    QS_TEST_FREED char *long_name = make_body(300, 0), *large = make_body(2000, 0);
    const char *long_keys[3], *too_large[3] = {"one", "two", large};
    struct table tables[6];
    qs_receipt receipt;

    long_keys[0] = long_keys[1] = "q";
    long_keys[2] = long_name;
    engine_close(engine);
    engine->options.body_bytes_max = 1999;
    engine_open(engine);
    declare(engine, "q", QS_DURABLE);
    bind_queue(engine, "q", "amq.fanout", "");
    declare_exchange(engine, "internal", "fanout", QS_INTERNAL);
    for (int i = 0; i < 6; i++) {
        table_init(&tables[i], 3);
        table_add_strings(&tables[i], "body", "z", i == 0 ? with_null : i == 5 ? too_large : three);
    }
    table_add_strings(&tables[1], "exchange", "u", missing);
    table_add_strings(&tables[2], "exchange", "u", internal);
    table_add_strings(&tables[3], "routing_key", "u", long_keys);
    table_add_bytes(&tables[4], "delivery_mode", modes);
    for (int i = 0; i < 6; i++) {
        static const qs_status expected[] = {QS_EINVAL, QS_NOT_FOUND, QS_ACCESS_REFUSED,
                                             QS_EINVAL, QS_EINVAL,    QS_PRECONDITION_FAILED};

        QS_CHECK_STATUS(expected[i], table_publish(engine->channel, &tables[i], "amq.fanout", "q",
                                                   0, &receipt, QS_ERROR));
        QS_CHECK(receipt.count == 0 && receipt.lsn == 0);
        check_counts(engine, "q", 0, 0);
        if (expected[i] >= 300) {
            engine_new_channel(engine);
        }
        table_fini(&tables[i]);
    }
    QS_CHECK(stats_of(engine).messages_published == 0);
}

ENGINE_TEST(test_several_record_batches_are_one_publish)
{
    static const char *const more[] = {"four", "five"};
    struct table first, second, empty;
    const struct ArrowArray *arrays[3];
    qs_batch batch = {.arrays = arrays, .array_count = 3, .body_column = "body"};
    qs_receipt receipt;

    declare(engine, "q", QS_DURABLE);
    table_init(&first, 3);
    table_add_strings(&first, "body", "z", three);
    table_init(&empty, 0);
    table_add_strings(&empty, "body", "z", three);
    table_init(&second, 2);
    table_add_strings(&second, "body", "z", more);
    batch.schema = &first.schema;
    batch.routing_key = text("q");
    arrays[0] = &first.array;
    arrays[1] = &empty.array;
    arrays[2] = &second.array;
    QS_CHECK_OK(qs_channel_publish_batch(engine->channel, &batch, &receipt, QS_ERROR));
    QS_CHECK(receipt.count == 5);
    for (int i = 0; i < 3; i++) {
        get(engine, "q", three[i]);
    }
    get(engine, "q", "four");
    get(engine, "q", "five");
    table_fini(&first);
    table_fini(&second);
    table_fini(&empty);
}

/* Thousands of keys, each its own queue or none. */
ENGINE_TEST(test_many_routes_in_one_batch)
{
    enum { ROWS = 1200, QUEUES = 40 };
    static char names[ROWS][16];
    static const char *keys[ROWS], *bodies[ROWS];
    struct table table;

    for (int row = 0; row < ROWS; row++) {
        snprintf(names[row], sizeof names[row], "key %d", row % 600);
        keys[row] = names[row];
        bodies[row] = names[row];
    }
    for (int i = 0; i < QUEUES; i++) {
        declare(engine, names[i * 15], QS_DURABLE);
    }
    table_init(&table, ROWS);
    table_add_strings(&table, "body", "z", bodies);
    table_add_strings(&table, "routing_key", "u", keys);
    publish_table(engine, &table, "", "", 0);
    engine_reopen(engine);
    for (int i = 0; i < QUEUES; i++) {
        get(engine, names[i * 15], names[i * 15]);
        get(engine, names[i * 15], names[i * 15]);
        get_nothing(engine, names[i * 15]);
    }
    table_fini(&table);
}
