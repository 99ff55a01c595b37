/* What the tests of paging share: a queue with its indexes and its message store in an
 * environment, and messages that tell who they are. */
#ifndef QUEUE_FIXTURE_H
#define QUEUE_FIXTURE_H

#include "alloc.h"
#include "check.h"
#include "env_test.h"
#include "paging.h"
#include "properties.h"
#include "qs_test_alloc.h"
#include "qs_test_dirs.h"
#include "queue_columns.h"
#include "queue_publish.h"
#include "splitmix.h"

#define QUEUE_ID 7
#define ROWS_MAX 512

static const uint8_t test_uuid[QSI_UUID_BYTES] = "a store's uuid.";

struct fixture {
    qs_env *env;
    qs_dir *index_dir, *transient_dir, *messages_dir;
    struct qsi_index *index, *transient_index;
    struct qsi_message_store *messages;
    struct qsi_budget *budget;
    struct qsi_queue_shared shared;
    struct qsi_queue queue;
    struct qsi_chunk *arena; /* of single messages */
    uint32_t next_id;
};

static inline void open_messages(struct fixture *fixture)
{
    const struct qsi_message_store_options small_files = {65536, 2};

    QS_CHECK_OK(qsi_message_store_open(&fixture->messages, fixture->env, fixture->messages_dir,
                                       test_uuid, &small_files, QS_ERROR));
}

static inline void open_queue(struct fixture *fixture, uint32_t entries, bool durable)
{
    qsi_queue_shared_init(&fixture->shared, entries);
    fixture->shared.messages = fixture->messages;
    fixture->shared.budget = fixture->budget;
    qsi_queue_init(&fixture->queue, &fixture->shared, QUEUE_ID, durable);
}

/* The queue's own files: what is durable is in index, the rest in transient. */
static inline struct qsi_index *own_index(struct fixture *fixture)
{
    return fixture->queue.container.durable ? fixture->index : fixture->transient_index;
}

static inline void start_in(struct fixture *fixture, qs_env *env, uint32_t entries, bool durable)
{
    memset(fixture, 0, sizeof *fixture);
    fixture->env = env;
    fixture->index_dir = qs_test_make_root(env, "index");
    fixture->transient_dir = qs_test_make_root(env, "transient");
    fixture->messages_dir = qs_test_make_root(env, "messages");
    QS_CHECK_OK(
        qsi_index_open(&fixture->index, env, fixture->index_dir, test_uuid, entries, QS_ERROR));
    QS_CHECK_OK(qsi_index_open(&fixture->transient_index, env, fixture->transient_dir, test_uuid,
                               entries, QS_ERROR));
    open_messages(fixture);
    fixture->budget = qsi_budget_create();
    QS_CHECK(fixture->budget != NULL);
    open_queue(fixture, entries, durable);
}

static inline void start(struct fixture *fixture, uint32_t entries, bool durable)
{
    start_in(fixture, qsi_env_mem_create(1), entries, durable);
}

static inline void close_queue(struct fixture *fixture)
{
    qsi_chunk_unref(fixture->arena);
    fixture->arena = NULL;
    qsi_queue_fini(&fixture->queue.container);
    while (!qsi_list_is_empty(&fixture->shared.retired)) {
        qsi_segment_free(
            QSI_LIST_OWNER(fixture->shared.retired.next, struct qsi_segment, in_shared));
    }
    QS_CHECK(qsi_list_is_empty(&fixture->shared.releasing));
    QS_CHECK(qsi_budget_bytes(fixture->budget) == 0); /* all that was counted is gone */
}

static inline void stop_files(struct fixture *fixture)
{
    close_queue(fixture);
    qsi_budget_unref(fixture->budget);
    qsi_message_store_close(fixture->messages);
    qsi_index_close(fixture->index);
    qsi_index_close(fixture->transient_index);
    fixture->env->dir_close(fixture->env, fixture->index_dir);
    fixture->env->dir_close(fixture->env, fixture->transient_dir);
    fixture->env->dir_close(fixture->env, fixture->messages_dir);
}

static inline void stop(struct fixture *fixture)
{
    stop_files(fixture);
    qsi_env_mem_destroy(fixture->env);
}

/* ---- messages ---- */

/* All that a message is made of. */
struct message {
    uint32_t id;
    uint32_t body_bytes;
    uint8_t key;
    uint8_t mode; /* 1: transient, 2: persistent */
    bool stored;
    struct qsi_body_ref ref;
    uint32_t life_ms; /* of its own; 0: none */
    uint64_t time_us; /* when it was published: one for all of a record */
};

#define BODY_BYTES_MAX 4096u
#define BLOB_BYTES_MAX 64u

static inline struct qsi_slice key_of(const struct message *message, char text[8])
{
    snprintf(text, 8, "key-%u", message->key % 10u); /* all as long as each other */
    return qsi_slice_make(text, 5);
}

/* Of equal length for all messages: what is written once for neighbours must be compared. */
static inline struct qsi_slice properties_of(const struct message *message, bool with_id,
                                             uint8_t blob[BLOB_BYTES_MAX])
{
    struct qsi_properties properties = {.delivery_mode = message->mode};
    char id[16];

    properties.present = qsi_property_flag(QSI_PROPERTY_DELIVERY_MODE);
    if (with_id) {
        snprintf(id, sizeof id, "id-%08u", message->id);
        qsi_properties_set(&properties, QSI_PROPERTY_MESSAGE_ID, qsi_slice_make(id, 11));
    }
    QS_CHECK(qsi_properties_bytes(&properties) <= BLOB_BYTES_MAX);
    qsi_properties_encode(blob, &properties);
    return qsi_slice_make(blob, (uint32_t)qsi_properties_bytes(&properties));
}

static inline struct qsi_slice body_of(const struct message *message, uint8_t *out)
{
    uint32_t x = message->id * 2654435761u + 1;

    QS_CHECK(message->body_bytes <= BODY_BYTES_MAX);
    if (message->stored) {
        qsi_body_ref_encode(out, &message->ref);
        return qsi_slice_make(out, QSI_BODY_REF_BYTES);
    }
    for (uint32_t i = 0; i < message->body_bytes; i++) {
        x = x * 1664525u + 1013904223u;
        out[i] = (uint8_t)(x >> 24);
    }
    return qsi_slice_make(out, message->body_bytes);
}

/* A body in the message store; no references yet. */
static inline struct qsi_body_ref put_body(struct fixture *fixture, uint32_t body_bytes)
{
    static const uint8_t data[BODY_BYTES_MAX];
    const qs_part part = {data, 8 + (size_t)body_bytes};
    struct qsi_place place;
    struct qsi_body_ref ref;

    QS_CHECK(body_bytes + 8 <= BODY_BYTES_MAX);
    QS_CHECK_OK(qsi_message_store_reserve(fixture->messages, 8, body_bytes, &place, QS_ERROR));
    QS_CHECK_OK(qsi_message_store_write(fixture->messages, &place, &part, 1, &ref, QS_ERROR));
    qsi_message_store_mark(fixture->messages, &place);
    return ref;
}

static inline struct message make_message(struct fixture *fixture, uint32_t body_bytes,
                                          uint8_t mode, bool stored)
{
    struct message message = {
        .id = ++fixture->next_id, .body_bytes = body_bytes, .mode = mode, .stored = stored};

    message.key = (uint8_t)(message.id / 3 % 4);
    if (stored) {
        message.ref = put_body(fixture, body_bytes);
    }
    return message;
}

/* With equal properties for all, their ids are left out. */
static inline bool equal_modes(const struct message *messages, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        if (messages[i].mode != messages[0].mode) {
            return false;
        }
    }
    return true;
}

static inline void lay_out(struct qsi_messages_layout *layout, const struct message *messages,
                           uint32_t count, bool per_row)
{
    static uint8_t body[BODY_BYTES_MAX];
    uint8_t blob[BLOB_BYTES_MAX];

    *layout = (struct qsi_messages_layout){.row_count = count, .route_count = 4};
    layout->destination_count = 1;
    layout->routes_bytes = 4 * qsi_route_bytes(2, 5, 1);
    layout->flags = per_row ? QSI_MESSAGES_PROPERTIES_PER_ROW : 0;
    for (uint32_t i = 0; i < count; i++) {
        layout->bodies_bytes += body_of(&messages[i], body).bytes;
        if (per_row || i == 0) {
            layout->properties_bytes += properties_of(&messages[i], per_row, blob).bytes;
        }
        layout->flags |= messages[i].stored ? QSI_MESSAGES_HAS_STORED : 0;
        layout->flags |= messages[i].life_ms > 0 ? QSI_MESSAGES_HAS_EXPIRATION : 0;
    }
    layout->flags |= equal_modes(messages, count) ? 0 : QSI_MESSAGES_HAS_TRANSIENT;
    QS_CHECK_OK(qsi_messages_layout(layout, QS_ERROR));
}

static inline void fill_properties(uint8_t *at, const struct message *messages, uint32_t count,
                                   bool per_row)
{
    uint8_t blob[BLOB_BYTES_MAX];
    uint8_t *blobs = at + 4 * ((size_t)count + 1);
    uint32_t used = 0;

    if (!per_row) {
        struct qsi_slice properties = properties_of(messages, false, blob);
        qsi_put_u32(at, properties.bytes);
        memcpy(at + 4, properties.data, properties.bytes);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct qsi_slice properties = properties_of(&messages[i], true, blob);
        qsi_put_u32(at + 4 * (size_t)i, used);
        memcpy(blobs + used, properties.data, properties.bytes);
        used += properties.bytes;
    }
    qsi_put_u32(at + 4 * (size_t)count, used);
}

/* Behind what the chunk holds; returns where. */
static inline uint32_t put_record(struct qsi_chunk *chunk, const struct message *messages,
                                  uint32_t count, bool per_row)
{
    struct qsi_messages_layout layout;
    uint32_t at = (uint32_t)chunk->used, codes[ROWS_MAX], body_at = 0;
    uint8_t *record = chunk->data + at, *offsets, *bodies;
    static uint8_t body[BODY_BYTES_MAX];
    static const uint32_t destination = 0;
    uint64_t route_at = 0;

    QS_CHECK(count <= ROWS_MAX);
    lay_out(&layout, messages, count, per_row);
    QS_CHECK(chunk->capacity - chunk->used >= layout.record_bytes);
    memset(record, 0, layout.record_bytes);
    qsi_messages_begin(record, &layout);
    qsi_messages_put_time(record, messages[0].time_us);
    for (uint32_t i = 0; i < 4; i++) {
        struct message route = {.key = (uint8_t)i};
        char text[8];
        qsi_messages_put_route(record, &layout, i, &route_at, QSI_SLICE_LITERAL("ex"),
                               key_of(&route, text), &destination, 1);
    }
    for (uint32_t i = 0; i < count; i++) {
        codes[i] = messages[i].key;
    }
    qsi_messages_put_row_routes(record, &layout, codes);
    fill_properties(qsi_messages_properties_place(record, &layout), messages, count, per_row);
    offsets = qsi_messages_body_offsets_place(record, &layout);
    bodies = qsi_messages_bodies_place(record, &layout);
    for (uint32_t i = 0; i < count; i++) {
        struct qsi_slice bytes = body_of(&messages[i], body);
        qsi_put_u32(offsets + 4 * (size_t)i, body_at);
        if (bytes.bytes > 0) {
            memcpy(bodies + body_at, bytes.data, bytes.bytes);
        }
        body_at += bytes.bytes;
        if ((layout.flags & QSI_MESSAGES_HAS_EXPIRATION) != 0) {
            qsi_messages_put_expiration(record, &layout, i,
                                        messages[i].life_ms > 0 ? messages[i].life_ms
                                                                : QSI_NO_EXPIRATION);
        }
        if (messages[i].stored) {
            qsi_messages_stored_place(record, &layout)[i / 8] |= (uint8_t)(1u << i % 8);
        }
    }
    qsi_put_u32(offsets + 4 * (size_t)count, body_at);
    qsi_messages_put_destination(record, 0, QUEUE_ID, 0, count);
    QS_CHECK_OK(qsi_messages_check(record, QS_ERROR));
    chunk->used += layout.record_bytes;
    return at;
}

static inline struct qsi_chunk *make_chunk(struct fixture *fixture, size_t bytes)
{
    struct qsi_chunk *chunk = qsi_chunk_create(bytes);

    QS_CHECK(chunk != NULL);
    qsi_chunk_charge(chunk, fixture->budget);
    return chunk;
}

/* One batch of messages, in a record in which each is row every * i: with every above 1 the rows
 * between go elsewhere. */
static inline uint64_t push_batch(struct fixture *fixture, const struct message *messages,
                                  uint32_t count, uint32_t every, bool per_row, bool journalled)
{
    static struct message all[ROWS_MAX];
    struct qsi_messages_layout layout;
    struct qsi_chunk *chunk;
    struct qsi_run *run;
    uint32_t *rows = NULL;

    QS_CHECK(count * every <= ROWS_MAX);
    for (uint32_t i = 0; i < count * every; i++) {
        all[i] = messages[i / every];
        all[i].body_bytes = i % every == 0 ? all[i].body_bytes : 1;
        all[i].stored = i % every == 0 && all[i].stored;
    }
    lay_out(&layout, all, count * every, per_row);
    chunk = make_chunk(fixture, layout.record_bytes);
    QS_CHECK(put_record(chunk, all, count * every, per_row) == 0);
    if (every > 1) {
        rows = qsi_alloc(count * sizeof *rows);
        QS_CHECK(rows != NULL);
        for (uint32_t i = 0; i < count; i++) {
            rows[i] = i * every;
        }
    }
    QS_CHECK_OK(qsi_run_create(&run, chunk, 0, count, rows, journalled));
    run->ram_bytes = layout.record_bytes;
    qsi_chunk_unref(chunk);
    QS_CHECK_OK(
        qsi_queue_reserve(&fixture->queue.container, 1, count, !journalled || run->has_transient));
    if ((layout.flags & QSI_MESSAGES_HAS_EXPIRATION) != 0) {
        QS_CHECK_OK(qsi_queue_reserve_expiries(&fixture->queue, count));
    }
    return qsi_queue_push_run(&fixture->queue.container, run);
}

static inline uint64_t push_single(struct fixture *fixture, const struct message *message,
                                   bool journalled)
{
    struct qsi_messages_layout layout;

    lay_out(&layout, message, 1, true);
    if (fixture->arena == NULL ||
        fixture->arena->capacity - fixture->arena->used < layout.record_bytes) {
        qsi_chunk_unref(fixture->arena);
        fixture->arena = make_chunk(fixture, 8192);
    }
    QS_CHECK_OK(qsi_queue_reserve_message(&fixture->queue.container, fixture->arena, journalled));
    if (message->life_ms > 0) {
        QS_CHECK_OK(qsi_queue_reserve_expiries(&fixture->queue, 1));
    }
    return qsi_queue_push_message(&fixture->queue.container, fixture->arena,
                                  put_record(fixture->arena, message, 1, true),
                                  (uint32_t)layout.record_bytes, journalled, message->stored);
}

static inline bool slices_equal(struct qsi_slice a, struct qsi_slice b)
{
    return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.data, b.data, a.bytes) == 0);
}

/* The row is this very message.  with_id: its properties were published with its id. */
static inline void check_row(const struct qsi_run *run, uint32_t run_row,
                             const struct message *message, bool with_id)
{
    static uint8_t body[BODY_BYTES_MAX];
    uint8_t blob[BLOB_BYTES_MAX];
    struct qsi_messages view;
    struct qsi_route_view route;
    uint32_t row;
    char text[8];

    QS_CHECK(run_row < run->count);
    qsi_messages_view(&view, qsi_run_record(run, run_row, &row));
    QS_CHECK(row < view.row_count);
    QS_CHECK(qsi_messages_is_stored(&view, row) == message->stored);
    QS_CHECK(slices_equal(qsi_messages_body(&view, row), body_of(message, body)));
    if (message->stored) {
        return; /* the message store has the rest as well */
    }
    route = qsi_messages_route(&view, qsi_messages_row_route(&view, row));
    QS_CHECK(slices_equal(route.exchange, QSI_SLICE_LITERAL("ex")));
    QS_CHECK(slices_equal(route.key, key_of(message, text)));
    QS_CHECK(
        slices_equal(qsi_messages_properties(&view, row), properties_of(message, with_id, blob)));
}

#endif
