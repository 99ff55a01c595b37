/* Exchanges, queues and bindings. */
#include "verbs_topology.h"

#include "alloc.h"
#include "field_table.h"
#include "reply_to.h"

#include <stdio.h>
#include <string.h>

enum {
    EXCHANGE_PASSIVE = 1,
    EXCHANGE_DURABLE = 2,
    EXCHANGE_AUTO_DELETE = 4,
    EXCHANGE_INTERNAL = 8,
    QUEUE_PASSIVE = 1,
    QUEUE_DURABLE = 2,
    QUEUE_EXCLUSIVE = 4,
    QUEUE_AUTO_DELETE = 8,
    DECLARE_NO_WAIT = 16, /* of exchanges and of queues */
    IF_UNUSED = 1,
    QUEUE_IF_EMPTY = 2,
    EXCHANGE_DELETE_NO_WAIT = 2,
    QUEUE_DELETE_NO_WAIT = 4,
    NO_WAIT = 1, /* of bindings and of purge */
};

struct flag {
    uint8_t bit;
    uint32_t flag;
};

static uint32_t flags_of(const struct qsi_amqp_call *call, const struct flag *flags, size_t count)
{
    uint32_t found = qsi_amqp_wait_flag(call);

    for (size_t i = 0; i < count; i++) {
        found |= qsi_amqp_has_bit(call, flags[i].bit) ? flags[i].flag : 0;
    }
    return found;
}

/* A declaration that names another exchange lets messages pass from one to the other: the user
 * needs the right to read the one and to write to the other. */
struct declared {
    struct qsi_slice name;
    bool is_exchange;
    struct qsi_slice key;        /* of the argument that names the other exchange */
    const struct qsi_buf *table; /* in the engine's form: of repeated arguments only the last */
};

/* Finds the name in an argument.  The engine refuses a name that is too long. */
static bool find_other(const struct qsi_buf *table, struct qsi_slice key,
                       struct qsi_slice *name_out)
{
    struct qsi_slice all = qsi_slice_make(table->data, (uint32_t)table->bytes);
    struct qsi_field field;

    if (table->bytes == 0 || !qsi_table_find(all, key, &field) || field.type != 'S' ||
        field.value.bytes >= QSI_AMQP_NAME_BYTES) {
        return false;
    }
    *name_out = field.value;
    return true;
}

static enum qsi_amqp_result require_declare(struct qsi_amqp_call *call,
                                            const struct declared *declared)
{
    struct qsi_slice other;
    struct qsi_amqp_session *session = call->session;
    enum qsi_amqp_result result =
        qsi_amqp_require(session, QSI_AMQP_CONFIGURE, declared->is_exchange, declared->name);

    if (result != QSI_AMQP_DONE || !find_other(declared->table, declared->key, &other)) {
        return result;
    }
    result = qsi_amqp_require(session, QSI_AMQP_READ, declared->is_exchange, declared->name);
    return result == QSI_AMQP_DONE ? qsi_amqp_require(session, QSI_AMQP_WRITE, true, other)
                                   : result;
}

/* ---- exchanges ---- */

static enum qsi_amqp_result require_exchange(struct qsi_amqp_call *call, struct qsi_slice name,
                                             const struct qsi_buf *table)
{
    struct declared declared = {name, true, QSI_SLICE_LITERAL("alternate-exchange"), table};

    return qsi_amqp_has_bit(call, EXCHANGE_PASSIVE) ? QSI_AMQP_DONE
                                                    : require_declare(call, &declared);
}

enum qsi_amqp_result qsi_amqp_exchange_declare(struct qsi_amqp_call *call)
{
    static const struct flag flags[] = {{EXCHANGE_PASSIVE, QS_PASSIVE},
                                        {EXCHANGE_DURABLE, QS_DURABLE},
                                        {EXCHANGE_AUTO_DELETE, QS_AUTO_DELETE},
                                        {EXCHANGE_INTERNAL, QS_INTERNAL}};
    char room[QSI_AMQP_NAME_BYTES];
    struct qsi_slice name = qsi_amqp_strip(call->arguments->text[0], room);
    struct qsi_buf table;
    enum qsi_amqp_result result = qsi_amqp_table(call, &table);

    if (result == QSI_AMQP_DONE) {
        result = require_exchange(call, name, &table);
    }
    if (result == QSI_AMQP_DONE) {
        result = qsi_amqp_answer_durable(
            call, qs_channel_exchange_declare(call->channel->engine, qsi_amqp_public(name),
                                              qsi_amqp_public(call->arguments->text[1]),
                                              flags_of(call, flags, sizeof flags / sizeof flags[0]),
                                              (qs_slice){table.data, table.bytes}, &call->error));
    }
    qsi_buf_fini(&table);
    qsi_amqp_reply(call, result == QSI_AMQP_DONE && !qsi_amqp_has_bit(call, DECLARE_NO_WAIT),
                   QSI_AMQP_EXCHANGE_DECLARE_OK);
    return result;
}

enum qsi_amqp_result qsi_amqp_exchange_delete(struct qsi_amqp_call *call)
{
    static const struct flag if_unused = {IF_UNUSED, QS_IF_UNUSED};
    char room[QSI_AMQP_NAME_BYTES];
    struct qsi_slice name = qsi_amqp_strip(call->arguments->text[0], room);
    enum qsi_amqp_result result = qsi_amqp_require(call->session, QSI_AMQP_CONFIGURE, true, name);

    if (result == QSI_AMQP_DONE) {
        result = qsi_amqp_answer_durable(
            call, qs_channel_exchange_delete(call->channel->engine, qsi_amqp_public(name),
                                             flags_of(call, &if_unused, 1), &call->error));
    }
    qsi_amqp_reply(call,
                   result == QSI_AMQP_DONE && !qsi_amqp_has_bit(call, EXCHANGE_DELETE_NO_WAIT),
                   QSI_AMQP_EXCHANGE_DELETE_OK);
    return result;
}

/* ---- bindings ---- */

struct binding {
    struct qsi_slice destination, source, key;
    uint32_t flags;
    enum qsi_amqp_method answer;
};

static enum qsi_amqp_result change_binding(struct qsi_amqp_call *call,
                                           const struct binding *binding)
{
    bool to_exchange = (binding->flags & QS_TO_EXCHANGE) != 0;
    struct qsi_buf table = {0};
    enum qsi_amqp_result result =
        qsi_amqp_require(call->session, QSI_AMQP_WRITE, to_exchange, binding->destination);

    if (result == QSI_AMQP_DONE && binding->source.bytes > 0) { /* else the engine refuses it */
        result = qsi_amqp_require(call->session, QSI_AMQP_READ, true, binding->source);
    }
    if (result == QSI_AMQP_DONE) {
        result = qsi_amqp_table(call, &table);
    }
    if (result == QSI_AMQP_DONE) {
        result = qsi_amqp_answer_durable(
            call, qs_channel_change_binding(
                      call->channel->engine, qsi_amqp_public(binding->destination),
                      qsi_amqp_public(binding->source), qsi_amqp_public(binding->key),
                      (qs_slice){table.data, table.bytes},
                      binding->flags | qsi_amqp_wait_flag(call), &call->error));
    }
    qsi_buf_fini(&table);
    qsi_amqp_reply(call, result == QSI_AMQP_DONE && !qsi_amqp_has_bit(call, NO_WAIT),
                   binding->answer);
    return result;
}

static enum qsi_amqp_result change_exchange_binding(struct qsi_amqp_call *call, uint32_t flags,
                                                    enum qsi_amqp_method answer)
{
    char destination[QSI_AMQP_NAME_BYTES], source[QSI_AMQP_NAME_BYTES];
    struct binding binding = {
        .destination = qsi_amqp_strip(call->arguments->text[0], destination),
        .source = qsi_amqp_strip(call->arguments->text[1], source),
        .key = call->arguments->text[2],
        .flags = flags | QS_TO_EXCHANGE,
        .answer = answer,
    };

    return change_binding(call, &binding);
}

enum qsi_amqp_result qsi_amqp_exchange_bind(struct qsi_amqp_call *call)
{
    return change_exchange_binding(call, 0, QSI_AMQP_EXCHANGE_BIND_OK);
}

enum qsi_amqp_result qsi_amqp_exchange_unbind(struct qsi_amqp_call *call)
{
    return change_exchange_binding(call, QS_UNBIND, QSI_AMQP_EXCHANGE_UNBIND_OK);
}

/* With an empty queue name, an empty key means the name of the queue that was declared last. */
static enum qsi_amqp_result change_queue_binding(struct qsi_amqp_call *call, uint32_t flags,
                                                 enum qsi_amqp_method answer)
{
    char queue[QSI_AMQP_NAME_BYTES], source[QSI_AMQP_NAME_BYTES];
    struct binding binding = {
        .source = qsi_amqp_strip(call->arguments->text[1], source),
        .key = call->arguments->text[2],
        .flags = flags,
        .answer = answer,
    };
    enum qsi_amqp_result result =
        qsi_amqp_queue_name(call, call->arguments->text[0], queue, &binding.destination);

    if (result != QSI_AMQP_DONE) {
        return result;
    }
    if (call->arguments->text[0].bytes == 0 && binding.key.bytes == 0) {
        binding.key = binding.destination;
    }
    return change_binding(call, &binding);
}

enum qsi_amqp_result qsi_amqp_queue_bind(struct qsi_amqp_call *call)
{
    return change_queue_binding(call, 0, QSI_AMQP_QUEUE_BIND_OK);
}

/* queue.unbind has no no-wait bit: bits are 0. */
enum qsi_amqp_result qsi_amqp_queue_unbind(struct qsi_amqp_call *call)
{
    return change_queue_binding(call, QS_UNBIND, QSI_AMQP_QUEUE_UNBIND_OK);
}

/* ---- queues ---- */

/* A consumer of a work queue reads its stream, so declaring one needs the right to read it. */
static enum qsi_amqp_result require_queue(struct qsi_amqp_call *call, struct qsi_slice name,
                                          const struct qsi_buf *table)
{
    /* Names that the engine makes up begin so. */
    struct declared declared = {name.bytes > 0 ? name : QSI_SLICE_LITERAL("amq.gen-"), false,
                                QSI_SLICE_LITERAL("x-dead-letter-exchange"), table};
    struct qsi_slice stream;
    enum qsi_amqp_result result;

    if (qsi_amqp_has_bit(call, QUEUE_PASSIVE)) {
        return QSI_AMQP_DONE;
    }
    result = require_declare(call, &declared);
    return result == QSI_AMQP_DONE &&
                   find_other(table, QSI_SLICE_LITERAL("x-stream-source"), &stream)
               ? qsi_amqp_require(call->session, QSI_AMQP_READ, false, stream)
               : result;
}

/* False: no memory. */
static bool remember_queue(struct qsi_amqp_channel *channel, const char *name)
{
    size_t bytes = strlen(name);
    char *kept = qsi_realloc(channel->queue, bytes + 1);

    if (kept == NULL) {
        return false;
    }
    memcpy(kept, name, bytes + 1);
    channel->queue = kept;
    channel->queue_bytes = (uint8_t)bytes;
    return true;
}

static bool is_of_quorum(struct qsi_slice argument)
{
    static const char prefix[] = "x-quorum-";
    const struct qsi_slice names[] = {
        QSI_SLICE_LITERAL("x-queue-type"), QSI_SLICE_LITERAL("x-persistent"),
        QSI_SLICE_LITERAL("x-queue-leader-locator"), QSI_SLICE_LITERAL("x-queue-master-locator")};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (qsi_slice_equals(argument, names[i])) {
            return true;
        }
    }
    return argument.bytes >= sizeof prefix - 1 &&
           memcmp(argument.data, prefix, sizeof prefix - 1) == 0;
}

static bool asks_for_quorum(const struct qsi_buf *table)
{
    struct qsi_slice all = qsi_slice_make(table->data, (uint32_t)table->bytes);
    struct qsi_field field;

    return table->bytes > 0 && qsi_table_find(all, QSI_SLICE_LITERAL("x-queue-type"), &field) &&
           field.type == 'S' && qsi_slice_equals(field.value, QSI_SLICE_LITERAL("quorum"));
}

/* Whether a declared quorum queue becomes a classic one.  Arguments that only quorum queues have
 * are dropped, and x-persistent is added. */
static bool take_as_classic(const struct qsi_amqp_call *call, struct qsi_buf *table)
{
    static const char keeps_all[] = "\x0cx-persistentt\x01";
    struct qsi_field_walk walk =
        qsi_table_walk(qsi_slice_make(table->data, (uint32_t)table->bytes));
    const uint8_t *from = walk.at;
    struct qsi_field field;

    if (!call->session->setup.quorum_as_classic || !asks_for_quorum(table)) {
        return false;
    }
    table->bytes = 0;
    for (; qsi_field_next(&walk, &field); from = walk.at) {
        if (!is_of_quorum(field.name)) {
            memmove(table->data + table->bytes, from, (size_t)(walk.at - from));
            table->bytes += (size_t)(walk.at - from);
        }
    }
    /* Shorter than the x-queue-type that was removed. */
    memcpy(table->data + table->bytes, keeps_all, sizeof keeps_all - 1);
    table->bytes += sizeof keeps_all - 1;
    return true;
}

/* Adds the server's option to the error text. */
static void explain_quorum(qs_error *error)
{
    size_t bytes = strlen(error->text);

    snprintf(error->text + bytes, sizeof error->text - bytes,
             "; a server with quorum_as_classic takes it as a durable classic queue");
}

static enum qsi_amqp_result declare_queue(struct qsi_amqp_call *call, struct qsi_slice name,
                                          qs_declare_ok *ok_out)
{
    static const struct flag flags[] = {{QUEUE_PASSIVE, QS_PASSIVE},
                                        {QUEUE_DURABLE, QS_DURABLE},
                                        {QUEUE_EXCLUSIVE, QS_EXCLUSIVE},
                                        {QUEUE_AUTO_DELETE, QS_AUTO_DELETE}};
    uint32_t asked = flags_of(call, flags, sizeof flags / sizeof flags[0]);
    struct qsi_buf table;
    enum qsi_amqp_result result = qsi_amqp_table(call, &table);
    qs_status status;

    if (result == QSI_AMQP_DONE) {
        result = require_queue(call, name, &table);
    }
    if (result == QSI_AMQP_DONE) {
        asked |= take_as_classic(call, &table) ? QS_DURABLE : 0u;
        status =
            qs_channel_queue_declare(call->channel->engine, qsi_amqp_public(name), asked,
                                     (qs_slice){table.data, table.bytes}, ok_out, &call->error);
        if (status == QS_PRECONDITION_FAILED && asks_for_quorum(&table)) {
            explain_quorum(&call->error);
        }
        result = qsi_amqp_answer_durable(call, status);
    }
    qsi_buf_fini(&table);
    return result;
}

static void send_declare_ok(struct qsi_amqp_call *call, const qs_declare_ok *ok)
{
    struct qsi_amqp_arguments arguments = {0};

    arguments.text[0] = qsi_slice_make(ok->queue, (uint32_t)strlen(ok->queue));
    arguments.number[0] = ok->message_count < UINT32_MAX ? ok->message_count : UINT32_MAX;
    arguments.number[1] = ok->consumer_count < UINT32_MAX ? ok->consumer_count : UINT32_MAX;
    qsi_amqp_send(call->session, call->channel->number, QSI_AMQP_QUEUE_DECLARE_OK, &arguments);
}

enum qsi_amqp_result qsi_amqp_queue_declare(struct qsi_amqp_call *call)
{
    char room[QSI_AMQP_NAME_BYTES];
    struct qsi_slice name = qsi_amqp_strip(call->arguments->text[0], room);
    enum qsi_amqp_result result = QSI_AMQP_DONE;
    qs_declare_ok ok;

    if (qsi_amqp_is_reply_to(name) || qsi_amqp_is_reply_queue(name)) {
        return qsi_amqp_declare_reply_to(call, name);
    }
    if (name.bytes == 0 && qsi_amqp_has_bit(call, QUEUE_PASSIVE)) {
        result = qsi_amqp_queue_name(call, name, room, &name);
    }
    if (result == QSI_AMQP_DONE) {
        result = declare_queue(call, name, &ok);
    }
    if (result == QSI_AMQP_DONE && !remember_queue(call->channel, ok.queue)) {
        qsi_amqp_fault_set(&call->session->fault, QSI_AMQP_RESOURCE_ERROR,
                           "out of memory for the name of a queue");
        result = QSI_AMQP_FAULT;
    }
    if (result == QSI_AMQP_DONE && !qsi_amqp_has_bit(call, DECLARE_NO_WAIT)) {
        send_declare_ok(call, &ok);
    }
    return result;
}

static void send_count(struct qsi_amqp_call *call, enum qsi_amqp_method method, uint64_t count)
{
    struct qsi_amqp_arguments arguments = {0};

    arguments.number[0] = count < UINT32_MAX ? count : UINT32_MAX;
    qsi_amqp_send(call->session, call->channel->number, method, &arguments);
}

/* Finds the queue's name, and checks the right to it. */
static enum qsi_amqp_result meant_queue(struct qsi_amqp_call *call, enum qsi_amqp_right right,
                                        char room[QSI_AMQP_NAME_BYTES], struct qsi_slice *name_out)
{
    enum qsi_amqp_result result =
        qsi_amqp_queue_name(call, call->arguments->text[0], room, name_out);

    return result == QSI_AMQP_DONE ? qsi_amqp_require(call->session, right, false, *name_out)
                                   : result;
}

enum qsi_amqp_result qsi_amqp_queue_purge(struct qsi_amqp_call *call)
{
    char room[QSI_AMQP_NAME_BYTES];
    struct qsi_slice name;
    uint64_t count = 0;
    enum qsi_amqp_result result = meant_queue(call, QSI_AMQP_READ, room, &name);

    if (result == QSI_AMQP_DONE) {
        result = qsi_amqp_answer_durable(
            call, qs_channel_queue_purge(call->channel->engine, qsi_amqp_public(name),
                                         qsi_amqp_wait_flag(call), &count, &call->error));
    }
    if (result == QSI_AMQP_DONE && !qsi_amqp_has_bit(call, NO_WAIT)) {
        send_count(call, QSI_AMQP_QUEUE_PURGE_OK, count);
    }
    return result;
}

enum qsi_amqp_result qsi_amqp_queue_delete(struct qsi_amqp_call *call)
{
    static const struct flag flags[] = {{IF_UNUSED, QS_IF_UNUSED}, {QUEUE_IF_EMPTY, QS_IF_EMPTY}};
    char room[QSI_AMQP_NAME_BYTES];
    struct qsi_slice name;
    uint64_t count = 0;
    enum qsi_amqp_result result = meant_queue(call, QSI_AMQP_CONFIGURE, room, &name);

    if (result == QSI_AMQP_DONE) {
        result = qsi_amqp_answer_durable(
            call, qs_channel_queue_delete(call->channel->engine, qsi_amqp_public(name),
                                          flags_of(call, flags, sizeof flags / sizeof flags[0]),
                                          &count, &call->error));
    }
    if (result == QSI_AMQP_DONE && !qsi_amqp_has_bit(call, QUEUE_DELETE_NO_WAIT)) {
        send_count(call, QSI_AMQP_QUEUE_DELETE_OK, count);
    }
    return result;
}
