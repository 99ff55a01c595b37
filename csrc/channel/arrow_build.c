/* Appending rows to a batch.  Invariant: a nullable column has at most as many rows as the
 * builder. */
#include "arrow_build.h"

#include "alloc.h"
#include "arrow_properties.h"
#include "check.h"
#include "error.h"
#include "le.h"

#include <inttypes.h>
#include <string.h>

void qsi_arrow_builder_init(struct qsi_arrow_builder *builder)
{
    memset(builder, 0, sizeof *builder);
}

void qsi_arrow_builder_fini(struct qsi_arrow_builder *builder)
{
    qsi_free(builder->tags);
    qsi_free(builder->times);
    qsi_free(builder->redelivered);
    qsi_free(builder->unacked);
    qsi_free(builder->delayed);
    qsi_free(builder->delivery_counts);
    qsi_free(builder->body_offsets);
    qsi_buf_fini(&builder->body);
    qsi_chunk_unref(builder->lender);
    for (int i = 0; i < QSI_ARROW_DICTIONARY_COUNT; i++) {
        qsi_free(builder->codes[i]);
        qsi_map_fini(&builder->names[i]);
        qsi_arrow_text_fini(&builder->entries[i]);
    }
    qsi_arrow_text_fini(&builder->headers);
    qsi_arrow_text_fini(&builder->header_keys);
    qsi_arrow_text_fini(&builder->header_values);
    for (int i = 0; i < QSI_COLUMN_TEXT_COUNT; i++) {
        qsi_arrow_text_fini(&builder->texts[i]);
    }
    for (int i = 0; i < QSI_COLUMN_NUMBER_COUNT; i++) {
        qsi_free(builder->numbers[i].values);
        qsi_free(builder->numbers[i].validity);
    }
    memset(builder, 0, sizeof *builder);
}

/* ---- growing ---- */

/* Makes room in columns of delivered or browsed batches only. */
static qs_status reserve_states(struct qsi_arrow_builder *builder, uint64_t capacity)
{
    if (builder->shape == QSI_ARROW_STREAM) {
        return QS_OK;
    }
    QS_TRY(qsi_arrow_grow(&builder->delivery_counts, capacity * sizeof *builder->delivery_counts));
    QS_TRY(qsi_arrow_grow_bits(&builder->redelivered, builder->capacity, capacity));
    if (builder->shape == QSI_ARROW_BROWSED) {
        QS_TRY(qsi_arrow_grow_bits(&builder->unacked, builder->capacity, capacity));
        QS_TRY(qsi_arrow_grow_bits(&builder->delayed, builder->capacity, capacity));
    }
    return QS_OK;
}

static qs_status reserve_rows(struct qsi_arrow_builder *builder, uint64_t count)
{
    uint64_t capacity;

    if (QS_LIKELY(count <= builder->capacity - builder->rows)) {
        return QS_OK;
    }
    capacity = qsi_arrow_grown_capacity(builder->capacity, builder->rows + count);
    QS_TRY(qsi_arrow_grow(&builder->tags, capacity * sizeof *builder->tags));
    QS_TRY(reserve_states(builder, capacity));
    if (qsi_arrow_builder_wants(builder, QS_STREAM_COLUMN_EXCHANGE)) {
        QS_TRY(qsi_arrow_grow(&builder->codes[QSI_ARROW_EXCHANGE], capacity * sizeof(int32_t)));
    }
    if (qsi_arrow_builder_wants(builder, QS_STREAM_COLUMN_ROUTING_KEY)) {
        QS_TRY(qsi_arrow_grow(&builder->codes[QSI_ARROW_ROUTING_KEY], capacity * sizeof(int32_t)));
    }
    if (builder->shape == QSI_ARROW_STREAM &&
        qsi_arrow_builder_wants(builder, QS_STREAM_COLUMN_TIMESTAMP)) {
        QS_TRY(qsi_arrow_grow(&builder->times, capacity * sizeof *builder->times));
    }
    if (qsi_arrow_builder_wants(builder, QS_STREAM_COLUMN_BODY) && builder->lender == NULL) {
        QS_TRY(qsi_arrow_grow(&builder->body_offsets, (capacity + 1) * sizeof(int32_t)));
        builder->body_offsets[0] = 0;
    }
    builder->capacity = capacity;
    return QS_OK;
}

qs_status qsi_arrow_builder_reserve(struct qsi_arrow_builder *builder, uint64_t rows,
                                    uint64_t body_bytes, qs_error *error)
{
    uint8_t *room;

    body_bytes = qsi_arrow_builder_wants(builder, QS_STREAM_COLUMN_BODY) ? body_bytes : 0;
    if (rows > QSI_ARROW_ROWS_MAX - builder->rows ||
        body_bytes > QSI_ARROW_BODY_BYTES_MAX - builder->body.bytes) {
        return qsi_fail(error, QS_EINVAL,
                        "a batch of %" PRIu64 " rows and %" PRIu64 " bytes is too large", rows,
                        body_bytes + builder->body.bytes);
    }
    if (reserve_rows(builder, rows) != QS_OK ||
        qsi_buf_reserve(&builder->body, body_bytes, &room) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "a batch of %" PRIu64 " rows and %" PRIu64 " bytes",
                        builder->rows + rows, body_bytes + builder->body.bytes);
    }
    return QS_OK;
}

/* ---- rows ---- */

/* Sets the columns of delivered or browsed batches only.  REQUIRES room. */
static void put_states(struct qsi_arrow_builder *builder, const struct qsi_arrow_run *run,
                       uint64_t count)
{
    if (run->redelivered) {
        qsi_arrow_set_bits(builder->redelivered, builder->rows, count);
    }
    if (run->is_unacked) {
        qsi_arrow_set_bits(builder->unacked, builder->rows, count);
    }
    if (run->is_delayed) {
        qsi_arrow_set_bits(builder->delayed, builder->rows, count);
    }
}

/* Sets the columns with a run's common values; for deliveries in one pass.  REQUIRES room. */
static void put_delivered(struct qsi_arrow_builder *builder, const struct qsi_arrow_run *run,
                          uint64_t count)
{
    uint64_t *tags = builder->tags + builder->rows;
    uint32_t *delivery_counts = builder->delivery_counts + builder->rows;
    int32_t *exchanges = builder->codes[QSI_ARROW_EXCHANGE] + builder->rows;
    int32_t *routing_keys = builder->codes[QSI_ARROW_ROUTING_KEY] + builder->rows;

    for (uint64_t i = 0; i < count; i++) {
        tags[i] = run->first_tag + i;
        delivery_counts[i] = run->delivery_count;
        exchanges[i] = run->exchange_code;
        routing_keys[i] = run->routing_key_code;
    }
    put_states(builder, run, count);
}

static void put_codes(int32_t *codes, uint64_t first, uint64_t count, int32_t code)
{
    if (codes == NULL) {
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        codes[first + i] = code;
    }
}

/* Eight at a time, without a dependency between them. */
static void put_tags(uint64_t *tags, uint64_t count, uint64_t first)
{
    uint64_t done = 0;

    for (; count - done >= 8; done += 8) {
        for (uint64_t i = 0; i < 8; i++) {
            tags[done + i] = first + done + i;
        }
    }
    for (; done < count; done++) {
        tags[done] = first + done;
    }
}

static void put_run(struct qsi_arrow_builder *builder, const struct qsi_arrow_run *run,
                    uint64_t count)
{
    if (builder->shape != QSI_ARROW_STREAM) {
        put_delivered(builder, run, count);
        return;
    }
    put_tags(builder->tags + builder->rows, count, run->first_tag);
    put_codes(builder->codes[QSI_ARROW_EXCHANGE], builder->rows, count, run->exchange_code);
    put_codes(builder->codes[QSI_ARROW_ROUTING_KEY], builder->rows, count, run->routing_key_code);
}

static void put_body_ends(int32_t *restrict ends, const uint8_t *restrict offsets, uint64_t count,
                          uint32_t shift)
{
    for (uint64_t i = 0; i < count; i++) {
        ends[i] = (int32_t)(qsi_get_u32(offsets + 4 * i) + shift);
    }
}

/* Copies bodies.  REQUIRES room for the rows and for bytes of data from first on. */
static void put_bodies(struct qsi_arrow_builder *builder, const uint8_t *offsets,
                       const uint8_t *data, uint64_t count, uint32_t first, uint32_t bytes)
{
    put_body_ends(builder->body_offsets + builder->rows + 1, offsets + 4, count,
                  (uint32_t)builder->body.bytes - first);
    if (bytes > 0) { /* otherwise data may be NULL */
        memcpy(builder->body.data + builder->body.bytes, data + first, bytes);
    }
    builder->body.bytes += bytes;
}

qs_status qsi_arrow_builder_rows(struct qsi_arrow_builder *builder, const struct qsi_arrow_run *run,
                                 const uint8_t *offsets, const uint8_t *data, uint64_t count,
                                 qs_error *error)
{
    bool has_bodies = qsi_arrow_builder_wants(builder, QS_STREAM_COLUMN_BODY);
    uint32_t first = has_bodies ? qsi_get_u32(offsets) : 0;
    uint32_t bytes = has_bodies ? qsi_get_u32(offsets + 4 * count) - first : 0;

    QS_ASSERT(builder->lender == NULL);
    QS_TRY(qsi_arrow_builder_reserve(builder, count, bytes, error));
    QS_TRY(qsi_arrow_builder_properties(builder, builder->rows, count, run->properties, error));
    put_run(builder, run, count);
    if (has_bodies) {
        put_bodies(builder, offsets, data, count, first, bytes);
    }
    builder->rows += count;
    return QS_OK;
}

qs_status qsi_arrow_builder_borrow(struct qsi_arrow_builder *builder,
                                   const struct qsi_arrow_run *run, struct qsi_chunk *chunk,
                                   const uint8_t *offsets, const uint8_t *data, uint64_t count,
                                   qs_error *error)
{
    QS_ASSERT(QSI_ARROW_LENDS && builder->rows == 0 && builder->lender == NULL);
    QS_ASSERT((uintptr_t)offsets % sizeof(int32_t) == 0 &&
              qsi_get_u32(offsets + 4 * count) <= QSI_ARROW_BODY_BYTES_MAX);
    qsi_chunk_uncharge(chunk);
    builder->lender = qsi_chunk_ref(chunk);
    builder->lent_offsets = offsets;
    builder->lent_bodies = data;
    QS_TRY(qsi_arrow_builder_reserve(builder, count, 0, error));
    QS_TRY(qsi_arrow_builder_properties(builder, 0, count, run->properties, error));
    put_run(builder, run, count);
    builder->rows = count;
    return QS_OK;
}

qs_status qsi_arrow_builder_row(struct qsi_arrow_builder *builder, const struct qsi_arrow_run *run,
                                struct qsi_slice body, qs_error *error)
{
    uint8_t offsets[8];

    qsi_put_u32(offsets, 0);
    qsi_put_u32(offsets + 4, body.bytes);
    return qsi_arrow_builder_rows(builder, run, offsets, body.data, 1, error);
}

static qs_status intern(struct qsi_arrow_builder *builder, int32_t *code_out,
                        enum qsi_arrow_dictionary dictionary, struct qsi_slice name,
                        qs_error *error)
{
    struct qsi_arrow_text *entries = &builder->entries[dictionary];
    void *known = qsi_map_get(&builder->names[dictionary], name.data, name.bytes);
    qs_status status;

    if (known != NULL) {
        *code_out = (int32_t)((uintptr_t)known - 1);
        return QS_OK;
    }
    status = qsi_arrow_text_append(entries, entries->filled, 1, name);
    if (status == QS_OK) {
        status = qsi_map_put(&builder->names[dictionary], name.data, name.bytes,
                             (void *)(uintptr_t)entries->filled);
    }
    if (status != QS_OK) {
        return qsi_fail(error, status, "the names of a batch, %" PRIu64 " so far", entries->filled);
    }
    *code_out = (int32_t)(entries->filled - 1);
    return QS_OK;
}

qs_status qsi_arrow_builder_intern(struct qsi_arrow_builder *builder, int32_t *code_out,
                                   enum qsi_arrow_dictionary dictionary, struct qsi_slice name,
                                   qs_error *error)
{
    struct qsi_arrow_recent_name *recent = &builder->recent[dictionary];

    if (recent->code_1 > 0 && recent->bytes == name.bytes &&
        memcmp(recent->data, name.data, name.bytes) == 0) {
        *code_out = recent->code_1 - 1;
        return QS_OK;
    }
    QS_TRY(intern(builder, code_out, dictionary, name, error));
    if (name.bytes <= sizeof recent->data) {
        memcpy(recent->data, name.data, name.bytes);
        recent->bytes = name.bytes;
        recent->code_1 = *code_out + 1;
    }
    return QS_OK;
}

qs_status qsi_arrow_builder_fill(struct qsi_arrow_builder *builder)
{
    QS_TRY(qsi_arrow_text_fill(&builder->headers, builder->rows));
    QS_TRY(qsi_arrow_text_fill(&builder->header_values, builder->header_keys.filled));
    for (int i = 0; i < QSI_COLUMN_TEXT_COUNT; i++) {
        QS_TRY(qsi_arrow_text_fill(&builder->texts[i], builder->rows));
    }
    for (int i = 0; i < QSI_COLUMN_NUMBER_COUNT; i++) {
        if (builder->numbers[i].capacity > 0) {
            QS_TRY(qsi_arrow_number_reserve(&builder->numbers[i], qsi_column_number_bytes(i),
                                            builder->rows, 0));
        }
    }
    return QS_OK;
}
