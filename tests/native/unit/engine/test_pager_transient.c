/* Transient messages under load: they go to the disk as others do, and are gone with the
 * process. */
#include "engine_fixture.h"
#include "qs_test_batch.h"

#define BUDGET (1u << 20)
#define ROWS 64u
#define BATCHES 2000u /* with when each message expires, more than the budget in states */
#define NUMBERS (ROWS * BATCHES)

/* Which messages of a batch are transient. */
enum kind { FIRST_ROW, EVERY_ROW, ROW_BY_ROW, KINDS };

static bool is_transient(enum kind kind, uint32_t number)
{
    uint32_t row = number % ROWS;

    return kind == EVERY_ROW || (kind == FIRST_ROW && row == 0) ||
           (kind == ROW_BY_ROW && row % 16 < 2);
}

static void start_paging(struct engine *engine, uint32_t flags, bool lazy)
{
    struct qs_test_fields fields = qs_test_fields_of("x-message-ttl=3600000");

    engine_init(engine, IN_MEMORY);
    engine->options.memory_budget = BUDGET;
    engine->options.segment_entries = 1024;
    engine_open(engine);
    qs_test_put_long(&fields, "x-max-length-bytes", INT64_C(1) << 40);
    qs_test_put_text(&fields, "x-queue-mode", lazy ? "lazy" : "default");
    qs_test_declare(engine->channel, "q", flags, &fields);
}

static void publish_rows(struct engine *engine, enum kind kind, uint32_t first)
{
    struct qs_test_batch rows;
    qs_receipt receipt;
    qs_batch batch;

    qs_test_batch_init(&rows);
    for (uint32_t number = first; number < first + ROWS; number++) {
        memcpy(qs_test_batch_add(&rows, "q", sizeof number), &number, sizeof number);
        qs_test_batch_set_mode(&rows, is_transient(kind, number) ? 1 : 2);
    }
    batch = qs_test_batch_finish(&rows);
    QS_CHECK_OK(qs_channel_publish_batch(engine->channel, &batch, &receipt, QS_ERROR));
    QS_CHECK(receipt.count == ROWS);
    qs_test_batch_fini(&rows);
}

static void publish_all(struct engine *engine, enum kind kind)
{
    for (uint32_t number = 0; number < NUMBERS; number += ROWS) {
        publish_rows(engine, kind, number);
        QS_CHECK(stats_of(engine).ram_bytes <= BUDGET);
        if (number == NUMBERS / 2 / ROWS * ROWS) {
            QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
        }
    }
}

static void get_row(struct engine *engine, uint32_t number)
{
    qs_message message;
    uint32_t got;

    QS_CHECK_OK(qs_channel_get(engine->channel, text("q"), QS_NO_ACK, &message, QS_ERROR));
    QS_CHECK(message.body.bytes == sizeof got);
    memcpy(&got, message.body.data, sizeof got);
    QS_CHECK(got == number);
    qs_message_release(&message);
}

static void check_delta(struct engine *engine)
{
    qs_queue_status status;

    QS_CHECK_OK(qs_store_queue_status(engine->store, text("q"), &status, QS_ERROR));
    QS_CHECK(status.messages_ready == NUMBERS && status.delta > NUMBERS / 2);
}

/* All of them come back, in their order, within the budget. */
static void test_transient_messages_stay_within_the_budget(uint32_t flags, bool lazy,
                                                           enum kind kind)
{
    struct engine engine;

    start_paging(&engine, flags, lazy);
    publish_all(&engine, kind);
    check_delta(&engine);
    for (uint32_t number = 0; number < NUMBERS; number++) {
        get_row(&engine, number);
        QS_CHECK(number % 64 != 0 || stats_of(&engine).ram_bytes <= BUDGET);
    }
    get_nothing(&engine, "q");
    engine_stop(&engine);
}

static void check_persistent_only(struct engine *engine, enum kind kind)
{
    uint32_t count = 0;

    for (uint32_t number = 0; number < NUMBERS; number++) {
        count += is_transient(kind, number) ? 0 : 1;
    }
    check_counts(engine, "q", count, 0);
    for (uint32_t number = 0; number < NUMBERS; number++) {
        if (!is_transient(kind, number)) {
            get_row(engine, number);
        }
    }
    get_nothing(engine, "q");
}

/* Whether the process dies or closes the store, and whatever of its messages was on the disk. */
static void test_transient_messages_on_the_disk_end_with_the_process(enum kind kind, bool dies)
{
    struct engine engine;

    start_paging(&engine, QS_DURABLE, false);
    publish_all(&engine, kind);
    check_delta(&engine);
    if (dies) {
        QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
        engine_crash(&engine);
    } else {
        engine_reopen(&engine);
    }
    check_persistent_only(&engine, kind);
    engine_stop(&engine);
}

/* Purging needs none of the states that are on the disk. */
static void test_transient_messages_on_the_disk_are_purged(void)
{
    struct engine engine;
    uint64_t count;

    start_paging(&engine, QS_DURABLE, false);
    publish_all(&engine, FIRST_ROW);
    check_delta(&engine);
    QS_CHECK_OK(qs_channel_queue_purge(engine.channel, text("q"), 0, &count, QS_ERROR));
    QS_CHECK(count == NUMBERS);
    get_nothing(&engine, "q");
    publish_rows(&engine, FIRST_ROW, 7);
    get_row(&engine, 7);
    engine_stop(&engine);
}

int main(void)
{
    for (int kind = 0; kind < KINDS; kind++) {
        test_transient_messages_stay_within_the_budget(QS_DURABLE, false, kind);
        test_transient_messages_on_the_disk_end_with_the_process(kind, kind != FIRST_ROW);
    }
    test_transient_messages_stay_within_the_budget(QS_DURABLE, true, FIRST_ROW);
    test_transient_messages_stay_within_the_budget(QS_DURABLE, true, EVERY_ROW);
    test_transient_messages_stay_within_the_budget(0, false, FIRST_ROW);
    test_transient_messages_on_the_disk_are_purged();
    return 0;
}
