/* A queue's last segment, to which messages would be added, cannot be read: its file is gone, or
 * damaged.
 *
 * Method: a queue whose checkpoint ends in the middle of a segment, which is damaged in each
 * way.  A strict open goes on behind it, and whoever comes to it is told.  What the journal
 * added to it, or settled in it, is never dropped: a strict open refuses that, and names the
 * file. */
#include "engine_damage.h"
#include "qs_test_calls.h"

#define ENTRIES 256u
#define MESSAGES 800u /* the checkpoint goes on at 896, on a page of its own */
#define LAST 3u
#define WHOLE (LAST * ENTRIES)

/* Another queue, and a lazy one of which a checkpoint names the last segment.  The store is
 * open, and makes no checkpoint unasked. */
static void make_store(struct engine *engine, enum place place)
{
    engine_init(engine, place);
    engine->options.segment_entries = ENTRIES;
    engine->options.checkpoint_bytes = 0;
    engine_open(engine);
    qs_test_declare_with(engine->channel, "q", QS_DURABLE, "x-queue-mode=lazy");
    declare(engine, "other", QS_DURABLE);
    publish(engine, "other", "whole");
    for (uint32_t i = 0; i < MESSAGES; i++) {
        publish_number(engine, "q", i);
    }
    check_counts(engine, "q", MESSAGES, 0); /* who asks waits until they are in segments */
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
}

static void check_told(struct engine *engine)
{
    QS_CHECK_STATUS(QS_ECORRUPT, qs_test_get(engine->channel, "q", 0));
    QS_CHECK(strncmp(QS_ERROR->path, "index/", 6) == 0);
}

/* A segment has a state on the disk when something in it was settled before a checkpoint. */
static void settle_one(struct engine *engine)
{
    get_numbers(engine, "q", 0, MESSAGES);
    ack(engine, WHOLE + 1, 0);
    engine_new_channel(engine);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
}

PLACE_TEST(test_a_damaged_last_segment_refused_the_whole_store)
{
    for (int kind = 0; kind < KINDS; kind++) {
        struct engine engine;

        make_store(&engine, place);
        settle_one(&engine);
        engine_close(&engine);
        damage_segment(&engine, LAST, (enum damage_kind)kind);
        engine_open(&engine);
        get(&engine, "other", "whole");
        check_counts(&engine, "q", MESSAGES - 1, 0);
        get_numbers(&engine, "q", 0, WHOLE);
        check_told(&engine);
        publish_number(&engine, "q", MESSAGES);
        get_numbers(&engine, "q", MESSAGES, MESSAGES + 1);
        engine_new_channel(&engine);
        for (int round = 0; round < 2; round++) { /* from the journal, then from a checkpoint */
            engine_reopen(&engine);
            check_counts(&engine, "q", MESSAGES, 0);
            get_numbers(&engine, "q", 0, WHOLE);
            check_told(&engine);
            get_numbers(&engine, "q", MESSAGES, MESSAGES + 1);
            engine_new_channel(&engine);
            QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
        }
        engine_stop(&engine);
    }
}

static void check_refused(struct engine *engine)
{
    QS_CHECK_STATUS(QS_ECORRUPT, qs_store_open(&engine->store, engine->path, &engine->options,
                                               engine->env, QS_ERROR));
    QS_CHECK(strstr(QS_ERROR->text, "index/") != NULL);
    QS_CHECK(strstr(QS_ERROR->text, "salvage") != NULL);
    engine->options.recovery = QS_RECOVERY_SALVAGE;
    engine_open(engine);
    get(engine, "other", "whole");
    QS_CHECK(stats_of(engine).lost_segments == 1);
    get_numbers(engine, "q", 0, WHOLE);
}

PLACE_TEST(test_what_was_added_to_a_damaged_last_segment_is_kept)
{
    for (int kind = 0; kind < KINDS; kind++) {
        struct engine engine;

        if (kind == STATE) {
            continue;
        }
        make_store(&engine, place);
        publish_number(&engine, "q", MESSAGES);
        QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
        engine_close(&engine);
        damage_segment(&engine, LAST, (enum damage_kind)kind);
        check_refused(&engine);
        get_numbers(&engine, "q", MESSAGES, MESSAGES + 1);
        engine_stop(&engine);
    }
}

PLACE_TEST(test_what_was_settled_in_a_damaged_last_segment_is_not_forgotten)
{
    struct engine engine;

    make_store(&engine, place);
    get_numbers(&engine, "q", 0, MESSAGES);
    ack(&engine, WHOLE + 7, 0);
    engine_close(&engine);
    damage_segment(&engine, LAST, FILE_GONE);
    check_refused(&engine);
    engine_stop(&engine);
}
