/* Files that are damaged or removed while the store is open, and a disk that cannot be
 * read.
 *
 * Method: messages of a lazy queue are in a file, which is damaged in each way; then whatever
 * writes to it comes: a flush, a state, a checkpoint.  Others are served, what is lost is told,
 * checkpoints go on where the journal is not needed for what was lost, and where it is nothing
 * of it goes. */
#include "qstore/alloc.h"

#include "arrow_table.h"
#include "engine_damage.h"
#include "qs_test_calls.h"

#define ENTRIES 1024u
#define FIRST 100u /* messages that are in the file */

static void declare_lazy(struct engine *engine, const char *queue)
{
    qs_test_declare_with(engine->channel, queue, QS_DURABLE, "x-queue-mode=lazy");
}

/* Each of them is refused, and the file is named. */
static void get_damaged(struct engine *engine, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        QS_CHECK_STATUS(QS_ECORRUPT, qs_test_get(engine->channel, "q", 0));
        QS_CHECK(strncmp(QS_ERROR->path, "index/", 6) == 0);
    }
}

static void check_others_are_served(struct engine *engine)
{
    publish(engine, "served", "yes");
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    ack(engine, get(engine, "served", "yes").delivery_tag, 0);
}

/* The messages are in the one segment there is; a checkpoint has them as well, or only the
 * journal. */
static void make_store(struct engine *engine, enum place place, bool has_checkpoint)
{
    engine_init(engine, place);
    engine->options.segment_entries = ENTRIES;
    engine->options.checkpoint_interval_ms = 0;
    engine->options.checkpoint_bytes = 1u << 20;
    engine->options.journal_file_bytes = 64u << 10;
    engine_open(engine);
    declare_lazy(engine, "q");
    declare(engine, "other", QS_DURABLE);
    declare(engine, "served", QS_DURABLE);
    publish_numbers(engine, "q", 0, FIRST);
    check_counts(engine, "q", FIRST, 0); /* who asks waits until they are in segments */
    if (has_checkpoint) {
        QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    }
}

PLACE_TEST(test_a_flush_into_a_damaged_segment_failed_the_store)
{
    for (int kind = 0; kind < KINDS; kind++) {
        struct engine engine;

        if (kind == STATE) {
            continue;
        }
        make_store(&engine, place, true);
        damage_segment(&engine, 0, (enum damage_kind)kind);
        publish_numbers(&engine, "q", FIRST, 2 * FIRST);
        check_counts(&engine, "q", 2 * FIRST, 0);
        check_others_are_served(&engine);
        QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
        QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
        get_damaged(&engine, FIRST);
        get_numbers(&engine, "q", FIRST, 2 * FIRST);
        get_nothing(&engine, "q");
        engine_new_channel(&engine);
        for (int round = 0; round < 2; round++) {
            check_counts(&engine, "q", 2 * FIRST, 0);
            engine_reopen(&engine);
            check_counts(&engine, "q", 2 * FIRST, 0);
            get_damaged(&engine, FIRST);
            get_numbers(&engine, "q", FIRST, 2 * FIRST);
            engine_new_channel(&engine);
        }
        get_damaged(&engine, FIRST);
        get_numbers(&engine, "q", FIRST, 2 * FIRST);
        ack(&engine, 2 * FIRST, QS_MULTIPLE);
        engine_new_channel(&engine);
        check_counts(&engine, "q", FIRST, 0); /* no ack finds what was not delivered */
        engine_reopen(&engine);
        check_counts(&engine, "q", FIRST, 0);
        {
            uint64_t count;
            QS_CHECK_OK(qs_channel_queue_purge(engine.channel, text("q"), 0, &count, QS_ERROR));
            QS_CHECK(count == FIRST);
        }
        QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
        QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
        {
            qs_queue_status status;
            QS_CHECK_OK(qs_store_queue_status(engine.store, text("q"), &status, QS_ERROR));
            QS_CHECK(status.disk_bytes == 0);
        }
        engine_stop(&engine);
    }
}

/* The file is damaged, and then the one that came after it: each has the messages that were
 * written to it. */
PLACE_TEST(test_a_segment_that_was_damaged_twice)
{
    struct engine engine;

    make_store(&engine, place, true);
    damage_segment(&engine, 0, HEADER);
    publish_numbers(&engine, "q", FIRST, FIRST + 10);
    check_counts(&engine, "q", FIRST + 10, 0);
    QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
    damage(&engine, "index", "-000000000000-00000001", "QSSEGMT\n", 8);
    publish_numbers(&engine, "q", FIRST + 10, FIRST + 20);
    check_counts(&engine, "q", FIRST + 20, 0);
    QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
    check_others_are_served(&engine);
    for (int round = 0; round < 2; round++) {
        get_damaged(&engine, FIRST + 10);
        QS_CHECK(strstr(QS_ERROR->path, "-00000001.seg") != NULL);
        get_numbers(&engine, "q", FIRST + 10, FIRST + 20);
        get_nothing(&engine, "q");
        engine_new_channel(&engine);
        engine_reopen(&engine);
    }
    /* The same bytes are changed back. */
    damage(&engine, "index", "-000000000000-00000001", "QSSEGMT\n", 8);
    get_damaged(&engine, FIRST);
    get_numbers(&engine, "q", FIRST, FIRST + 20);
    engine_stop(&engine);
}

PLACE_TEST(test_a_checkpoint_failed_the_store_over_acks_in_a_damaged_segment)
{
    for (int kind = 0; kind < KINDS; kind++) {
        struct engine engine;

        if (kind == STATE) {
            continue;
        }
        make_store(&engine, place, true);
        get_numbers(&engine, "q", 0, FIRST);
        ack(&engine, FIRST / 2, QS_MULTIPLE);
        damage_segment(&engine, 0, (enum damage_kind)kind);
        QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
        check_others_are_served(&engine);
        engine_new_channel(&engine);
        check_counts(&engine, "q", FIRST / 2, 0);
        engine_reopen(&engine);
        check_counts(&engine, "q", FIRST / 2, 0);
        get_damaged(&engine, FIRST / 2);
        get_nothing(&engine, "q");
        engine_stop(&engine);
    }
}

/* What only the journal has stays there: no checkpoint counts before it is settled, and
 * publishers are refused when the journal has grown to its bound. */
PLACE_TEST(test_a_checkpoint_gave_the_journal_back_that_had_the_messages_of_a_missing_file)
{
    static const uint8_t publish_much[4000];

    for (int way = 0; way < 2; way++) {
        struct engine engine;
        qs_status status = QS_OK;
        uint32_t accepted = 0;

        make_store(&engine, place, false);
        damage_segment(&engine, 0, FILE_GONE);
        for (int round = 0; round < 2; round++) {
            QS_CHECK_STATUS(QS_ECORRUPT, qs_store_checkpoint(engine.store, QS_ERROR));
            QS_CHECK(strncmp(QS_ERROR->path, "index/", 6) == 0);
        }
        check_others_are_served(&engine);
        publish(&engine, "other", "to be acked");
        while (accepted < 4096 && status == QS_OK) {
            status = qs_test_publish(engine.channel, "", "other", PERSISTENT,
                                     (qs_slice){publish_much, sizeof publish_much}, 0);
            accepted += status == QS_OK;
        }
        QS_CHECK(status == QS_ECORRUPT && accepted > 700 && accepted < 2000);
        QS_CHECK(strncmp(QS_ERROR->path, "index/", 6) == 0);
        QS_CHECK(strstr(QS_ERROR->text, "put the file back") != NULL);
        ack(&engine, get(&engine, "other", "to be acked").delivery_tag, 0);
        QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
        if (way == 0) { /* nobody needs it any more */
            QS_CHECK_OK(qs_test_purge(engine.channel, "q"));
            QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
            check_others_are_served(&engine);
        } else { /* the journal has it */
            engine_reopen(&engine);
            get_numbers(&engine, "q", 0, FIRST);
            check_counts(&engine, "other", accepted, 0);
            engine_new_channel(&engine);
            QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
        }
        engine_stop(&engine);
    }
}

/* ---- bodies ---- */

static _Thread_local size_t largest; /* the engine's own threads allocate as well */

static void *watched_realloc(void *context, void *memory, size_t bytes)
{
    (void)context;
    largest = bytes > largest ? bytes : largest;
    return realloc(memory, bytes);
}

static void watched_free(void *context, void *memory)
{
    (void)context;
    free(memory);
}

ENGINE_TEST(test_a_batch_made_room_for_a_body_that_its_file_cannot_hold)
{
    struct received received;
    QS_TEST_FREED char *body = make_body(20u << 20, 1);

    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", body);
    engine_close(engine);
    damage_file(engine, "messages", ".msg", true);
    engine->options.recovery = QS_RECOVERY_SALVAGE;
    engine_open(engine);
    largest = 0;
    QS_CHECK_STATUS(QS_ECORRUPT,
                    qs_channel_get_batch(engine->channel, text("q"), 10, UINT64_MAX, 0, 0,
                                         &received.schema, &received.array, QS_ERROR));
    QS_CHECK(largest > 0 && largest < 1u << 20);
}

int main(void)
{
    static const qs_allocator allocator = {watched_realloc, watched_free, NULL};

    qs_allocator_set(&allocator);
    qs_test_run_all();
    return 0;
}
