/* Queues through the public calls: what is made, what is refused and how, and what visitors see. */
#include "engine_fixture.h"

/* Field tables of one string: an argument that is compared and means nothing here, and one that is
 * not compared. */
static const uint8_t table_version[] = {15,  'x', '-', 'q', 'u', 'e', 'u', 'e', '-', 'v', 'e',
                                        'r', 's', 'i', 'o', 'n', 'S', 0,   0,   0,   1,   '1'};
static const uint8_t table_a[] = {1, 'a', 'S', 0, 0, 0, 1, '1'};

/* x-max-length: "1", which is no number */
static const uint8_t table_wrong[] = "\x0cx-max-lengthS\0\0\0\0011";

#define ARGUMENTS(table) ((qs_slice){table, sizeof(table)})

static qs_status try_declare(struct engine *engine, const char *queue, uint32_t flags,
                             qs_slice arguments, qs_declare_ok *ok)
{
    return qs_channel_queue_declare(engine->channel, text(queue), flags, arguments, ok, QS_ERROR);
}

/* ---- queues ---- */

ENGINE_TEST(test_declare_tells_counts_and_accepts_the_same_again)
{
    qs_declare_ok ok;

    QS_CHECK_OK(try_declare(engine, "q", QS_DURABLE, NONE, &ok));
    QS_CHECK(strcmp(ok.queue, "q") == 0 && ok.message_count == 0 && ok.consumer_count == 0);
    publish(engine, "q", "1");
    publish(engine, "q", "2");
    get(engine, "q", "1");
    QS_CHECK_OK(try_declare(engine, "q", QS_DURABLE, NONE, &ok));
    QS_CHECK(ok.message_count == 1);
    QS_CHECK_OK(try_declare(engine, "q", QS_PASSIVE, NONE, &ok));
    QS_CHECK(strcmp(ok.queue, "q") == 0 && ok.message_count == 1);
}

ENGINE_TEST(test_declare_otherwise_is_refused)
{
    qs_declare_ok ok;

    declare(engine, "q", QS_DURABLE);
    CHECK_CHANNEL_ERROR(engine, QS_PRECONDITION_FAILED, try_declare(engine, "q", 0, NONE, &ok));
    CHECK_CHANNEL_ERROR(engine, QS_PRECONDITION_FAILED,
                        try_declare(engine, "q", QS_DURABLE | QS_AUTO_DELETE, NONE, &ok));
    CHECK_CHANNEL_ERROR(engine, QS_PRECONDITION_FAILED,
                        try_declare(engine, "q", QS_DURABLE, ARGUMENTS(table_version), &ok));
    CHECK_CHANNEL_ERROR(engine, QS_NOT_FOUND, try_declare(engine, "x", QS_PASSIVE, NONE, &ok));
    CHECK_CHANNEL_ERROR(engine, QS_ACCESS_REFUSED,
                        try_declare(engine, "amq.mine", QS_DURABLE, NONE, &ok));
    CHECK_CHANNEL_ERROR(
        engine, QS_PRECONDITION_FAILED,
        try_declare(engine, "wrong", 0, (qs_slice){table_wrong, sizeof table_wrong - 1}, &ok));
    QS_CHECK(has_queue(engine, "q") && !has_queue(engine, "wrong"));
}

ENGINE_TEST(test_declare_of_nonsense_leaves_the_channel_open)
{
    QS_TEST_FREED char *name = make_body(256, 0);
    qs_declare_ok ok;

    QS_CHECK_STATUS(QS_EINVAL, try_declare(engine, name, 0, NONE, &ok));
    QS_CHECK_STATUS(QS_EINVAL, try_declare(engine, "q", 0, text("\x05junk"), &ok));
    name[255] = '\0';
    QS_CHECK_OK(try_declare(engine, name, 0, NONE, &ok));
    QS_CHECK(strcmp(ok.queue, name) == 0);
}

ENGINE_TEST(test_arguments_are_kept)
{
    qs_declare_ok ok;

    QS_CHECK_OK(try_declare(engine, "q", QS_DURABLE, ARGUMENTS(table_version), &ok));
    engine_reopen(engine);
    QS_CHECK_OK(try_declare(engine, "q", QS_DURABLE, ARGUMENTS(table_version), &ok));
    CHECK_CHANNEL_ERROR(engine, QS_PRECONDITION_FAILED,
                        try_declare(engine, "q", QS_DURABLE, NONE, &ok));
}

ENGINE_TEST(test_arguments_that_mean_nothing_may_differ)
{
    qs_declare_ok ok;

    QS_CHECK_OK(try_declare(engine, "q", QS_DURABLE, ARGUMENTS(table_a), &ok));
    QS_CHECK_OK(try_declare(engine, "q", QS_DURABLE, NONE, &ok));
    QS_CHECK_OK(try_declare(engine, "plain", QS_DURABLE, NONE, &ok));
    QS_CHECK_OK(try_declare(engine, "plain", QS_DURABLE, ARGUMENTS(table_a), &ok));
}

ENGINE_TEST(test_arguments_may_come_in_any_order)
{
    static const uint8_t sorted[] = "\x01"
                                    "a"
                                    "S\0\0\0\0011"
                                    "\x01"
                                    "b"
                                    "S\0\0\0\0011";
    static const uint8_t twice[] = "\x01"
                                   "b"
                                   "S\0\0\0\0011"
                                   "\x01"
                                   "a"
                                   "S\0\0\0\0012"
                                   "\x01"
                                   "a"
                                   "S\0\0\0\0011";
    const qs_slice orders[] = {{sorted, sizeof sorted - 1}, {twice, sizeof twice - 1}};

    declare(engine, "q", QS_DURABLE);
    declare_exchange(engine, "h", "headers", QS_DURABLE);
    for (int i = 0; i < 2; i++) { /* the same binding both times */
        QS_CHECK_OK(qs_channel_change_binding(engine->channel, text("q"), text("h"), text(""),
                                              orders[i], 0, QS_ERROR));
    }
    QS_CHECK_OK(qs_channel_change_binding(engine->channel, text("q"), text("h"), text(""),
                                          orders[1], QS_UNBIND, QS_ERROR));
    QS_CHECK_OK(qs_channel_exchange_delete(engine->channel, text("h"), QS_IF_UNUSED, QS_ERROR));
}

ENGINE_TEST(test_a_server_may_use_reserved_names)
{
    qs_declare_ok ok;

    QS_CHECK_OK(try_declare(engine, "amq.mine", QS_EXCLUSIVE | QS_RESERVED_NAME, NONE, &ok));
    QS_CHECK_OK(try_declare(engine, "amq.mine", QS_EXCLUSIVE, NONE, &ok));
    QS_CHECK(strcmp(ok.queue, "amq.mine") == 0);
    engine_reopen(engine);
    QS_CHECK(!has_queue(engine, "amq.mine"));
}

ENGINE_TEST(test_texts_name_the_place_that_was_set)
{
    qs_error error = {0};
    char too_long[273];
    qs_declare_ok ok;
    uint64_t count;

    memset(too_long, 'x', sizeof too_long - 1);
    too_long[sizeof too_long - 1] = '\0';
    QS_CHECK(qs_channel_queue_purge(engine->channel, text("q"), 0, &count, &error) == QS_NOT_FOUND);
    QS_CHECK(strcmp(error.text, "no queue 'q' in this store") == 0);
    QS_CHECK(qs_store_set_place(engine->store, too_long, &error) == QS_EINVAL);
    QS_CHECK_OK(qs_store_set_place(engine->store, too_long + 1, QS_ERROR));
    QS_CHECK_OK(qs_store_set_place(engine->store, " in vhost '/'", QS_ERROR));
    engine_new_channel(engine);
    QS_CHECK(qs_channel_queue_purge(engine->channel, text("q"), 0, &count, &error) == QS_NOT_FOUND);
    QS_CHECK(strcmp(error.text, "no queue 'q' in vhost '/'") == 0);
    engine_new_channel(engine);
    QS_CHECK(qs_channel_change_binding(engine->channel, text("q"), text("x"), text(""), NONE, 0,
                                       &error) == QS_NOT_FOUND);
    QS_CHECK(strcmp(error.text, "no exchange 'x' in vhost '/'") == 0);
    engine_new_channel(engine);
    QS_CHECK(qs_channel_queue_declare(engine->channel, text("q"), 0,
                                      (qs_slice){table_wrong, sizeof table_wrong - 1}, &ok,
                                      &error) == QS_PRECONDITION_FAILED);
    QS_CHECK(strcmp(error.text, "invalid arg 'x-max-length' for queue 'q' in vhost '/': a whole "
                                "number is needed") == 0);
    engine_new_channel(engine);
}

ENGINE_TEST(test_server_named_queues_differ)
{
    qs_declare_ok first, second;

    QS_CHECK_OK(try_declare(engine, "", QS_DURABLE, NONE, &first));
    QS_CHECK_OK(try_declare(engine, "", QS_DURABLE, NONE, &second));
    QS_CHECK(strncmp(first.queue, "amq.gen-", 8) == 0 && strcmp(first.queue, second.queue) != 0);
    publish(engine, first.queue, "to a made-up name");
    engine_reopen(engine);
    get(engine, first.queue, "to a made-up name");
    QS_CHECK(has_queue(engine, second.queue));
    CHECK_CHANNEL_ERROR(engine, QS_NOT_FOUND, try_declare(engine, "", QS_PASSIVE, NONE, &first));
}

ENGINE_TEST(test_exclusive_queue_belongs_to_its_channel)
{
    qs_channel *other;
    qs_message message;

    declare(engine, "mine", QS_EXCLUSIVE | QS_DURABLE);
    declare(engine, "mine", QS_EXCLUSIVE | QS_DURABLE);
    publish(engine, "mine", "1");
    for (int verb = 0; verb < 6; verb++) {
        qs_status status;

        QS_CHECK_OK(qs_channel_open(&other, engine->store, QS_ERROR));
        status = verb == 0   ? qs_channel_get(other, text("mine"), 0, &message, QS_ERROR)
                 : verb == 1 ? qs_test_declare_as(other, "mine", QS_EXCLUSIVE, NONE)
                 : verb == 2 ? qs_test_declare_as(other, "mine", QS_PASSIVE, NONE)
                 : verb == 3 ? qs_test_purge(other, "mine")
                 : verb == 4 ? qs_test_delete(other, "mine", 0)
                             : qs_test_consume(other, "mine", "", 0, NONE);
        QS_CHECK(status == QS_RESOURCE_LOCKED);
        qs_channel_close(other);
    }
    check_counts(engine, "mine", 1, 0);
    engine_new_channel(engine);
    QS_CHECK(!has_queue(engine, "mine"));
    declare(engine, "mine", QS_EXCLUSIVE);
    engine_reopen(engine);
    QS_CHECK(!has_queue(engine, "mine"));
}

ENGINE_TEST(test_auto_delete_queue_goes_with_its_last_consumer)
{
    char tag[256], other[256];

    declare(engine, "q", QS_DURABLE | QS_AUTO_DELETE);
    publish(engine, "q", "1");
    QS_CHECK_OK(qs_channel_consume(engine->channel, text("q"), NONE, 0, NONE, tag, QS_ERROR));
    QS_CHECK_OK(qs_channel_consume(engine->channel, text("q"), NONE, 0, NONE, other, QS_ERROR));
    QS_CHECK_OK(qs_channel_cancel(engine->channel, text(tag), QS_ERROR));
    QS_CHECK(has_queue(engine, "q"));
    QS_CHECK_OK(qs_channel_cancel(engine->channel, text(other), QS_ERROR));
    QS_CHECK(!has_queue(engine, "q"));
    declare(engine, "q", QS_DURABLE | QS_AUTO_DELETE);
    check_counts(engine, "q", 0, 0);
    QS_CHECK_OK(qs_channel_consume(engine->channel, text("q"), NONE, 0, NONE, tag, QS_ERROR));
    engine_new_channel(engine);
    QS_CHECK(!has_queue(engine, "q"));
    engine_reopen(engine);
    QS_CHECK(!has_queue(engine, "q"));
}

ENGINE_TEST(test_auto_delete_queue_without_consumers_stays)
{
    declare(engine, "q", QS_DURABLE | QS_AUTO_DELETE);
    publish(engine, "q", "1");
    engine_reopen(engine);
    get(engine, "q", "1");
}

ENGINE_TEST(test_delete_takes_conditions)
{
    uint64_t count = 7;

    QS_CHECK_OK(qs_channel_queue_delete(engine->channel, text("none"), 0, &count, QS_ERROR));
    QS_CHECK(count == 0);
    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "1");
    CHECK_CHANNEL_ERROR(
        engine, QS_PRECONDITION_FAILED,
        qs_channel_queue_delete(engine->channel, text("q"), QS_IF_EMPTY, &count, QS_ERROR));
    QS_CHECK_OK(qs_test_consume(engine->channel, "q", "", 0, NONE));
    CHECK_CHANNEL_ERROR(
        engine, QS_PRECONDITION_FAILED,
        qs_channel_queue_delete(engine->channel, text("q"), QS_IF_UNUSED, &count, QS_ERROR));
    QS_CHECK_OK(
        qs_channel_queue_delete(engine->channel, text("q"), QS_IF_UNUSED, &count, QS_ERROR));
    QS_CHECK(count == 1 && !has_queue(engine, "q"));
}

ENGINE_TEST(test_a_queue_declared_again_is_another_one)
{
    qs_message old;

    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "old");
    publish(engine, "q", "old too");
    old = get(engine, "q", "old");
    QS_CHECK_OK(qs_test_delete(engine->channel, "q", 0));
    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "new");
    ack(engine, old.delivery_tag, 0);
    check_counts(engine, "q", 1, 0);
    engine_reopen(engine);
    get(engine, "q", "new");
    get_nothing(engine, "q");
}

ENGINE_TEST(test_nack_of_a_deleted_queues_message_drops_it)
{
    qs_message old;

    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "old");
    old = get(engine, "q", "old");
    QS_CHECK_OK(qs_test_delete(engine->channel, "q", 0));
    declare(engine, "q", QS_DURABLE);
    QS_CHECK_OK(qs_channel_nack(engine->channel, old.delivery_tag, QS_REQUEUE, 0, QS_ERROR));
    check_counts(engine, "q", 0, 0);
}

ENGINE_TEST(test_purge_drops_ready_messages_and_leaves_unacked_ones)
{
    uint64_t count;
    qs_message second;

    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "1");
    publish(engine, "q", "2");
    publish_to(engine, "", "q", TRANSIENT, text("3"));
    publish(engine, "q", "4");
    get(engine, "q", "1");
    second = get(engine, "q", "2");
    QS_CHECK_OK(qs_channel_nack(engine->channel, second.delivery_tag, QS_REQUEUE, 0, QS_ERROR));
    QS_CHECK_OK(qs_channel_queue_purge(engine->channel, text("q"), 0, &count, QS_ERROR));
    QS_CHECK(count == 3);
    check_counts(engine, "q", 0, 1);
    QS_CHECK_OK(qs_channel_queue_purge(engine->channel, text("q"), 0, &count, QS_ERROR));
    QS_CHECK(count == 0);
    engine_reopen(engine);
    QS_CHECK(get(engine, "q", "1").redelivered);
    get_nothing(engine, "q");
    CHECK_CHANNEL_ERROR(engine, QS_NOT_FOUND,
                        qs_channel_queue_purge(engine->channel, text("x"), 0, &count, QS_ERROR));
}

/* ---- visiting ---- */

struct seen {
    int queues, exchanges, bindings;
};

static void visit_queue(void *context, const qs_queue_info *info)
{
    struct seen *seen = context;

    seen->queues += 1;
    QS_CHECK(holds(info->name, "q") && info->durable && info->auto_delete && !info->exclusive);
    QS_CHECK(info->arguments.bytes == sizeof table_a);
}

static void visit_exchange(void *context, const qs_exchange_info *info)
{
    struct seen *seen = context;

    if (holds(info->name, "x")) {
        seen->exchanges += 1;
        QS_CHECK(holds(info->type, "topic") && info->durable && !info->auto_delete &&
                 !info->internal && info->arguments.bytes == 0);
    }
}

static void visit_binding(void *context, const qs_binding_info *info)
{
    struct seen *seen = context;

    seen->bindings += 1;
    QS_CHECK(holds(info->source, "x") && holds(info->destination, "q") &&
             holds(info->routing_key, "k.*") && !info->to_exchange);
}

ENGINE_TEST(test_visitors_see_what_there_is)
{
    qs_declare_ok ok;

    QS_CHECK_OK(try_declare(engine, "q", QS_DURABLE | QS_AUTO_DELETE, ARGUMENTS(table_a), &ok));
    declare_exchange(engine, "x", "topic", QS_DURABLE);
    bind_queue(engine, "q", "x", "k.*");
    for (int turn = 0; turn < 2; turn++) {
        struct seen seen = {0};

        QS_CHECK_OK(qs_store_visit_queues(engine->store, visit_queue, &seen));
        QS_CHECK_OK(qs_store_visit_exchanges(engine->store, visit_exchange, &seen));
        QS_CHECK_OK(qs_store_visit_bindings(engine->store, visit_binding, &seen));
        QS_CHECK(seen.queues == 1 && seen.exchanges == 1 && seen.bindings == 1);
        engine_reopen(engine);
    }
}

/* Seen as "a" by whoever reads it as text: two queues of one name. */
ENGINE_TEST(test_a_name_with_a_nul_is_refused_where_it_comes_into_being)
{
    qs_slice name = {"a\0b", 3};
    qs_declare_ok ok;
    char tag[256];

    declare(engine, "q", 0);
    QS_CHECK_STATUS(QS_EINVAL, qs_channel_queue_declare(engine->channel, name, QS_DURABLE, NONE,
                                                        &ok, QS_ERROR));
    QS_CHECK_STATUS(QS_EINVAL, qs_channel_exchange_declare(engine->channel, name, text("fanout"),
                                                           QS_DURABLE, NONE, QS_ERROR));
    QS_CHECK_STATUS(QS_EINVAL,
                    qs_channel_consume(engine->channel, text("q"), name, 0, NONE, tag, QS_ERROR));
    QS_CHECK(has_queue(engine, "q") && !has_queue(engine, "a"));
}

/* ---- declares that come together ---- */

ENGINE_TEST(test_queues_declared_without_a_sync_share_a_commit)
{
    uint64_t before = stats_of(engine).commits;
    char name[16];
    qs_declare_ok ok;

    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "q%d", i);
        QS_CHECK_OK(try_declare(engine, name, QS_DURABLE | QS_NO_SYNC, NONE, &ok));
    }
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    /* On the disk the committer may come between any two of them. */
    QS_CHECK(engine->options.background || stats_of(engine).commits == before + 1);
    engine_reopen(engine);
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "q%d", i);
        QS_CHECK(has_queue(engine, name));
    }
}

/* It returned at once, because the queue was there, and a power cut took the queue. */
ENGINE_TEST(test_a_queue_declared_again_is_durable_although_nobody_waited_before)
{
    uint64_t commits;
    qs_declare_ok ok;

    QS_CHECK_OK(try_declare(engine, "q", QS_DURABLE | QS_NO_SYNC, NONE, &ok));
    QS_CHECK_OK(try_declare(engine, "q", QS_DURABLE | QS_NO_SYNC, NONE, &ok));
    QS_CHECK_OK(try_declare(engine, "q", QS_DURABLE, NONE, &ok));
    commits = stats_of(engine).commits;
    QS_CHECK(stats_of(engine).durable_lsn == stats_of(engine).appended_lsn);
    QS_CHECK_OK(try_declare(engine, "q", QS_DURABLE, NONE, &ok));
    QS_CHECK(stats_of(engine).commits == commits);
}

/* Without threads nothing is durable before somebody has waited for it; with them it may be. */
static void check_durable(struct engine *engine, bool has_waited)
{
    bool is_durable = stats_of(engine).durable_lsn == stats_of(engine).appended_lsn;

    QS_CHECK(is_durable == has_waited || (is_durable && engine->options.background));
}

/* Another thread made the change, and its record was not durable yet. */
ENGINE_TEST(test_a_change_that_is_there_is_durable_although_nobody_waited)
{
    qs_channel *channel = engine->channel;
    qs_declare_ok ok;

    QS_CHECK_OK(try_declare(engine, "q", QS_DURABLE, NONE, &ok));
    for (int wait = 0; wait < 2; wait++) {
        QS_CHECK_OK(qs_test_declare_exchange(channel, "x", "fanout",
                                             QS_DURABLE | (wait == 0 ? QS_NO_SYNC : 0)));
        check_durable(engine, wait == 1);
    }
    for (int wait = 0; wait < 4; wait++) {
        QS_CHECK_OK(qs_test_bind(channel, "q", "x", "",
                                 (wait % 2 == 0 ? QS_NO_SYNC : 0) | (wait >= 2 ? QS_UNBIND : 0)));
        check_durable(engine, wait % 2 == 1);
    }
    for (int wait = 0; wait < 2; wait++) {
        QS_CHECK_OK(
            qs_channel_exchange_delete(channel, text("x"), wait == 0 ? QS_NO_SYNC : 0, QS_ERROR));
        check_durable(engine, wait == 1);
    }
    for (int wait = 0; wait < 2; wait++) {
        QS_CHECK_OK(qs_test_delete(channel, "q", wait == 0 ? QS_NO_SYNC : 0));
        check_durable(engine, wait == 1);
    }
}
