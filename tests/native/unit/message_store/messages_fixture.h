/* What the tests of the message store share: one in an environment, bodies that tell who they are,
 * an allocator that fails. */
#ifndef MESSAGES_FIXTURE_H
#define MESSAGES_FIXTURE_H

#include "qstore/alloc.h"

#include "check.h"
#include "env_test.h"
#include "message_store.h"
#include "qs_test_alloc.h"

#define ENVELOPE_BYTES 24u
#define RECORD_BYTES_MAX 300000u

static const uint8_t test_uuid[QSI_UUID_BYTES] = "a store's uuid.";
static const struct qsi_message_store_options small_files = {65536, 2};

struct fixture {
    qs_env *env;
    qs_dir *dir;
    struct qsi_message_store *messages;
};

static inline qs_status try_start(struct fixture *fixture, qs_env *env, qs_error *error)
{
    bool created;
    qs_status status;

    *fixture = (struct fixture){.env = env};
    QS_TRY(env->dir_open_root(env, "messages", true, &fixture->dir, &created, error));
    /* As the engine does: the directory is durable before there is anything in it. */
    status = created ? env->dir_sync_parent(env, fixture->dir, error) : QS_OK;
    if (status == QS_OK) {
        status = qsi_message_store_open(&fixture->messages, env, fixture->dir, test_uuid,
                                        &small_files, error);
    }
    if (status != QS_OK) {
        env->dir_close(env, fixture->dir);
        fixture->dir = NULL;
    }
    return status;
}

static inline void start(struct fixture *fixture, qs_env *env)
{
    QS_CHECK(try_start(fixture, env, NULL) == QS_OK);
}

static inline void stop(struct fixture *fixture)
{
    qsi_message_store_close(fixture->messages);
    fixture->env->dir_close(fixture->env, fixture->dir);
    fixture->messages = NULL;
}

static inline void run_with_messages(void (*test)(struct fixture *fixture))
{
    qs_env *env = qsi_env_mem_create(1);
    struct fixture fixture;

    start(&fixture, env);
    test(&fixture);
    stop(&fixture);
    qsi_env_mem_destroy(env);
}
#define MESSAGES_TEST(name) QS_TEST_BY(run_with_messages, name, (struct fixture * fixture))

static inline void restart(struct fixture *fixture)
{
    qs_env *env = fixture->env;

    stop(fixture);
    start(fixture, env);
}

/* Envelope and body of message number, the same bytes each time. */
static inline void fill_message(uint8_t *data, uint32_t body_bytes, uint32_t number)
{
    for (uint32_t i = 0; i < ENVELOPE_BYTES + body_bytes; i++) {
        data[i] = (uint8_t)((i * 131 + number * 31) >> (i % 5));
    }
}

/* Reserve, write in three parts, mark. */
static inline qs_status try_put(struct fixture *fixture, uint32_t body_bytes, uint32_t number,
                                struct qsi_body_ref *ref_out, qs_error *error)
{
    static uint8_t data[RECORD_BYTES_MAX];
    qs_part parts[3] = {{data, ENVELOPE_BYTES},
                        {data + ENVELOPE_BYTES, body_bytes / 3},
                        {data + ENVELOPE_BYTES + body_bytes / 3, body_bytes - body_bytes / 3}};
    struct qsi_place place;
    qs_status status;

    fill_message(data, body_bytes, number);
    QS_TRY(qsi_message_store_reserve(fixture->messages, ENVELOPE_BYTES, body_bytes, &place, error));
    status = qsi_message_store_write(fixture->messages, &place, parts, 3, ref_out, error);
    if (status != QS_OK) {
        qsi_message_store_abandon(fixture->messages, &place);
        return status;
    }
    qsi_message_store_mark(fixture->messages, &place);
    return QS_OK;
}

static inline struct qsi_body_ref put(struct fixture *fixture, uint32_t body_bytes, uint32_t number)
{
    struct qsi_body_ref ref;

    QS_CHECK(try_put(fixture, body_bytes, number, &ref, NULL) == QS_OK);
    return ref;
}

static inline qs_status commit(struct fixture *fixture, qs_error *error)
{
    struct qsi_dirty_set set;

    qsi_message_store_dirty_take(fixture->messages, &set);
    return qsi_message_store_sync(fixture->messages, &set, error);
}

/* QS_OK means that it was the message's very bytes. */
static inline qs_status get(struct fixture *fixture, const struct qsi_body_ref *ref,
                            uint32_t number, qs_error *error)
{
    static uint8_t data[RECORD_BYTES_MAX];
    static uint8_t expected[RECORD_BYTES_MAX];
    qs_status status = qsi_message_store_read(fixture->messages, ref, data, error);

    if (status == QS_OK) {
        fill_message(expected, ref->body_bytes, number);
        QS_CHECK(memcmp(data + QSI_BODY_HEADER_BYTES, expected, ENVELOPE_BYTES + ref->body_bytes) ==
                 0);
    }
    return status;
}

static inline uint64_t file_bytes(struct fixture *fixture, uint32_t number)
{
    char name[QSI_MESSAGE_NAME_BYTES];
    qs_file *file;
    uint64_t bytes;

    qsi_message_name(name, (struct qsi_message_id){number, 0});
    if (fixture->env->open(fixture->env, fixture->dir, name, QS_OPEN_READ, &file, NULL) != QS_OK) {
        return 0;
    }
    QS_CHECK(fixture->env->size(fixture->env, file, &bytes, NULL) == QS_OK);
    fixture->env->close(fixture->env, file);
    return bytes;
}

static inline bool exists(struct fixture *fixture, uint32_t number)
{
    return file_bytes(fixture, number) > 0;
}

/* Replaces bytes of a file behind the store's back. */
static inline void overwrite(struct fixture *fixture, const char *name, uint64_t offset,
                             const void *data, size_t bytes)
{
    const qs_part part = {data, bytes};
    qs_file *file;
    size_t written;

    QS_CHECK(fixture->env->open(fixture->env, fixture->dir, name, QS_OPEN_WRITE, &file, NULL) ==
             QS_OK);
    QS_CHECK(fixture->env->write(fixture->env, file, &part, 1, offset, &written, NULL) == QS_OK);
    QS_CHECK(written == bytes);
    fixture->env->close(fixture->env, file);
}

static inline void create_file(struct fixture *fixture, const char *name)
{
    qs_file *file;

    QS_CHECK(fixture->env->open(fixture->env, fixture->dir, name,
                                QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &file, NULL) == QS_OK);
    fixture->env->close(fixture->env, file);
}

#endif
