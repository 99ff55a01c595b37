/* What the tests of index segments share: an index in an environment, messages that tell who
 * they are, and a model of what a segment holds to compare loads with. */
#ifndef INDEX_FIXTURE_H
#define INDEX_FIXTURE_H

#include "qstore/alloc.h"

#include "alloc.h"
#include "check.h"
#include "env_test.h"
#include "envelope.h"
#include "qs_test_alloc.h"
#include "record.h"
#include "segment.h"
#include "segment_format.h"
#include "splitmix.h"

#define NO_ROW UINT32_MAX
#define ENTRIES_MAX QSI_SEGMENT_ENTRIES_MAX
#define WORDS_MAX (ENTRIES_MAX / 64)

static const uint8_t test_uuid[QSI_UUID_BYTES] = "a store's uuid.";

struct fixture {
    qs_env *env;
    qs_dir *dir;
    struct qsi_index *index;
};

static inline qs_status try_start(struct fixture *fixture, qs_env *env, uint32_t entries,
                                  qs_error *error)
{
    bool created;
    qs_status status;

    *fixture = (struct fixture){.env = env};
    QS_TRY(env->dir_open_root(env, "index", true, &fixture->dir, &created, error));
    status = created ? env->dir_sync_parent(env, fixture->dir, error) : QS_OK;
    if (status == QS_OK) {
        status = qsi_index_open(&fixture->index, env, fixture->dir, test_uuid, entries, error);
    }
    if (status != QS_OK) {
        env->dir_close(env, fixture->dir);
    }
    return status;
}

static inline void start(struct fixture *fixture, qs_env *env, uint32_t entries)
{
    QS_CHECK_OK(try_start(fixture, env, entries, QS_ERROR));
}

static inline void stop(struct fixture *fixture)
{
    qsi_index_close(fixture->index);
    fixture->env->dir_close(fixture->env, fixture->dir);
}

/* In memory, which every test but those of faults and cuts starts from. */
static inline void start_in_memory(struct fixture *fixture, uint32_t entries)
{
    qs_env *env = qsi_env_mem_create(1);

    start(fixture, env, entries);
}

static inline void stop_in_memory(struct fixture *fixture)
{
    stop(fixture);
    qsi_env_mem_destroy(fixture->env);
}

QS_TEST_FIXTURE(run_in_memory, struct fixture, start_in_memory(&fixture, 16),
                stop_in_memory(&fixture))
#define INDEX_TEST(name) QS_TEST_BY(run_in_memory, name, (struct fixture * fixture))

/* ---- messages ---- */

enum kind { NOTHING, EMBEDDED, STORED, DAMAGED };

/* All that a message is made of. */
struct message {
    enum kind kind;
    uint32_t seed;
    uint32_t body_bytes;
    uint8_t exchange; /* of which exchange, key, properties; what is equal here has equal bytes */
    uint8_t key;
    uint8_t properties;
};

#define BODY_BYTES_MAX (3u << 20)
#define ENVELOPE_BYTES_MAX 1024u

static inline struct qsi_slice text_of(char *text, char letter, uint8_t number)
{
    int bytes = number == 0 ? 0 : snprintf(text, 64, "%c%0*u", letter, number % 40 + 1, number);

    return qsi_slice_make(text, (uint32_t)bytes);
}

static inline struct qsi_slice envelope_of(const struct message *message, uint8_t *out)
{
    char exchange[64], key[64], properties[64];
    struct qsi_slice parts[3] = {text_of(exchange, 'e', message->exchange),
                                 text_of(key, 'k', message->key),
                                 text_of(properties, 'p', message->properties)};

    qsi_envelope_encode(out, parts[0], parts[1], parts[2]);
    return qsi_slice_make(out, qsi_envelope_bytes(parts[0], parts[1], parts[2]));
}

static inline struct qsi_slice body_of(const struct message *message, uint8_t *out)
{
    uint32_t x = message->seed * 2654435761u + 1;

    QS_CHECK(message->body_bytes <= BODY_BYTES_MAX);
    for (uint32_t i = 0; i < message->body_bytes; i++) {
        x = x * 1664525u + 1013904223u;
        out[i] = (uint8_t)(x >> 24);
    }
    return qsi_slice_make(out, message->body_bytes);
}

static inline struct qsi_body_ref ref_of(const struct message *message)
{
    return (struct qsi_body_ref){.file = message->seed % 1000 + 1,
                                 .slot = message->seed * 7,
                                 .offset = (uint64_t)(message->seed * 2654435761u) * 8,
                                 .envelope_bytes = message->key + 10u,
                                 .body_bytes = message->body_bytes,
                                 .crc = message->seed * 40503u};
}

static inline bool refs_equal(const struct qsi_body_ref *a, const struct qsi_body_ref *b)
{
    return a->file == b->file && a->slot == b->slot && a->offset == b->offset &&
           a->envelope_bytes == b->envelope_bytes && a->body_bytes == b->body_bytes &&
           a->crc == b->crc;
}

/* What a segment holds. */
struct model {
    uint32_t entries;
    struct message messages[ENTRIES_MAX];
    uint64_t put[WORDS_MAX];
    struct qsi_segment_file file;
};

static inline void model_init(struct model *model, uint32_t entries, uint64_t queue_id,
                              uint64_t number)
{
    memset(model, 0, sizeof *model);
    model->entries = entries;
    model->file.queue_id = queue_id;
    model->file.number = number;
}

static inline void set_bit(uint64_t *bits, uint32_t i)
{
    bits[i / 64] |= UINT64_C(1) << (i % 64);
}

static inline void clear_bit(uint64_t *bits, uint32_t i)
{
    bits[i / 64] &= ~(UINT64_C(1) << (i % 64));
}

static inline qs_status try_put(struct qsi_segment_writer *writer, uint32_t slot,
                                const struct message *message, qs_error *error)
{
    static uint8_t envelope[2][ENVELOPE_BYTES_MAX];
    static uint8_t body[BODY_BYTES_MAX];
    /* Two places in turn: an envelope at the same place as the one before would pass for the
     * same. */
    static uint32_t turn;
    struct qsi_body_ref ref = ref_of(message);

    if (message->kind == STORED) {
        return qsi_segment_put_stored(writer, slot, &ref, error);
    }
    turn ^= 1;
    return qsi_segment_put_embedded(writer, slot, envelope_of(message, envelope[turn]),
                                    body_of(message, body), error);
}

/* Puts messages [from, to) of the model that are there. */
static inline qs_status try_write(struct fixture *fixture, struct model *model, uint32_t from,
                                  uint32_t to, bool page_aligned, qs_error *error)
{
    struct qsi_segment_writer *writer;
    qs_status status =
        qsi_segment_writer_begin(&writer, fixture->index, &model->file, page_aligned, error);

    if (status != QS_OK) {
        return status;
    }
    for (uint32_t slot = from; slot < to; slot++) {
        if (model->messages[slot].kind == NOTHING) {
            continue;
        }
        status = try_put(writer, slot, &model->messages[slot], error);
        if (status != QS_OK) {
            qsi_segment_writer_abandon(writer);
            return status;
        }
    }
    status = qsi_segment_writer_end(writer, error);
    for (uint32_t slot = from; status == QS_OK && slot < to; slot++) {
        if (model->messages[slot].kind != NOTHING) {
            set_bit(model->put, slot);
        }
    }
    return status;
}

static inline void write_model(struct fixture *fixture, struct model *model, uint32_t from,
                               uint32_t to, bool page_aligned)
{
    QS_CHECK_OK(try_write(fixture, model, from, to, page_aligned, QS_ERROR));
}

/* ---- loads ---- */

static inline void load_fini(struct qsi_segment_load *load)
{
    qsi_chunk_unref(load->chunk);
    qsi_free(load->rows);
}

static inline uint64_t message_bytes(const struct message *message)
{
    uint8_t envelope[ENVELOPE_BYTES_MAX];

    return message->kind == EMBEDDED
               ? (uint64_t)envelope_of(message, envelope).bytes + message->body_bytes
               : 0;
}

static inline bool slices_equal(struct qsi_slice a, struct qsi_slice b)
{
    return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.data, b.data, a.bytes) == 0);
}

static inline void check_embedded(const struct qsi_messages *view, uint32_t row,
                                  const struct message *message)
{
    static uint8_t body[BODY_BYTES_MAX];
    struct qsi_route_view route = qsi_messages_route(view, qsi_messages_row_route(view, row));
    char text[64];

    QS_CHECK(slices_equal(qsi_messages_body(view, row), body_of(message, body)));
    QS_CHECK(slices_equal(route.exchange, text_of(text, 'e', message->exchange)));
    QS_CHECK(slices_equal(route.key, text_of(text, 'k', message->key)));
    QS_CHECK(
        slices_equal(qsi_messages_properties(view, row), text_of(text, 'p', message->properties)));
    QS_CHECK(route.destination_count == 1 && qsi_get_u32(route.destinations) == 0);
}

/* Returns whether the row's message is damaged. */
static inline bool check_row(const struct qsi_segment_file *file, const struct qsi_messages *view,
                             uint32_t row, const struct message *message, uint32_t slot,
                             bool may_be_damaged)
{
    struct qsi_body body;
    struct qsi_body_ref expected = ref_of(message);

    qsi_messages_read_body(view, row, &body);
    if (body.kind == QSI_BODY_EMBEDDED) {
        QS_CHECK(message->kind == EMBEDDED);
        check_embedded(view, row, message);
        return false;
    }
    QS_CHECK(qsi_messages_properties(view, row).bytes == 0 ||
             (view->flags & QSI_MESSAGES_PROPERTIES_PER_ROW) == 0);
    if (body.kind == QSI_BODY_DAMAGED) {
        QS_CHECK(may_be_damaged || message->kind == DAMAGED || message->kind == NOTHING);
        QS_CHECK(body.damage.slot == slot && body.damage.queue_id == file->queue_id &&
                 body.damage.number == file->number && body.damage.generation == file->generation);
        return true;
    }
    QS_CHECK(message->kind == STORED && refs_equal(&body.ref, &expected));
    return false;
}

static inline void check_record(const struct model *model, const struct qsi_segment_load *load,
                                struct qsi_messages *view)
{
    QS_CHECK(load->chunk->used == qsi_record_length(load->chunk->data));
    QS_CHECK(load->chunk->used <= load->chunk->capacity);
    QS_CHECK(qsi_record_fits(load->chunk->data, load->chunk->used));
    QS_CHECK(qsi_record_type(load->chunk->data) == QSI_RECORD_MESSAGES);
    if (load->damaged_count == 0) {
        QS_CHECK_OK(qsi_messages_check(load->chunk->data, QS_ERROR));
    } else { /* such a record never comes from a file */
        QS_CHECK_STATUS(QS_ECORRUPT, qsi_messages_check(load->chunk->data, QS_ERROR));
    }
    qsi_messages_view(view, load->chunk->data);
    QS_CHECK(view->destination_count == 1);
    QS_CHECK(qsi_messages_destination_queue(view, 0) == model->file.queue_id);
    QS_CHECK(qsi_messages_destination_seq(view, 0) ==
             model->file.number * model->entries + load->first);
    QS_CHECK(qsi_messages_destination_rows(view, 0) == view->row_count);
    QS_CHECK(load->has_stored == ((view->flags & QSI_MESSAGES_HAS_STORED) != 0));
}

/* Everything about a load that succeeded: what is in it, and that it stopped where it had to. */
static inline void check_load(const struct model *model, const struct qsi_segment_load *load,
                              bool may_be_damaged)
{
    struct qsi_messages view;
    uint32_t row = 0;
    uint32_t damaged = 0;
    uint64_t bytes = 0;
    bool is_full = false;

    if (load->chunk == NULL) {
        for (uint32_t slot = load->from; slot < load->to; slot++) {
            QS_CHECK(!qsi_bitmap_has(load->wanted, slot));
        }
        QS_CHECK(load->rows == NULL && load->count == 0);
        return;
    }
    check_record(model, load, &view);
    QS_CHECK(load->count > 0 && load->first >= load->from && load->first + load->count <= load->to);
    for (uint32_t slot = load->from; slot < load->to; slot++) {
        bool is_covered = slot >= load->first && slot - load->first < load->count;

        if (!qsi_bitmap_has(load->wanted, slot)) {
            QS_CHECK(!is_covered ||
                     (load->rows != NULL && load->rows[slot - load->first] == NO_ROW));
            continue;
        }
        if (!is_covered) {
            QS_CHECK(slot > load->first); /* the first wanted one is there in any case */
            is_full = is_full || may_be_damaged ||
                      bytes + message_bytes(&model->messages[slot]) > load->bytes_max;
            QS_CHECK(is_full);
            continue;
        }
        QS_CHECK(row == (load->rows != NULL ? load->rows[slot - load->first] : slot - load->first));
        damaged +=
            check_row(&model->file, &view, row, &model->messages[slot], slot, may_be_damaged);
        bytes += message_bytes(&model->messages[slot]);
        row++;
    }
    QS_CHECK(row == view.row_count && damaged == load->damaged_count);
    QS_CHECK(may_be_damaged || row == 1 || bytes <= load->bytes_max);
    QS_CHECK(qsi_bitmap_has(load->wanted, load->first) &&
             qsi_bitmap_has(load->wanted, load->first + load->count - 1));
}

/* Loads all of wanted in steps of bytes_max and compares it with the model. */
static inline void check_all(struct fixture *fixture, const struct model *model,
                             const uint64_t *wanted, uint64_t bytes_max)
{
    struct qsi_segment_load load = {
        .from = 0, .to = model->entries, .wanted = wanted, .bytes_max = bytes_max};
    uint64_t guard = 0;

    do {
        QS_CHECK(guard++ <= model->entries);
        QS_CHECK_OK(qsi_segment_load(fixture->index, &model->file, &load, QS_ERROR));
        check_load(model, &load, false);
        load_fini(&load);
        load.from = load.first + load.count;
    } while (load.chunk != NULL && load.from < load.to);
}

/* ---- files behind the index's back ---- */

static inline qs_file *open_file(struct fixture *fixture, const struct qsi_segment_file *file,
                                 uint32_t flags)
{
    char name[QSI_SEGMENT_NAME_BYTES];
    qs_file *handle;

    qsi_segment_name(name, file);
    QS_CHECK_OK(fixture->env->open(fixture->env, fixture->dir, name, flags, &handle, QS_ERROR));
    return handle;
}

static inline bool exists(struct fixture *fixture, const struct qsi_segment_file *file)
{
    char name[QSI_SEGMENT_NAME_BYTES];
    qs_file *handle = NULL;
    qs_status status;

    qsi_segment_name(name, file);
    status = fixture->env->open(fixture->env, fixture->dir, name, QS_OPEN_READ, &handle, NULL);
    fixture->env->close(fixture->env, handle);
    QS_CHECK(status == QS_OK || status == QS_ENOENT);
    return status == QS_OK;
}

static inline uint64_t file_bytes(struct fixture *fixture, const struct qsi_segment_file *file)
{
    qs_file *handle = open_file(fixture, file, QS_OPEN_READ);
    uint64_t bytes;

    QS_CHECK_OK(fixture->env->size(fixture->env, handle, &bytes, QS_ERROR));
    fixture->env->close(fixture->env, handle);
    return bytes;
}

static inline void overwrite(struct fixture *fixture, const struct qsi_segment_file *file,
                             uint64_t offset, const void *data, size_t bytes)
{
    qs_file *handle = open_file(fixture, file, QS_OPEN_WRITE);
    const qs_part part = {data, bytes};
    size_t written;

    QS_CHECK_OK(fixture->env->write(fixture->env, handle, &part, 1, offset, &written, QS_ERROR));
    QS_CHECK(written == bytes);
    fixture->env->close(fixture->env, handle);
}

static inline size_t read_at(struct fixture *fixture, const struct qsi_segment_file *file,
                             uint64_t offset, void *data, size_t bytes)
{
    qs_file *handle = open_file(fixture, file, QS_OPEN_READ);
    size_t read;

    QS_CHECK_OK(fixture->env->read(fixture->env, handle, data, bytes, offset, &read, QS_ERROR));
    fixture->env->close(fixture->env, handle);
    return read;
}

static inline void flip(struct fixture *fixture, const struct qsi_segment_file *file,
                        uint64_t offset, uint8_t mask)
{
    uint8_t byte;

    QS_CHECK(read_at(fixture, file, offset, &byte, 1) == 1);
    byte ^= mask;
    overwrite(fixture, file, offset, &byte, 1);
}

#endif
