/* Browsing queues, and stores that are opened to be read: nothing is written and nothing is kept,
 * whatever fails. */
#include "qstore/alloc.h"

#include "../engine/arrow_table.h"
#include "../engine/engine_fixture.h"
#include "qs_test_alloc.h"
#include "qs_test_sweep.h"

#define MESSAGES 300
#define LARGE 9000

static bool is_large(uint64_t number)
{
    return number % 50 == 7;
}

/* Small bodies and large ones, of which one is out; a checkpoint puts some of them on the disk. */
static void fill(struct engine *engine)
{
    char *body;

    declare(engine, "q", QS_DURABLE);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        size_t bytes = is_large(i) ? LARGE : 200;
        body = make_body(bytes, i);
        QS_CHECK_OK(
            qs_test_publish(engine->channel, "", "q", PERSISTENT, (qs_slice){body, bytes}, 0));
        free(body);
        if (i == MESSAGES / 2) {
            QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
        }
    }
    body = make_body(200, 0);
    get(engine, "q", body);
    free(body);
}

/* From the begin to the end, in small batches.  What came before a failure is right. */
static qs_status browse_all(qs_store *store, uint64_t *rows_out)
{
    uint64_t position = 0;

    *rows_out = 0;
    for (;;) {
        struct received received;
        qs_status status = qs_store_browse(store, text("q"), &position, 70, 20000, &received.schema,
                                           &received.array, QS_ERROR);
        if (status != QS_OK) {
            return status;
        }
        QS_CHECK(received.array.length > 0);
        for (int64_t row = 0; row < received.array.length; row++, (*rows_out)++) {
            size_t bytes = is_large(*rows_out) ? LARGE : 200;
            QS_TEST_FREED char *body = make_body(bytes, (uint32_t)*rows_out);
            qs_slice got = received_body(&received, row);
            QS_CHECK(got.bytes == bytes && memcmp(got.data, body, bytes) == 0);
        }
        received_release(&received);
    }
}

static void check_all(qs_store *store)
{
    uint64_t rows;

    QS_CHECK_STATUS(QS_EEMPTY, browse_all(store, &rows));
    QS_CHECK(rows == MESSAGES);
}

ENGINE_TEST(test_browse_leaves_every_message_where_it_is)
{
    fill(engine);
    check_all(engine->store);
    check_all(engine->store);
    check_counts(engine, "q", MESSAGES - 1, 1);
}

ENGINE_TEST(test_peek_tells_of_each_message_what_it_is)
{
    uint64_t position = 0, count = 0;
    qs_message message;
    uint32_t state;

    fill(engine);
    while (qs_store_peek(engine->store, text("q"), &position, &state, &message, QS_ERROR) ==
           QS_OK) {
        QS_CHECK(state == (count == 0 ? QS_MESSAGE_UNACKED : QS_MESSAGE_READY));
        QS_CHECK(!message.redelivered);
        QS_CHECK(message.body.bytes == (is_large(count) ? LARGE : 200));
        QS_CHECK(message.properties.bytes == PERSISTENT.bytes);
        QS_CHECK(position > message.delivery_tag);
        qs_message_release(&message);
        count += 1;
    }
    QS_CHECK(count == MESSAGES);
}

static qs_status discard(struct engine *engine, const char *queue, uint64_t position)
{
    return qs_channel_queue_discard(engine->channel, text(queue), position, QS_ERROR);
}

/* The positions of the first two messages, of which the first is out, and of the last. */
static void find_positions(struct engine *engine, uint64_t found[3])
{
    uint64_t position = 0, count = 0;
    qs_message message;
    uint32_t state;

    while (qs_store_peek(engine->store, text("q"), &position, &state, &message, QS_ERROR) ==
           QS_OK) {
        found[count < 2 ? count : 2] = message.delivery_tag;
        qs_message_release(&message);
        count += 1;
    }
}

ENGINE_TEST(test_discard_refuses_a_message_that_is_unacknowledged)
{
    uint64_t found[3];

    fill(engine);
    find_positions(engine, found);
    QS_CHECK_STATUS(QS_PRECONDITION_FAILED, discard(engine, "q", found[0]));
}

ENGINE_TEST(test_discarded_messages_are_gone_after_a_restart)
{
    uint64_t found[3];

    fill(engine);
    find_positions(engine, found);
    for (size_t i = 1; i < 3; i++) {
        QS_CHECK_OK(discard(engine, "q", found[i]));
        QS_CHECK_STATUS(QS_EEMPTY, discard(engine, "q", found[i]));
    }
    QS_CHECK_STATUS(QS_EEMPTY, discard(engine, "q", found[2] + 1));
    QS_CHECK_STATUS(QS_EEMPTY, discard(engine, "q", found[2] + (1u << 20)));
    check_counts(engine, "q", MESSAGES - 3, 1);
    engine_close(engine);
    engine_open(engine);
    check_counts(engine, "q", MESSAGES - 2, 0);
    find_positions(engine, found);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    QS_CHECK_OK(discard(engine, "q", found[2]));
    check_counts(engine, "q", MESSAGES - 3, 0);
}

/* Opens it to be read, over an environment that counts what would change the disk. */
static qs_status open_to_read(struct engine *engine, qs_env *env, qs_store **store_out)
{
    qs_options options = engine->options;

    options.read_only = true;
    return qs_store_open(store_out, engine->path, &options, env, QS_ERROR);
}

/* What the files are after a crash, in memory, or after an orderly close. */
ENGINE_TEST(test_a_store_is_read_and_nothing_is_written)
{
    static const enum qsi_fault_kind changes[] = {QSI_FAULT_WRITE,    QSI_FAULT_SYNC,
                                                  QSI_FAULT_DIR_SYNC, QSI_FAULT_ALLOCATE,
                                                  QSI_FAULT_RENAME,   QSI_FAULT_REMOVE};
    qs_env *crashed = NULL;

    fill(engine);
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    if (engine->memory != NULL) {
        crashed = qsi_env_mem_clone(engine->memory, 2);
    }
    engine_close(engine);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        qs_env *fault = qsi_env_fault_create(crashed != NULL ? crashed : engine->env);
        qs_store *store;
        qs_connection *connection;
        qs_channel *channel;

        qsi_env_fault_arm(fault, changes[i], QSI_FAULT_EIO, 1, true);
        QS_CHECK_OK(open_to_read(engine, fault, &store));
        check_all(store);
        QS_CHECK_OK(qs_store_sync(store, QS_ERROR));
        QS_CHECK_STATUS(QS_ESTORE_READ_ONLY, qs_channel_open(&channel, store, QS_ERROR));
        QS_CHECK_STATUS(QS_ESTORE_READ_ONLY, qs_connection_open(&connection, store, QS_ERROR));
        QS_CHECK_STATUS(QS_ESTORE_READ_ONLY, qs_store_checkpoint(store, QS_ERROR));
        QS_CHECK_STATUS(QS_ESTORE_READ_ONLY,
                        qs_store_set_queue_mode(store, text("q"), true, QS_ERROR));
        QS_CHECK_OK(qs_store_close(store, QS_ERROR));
        QS_CHECK(qsi_env_fault_calls(fault) == 0);
        qsi_env_fault_destroy(fault);
    }
    qsi_env_mem_destroy(crashed);
    engine_open(engine);
}

ENGINE_TEST(test_an_owner_and_a_reader_exclude_each_other_and_readers_do_not)
{
    qs_store *one, *two;

    fill(engine);
    QS_CHECK_STATUS(QS_ESTORE_LOCKED, open_to_read(engine, engine->env, &one));
    engine_close(engine);
    QS_CHECK_OK(open_to_read(engine, engine->env, &one));
    QS_CHECK_OK(open_to_read(engine, engine->env, &two));
    QS_CHECK_STATUS(QS_ESTORE_LOCKED, qs_store_open(&engine->store, engine->path, &engine->options,
                                                    engine->env, QS_ERROR));
    QS_CHECK_OK(qs_store_close(one, QS_ERROR));
    QS_CHECK_OK(qs_store_close(two, QS_ERROR));
    engine_open(engine);
}

ENGINE_TEST(test_each_failing_allocation_of_a_browse_is_told_and_leaves_nothing)
{
    struct qs_test_alloc allocator;
    uint64_t rows;

    if (engine->memory == NULL) {
        return; /* its threads allocate as well */
    }
    fill(engine);
    qs_test_alloc_install(&allocator);
    for (struct qs_test_sweep sweep = {.memory = &allocator}; qs_test_sweep_on(&sweep);) {
        qs_status status;
        qs_test_sweep_allocations(&sweep);
        status = browse_all(engine->store, &rows);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == QS_ENOMEM || (status == QS_EEMPTY && rows == MESSAGES));
    }
    qs_allocator_set(NULL);
    check_counts(engine, "q", MESSAGES - 1, 1);
}
