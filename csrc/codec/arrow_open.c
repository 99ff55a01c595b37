/* Opening a record batch: types, structure and contents are checked here, once, so that reading is
 * free of it.
 *
 * Arrays come from other libraries and may be made by hand.  What the interface lets us check is
 * checked; null slots may hold anything, so the fast passes over whole columns only tell "nothing
 * to see" from "look at each row", and only the row by row pass condemns. */
#include "arrow_column.h"
#include "check.h"
#include "error.h"

#include <inttypes.h>
#include <stdio.h>

enum kind { KIND_TEXT, KIND_INTEGER, KIND_TIMESTAMP, KIND_INSTANT, KIND_HEADERS };

/* The columns beside the body, and where a batch keeps them. */
struct known_column {
    const char *name;
    enum kind kind;
    size_t place;
    int64_t low; /* integers: the range [low, low + count) */
    uint64_t count;
};

#define TIME "timestamp"
#define MESSAGE_TIME "message_timestamp" /* the same property of what a stream had */
#define PLACE(member) offsetof(struct qsi_arrow_batch, member)
#define NOT_NEGATIVE 0, (uint64_t)INT64_MAX + 1

static const struct known_column known_columns[] = {
    {"exchange", KIND_TEXT, PLACE(exchange), 0, 0},
    {"routing_key", KIND_TEXT, PLACE(routing_key), 0, 0},
    {"headers", KIND_HEADERS, PLACE(headers), 0, 0},
    {"message_id", KIND_TEXT, PLACE(text[QSI_PROPERTY_MESSAGE_ID]), 0, 0},
    {"correlation_id", KIND_TEXT, PLACE(text[QSI_PROPERTY_CORRELATION_ID]), 0, 0},
    {"type", KIND_TEXT, PLACE(text[QSI_PROPERTY_TYPE]), 0, 0},
    {"app_id", KIND_TEXT, PLACE(text[QSI_PROPERTY_APP_ID]), 0, 0},
    {"content_type", KIND_TEXT, PLACE(text[QSI_PROPERTY_CONTENT_TYPE]), 0, 0},
    {"content_encoding", KIND_TEXT, PLACE(text[QSI_PROPERTY_CONTENT_ENCODING]), 0, 0},
    {"reply_to", KIND_TEXT, PLACE(text[QSI_PROPERTY_REPLY_TO]), 0, 0},
    {"user_id", KIND_TEXT, PLACE(text[QSI_PROPERTY_USER_ID]), 0, 0},
    {"priority", KIND_INTEGER, PLACE(priority), 0, 256},
    {"delivery_mode", KIND_INTEGER, PLACE(delivery_mode), 1, 2},
    {"expiration_ms", KIND_INTEGER, PLACE(expiration_ms), NOT_NEGATIVE},
    {TIME, KIND_TIMESTAMP, PLACE(timestamp), NOT_NEGATIVE},
    {"due", KIND_INSTANT, PLACE(due), INT64_MIN, UINT64_MAX},
};

#define KNOWN_COUNT (sizeof known_columns / sizeof known_columns[0])
#define BODY_INDEX KNOWN_COUNT /* its name is the caller's */

static size_t known_index(const char *name, const char *body_name)
{
    size_t index = 0;

    if (strcmp(name, body_name) == 0) {
        return BODY_INDEX;
    }
    if (strcmp(name, MESSAGE_TIME) == 0) {
        name = TIME;
    }
    while (index < KNOWN_COUNT && strcmp(name, known_columns[index].name) != 0) {
        index++;
    }
    return index < KNOWN_COUNT ? index : SIZE_MAX;
}

/* What tells of a delivery, or of a place in a queue or a stream: so that what was received can be
 * published. */
static bool is_of_delivery(const char *name)
{
    static const char *const names[] = {"delivery_tag", "redelivered", "delivery_count", "sequence",
                                        "unacked",      "delayed",     "offset",         "stream"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Of what a stream had, the timestamp is when it was published. */
static bool is_of_stream(const struct ArrowSchema *schema)
{
    for (int64_t child = 0; child < schema->n_children; child++) {
        const char *name = schema->children[child] == NULL ? NULL : schema->children[child]->name;

        if (name != NULL && (strcmp(name, "offset") == 0 || strcmp(name, MESSAGE_TIME) == 0)) {
            return true;
        }
    }
    return false;
}

static qs_status fail_unknown(const struct qsi_arrow_column *column, const char *body_name)
{
    char names[QS_ERROR_TEXT_BYTES] = "";
    size_t bytes = 0;

    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        bytes +=
            (size_t)snprintf(names + bytes, sizeof names - bytes, ", %s", known_columns[i].name);
        QS_ASSERT(bytes < sizeof names);
    }
    return qsi_fail(column->error, QS_EINVAL, "unknown column \"%s\"; expected %s%s", column->name,
                    body_name, names);
}

static qs_status open_known(struct qsi_arrow_batch *batch, const struct known_column *known,
                            const struct qsi_arrow_column *column)
{
    void *place = (char *)batch + known->place;

    QS_DCHECK(known->place < sizeof *batch);
    if (strcmp(column->schema->format, "n") == 0) {
        return QS_OK; /* a column of the null type says as much as none */
    }
    switch (known->kind) {
    case KIND_TEXT:
        return qsi_arrow_open_text(column, place);
    case KIND_INTEGER:
        return qsi_arrow_open_int(column, place, known->low, known->count, false);
    case KIND_TIMESTAMP:
        return qsi_arrow_open_int(column, place, known->low, known->count, true);
    case KIND_INSTANT: /* a bare number does not say of what */
        return qsi_arrow_timestamp_divisor(column->schema->format) != 0
                   ? qsi_arrow_open_int(column, place, known->low, known->count, true)
                   : qsi_arrow_fail_type(column, "a timestamp");
    case KIND_HEADERS:
        break;
    }
    return qsi_arrow_open_headers(column, place);
}

/* A body column under another name looks unknown: what is missing is told first. */
static qs_status require_body(const struct qsi_arrow_column *root, const char *body_name)
{
    for (int64_t child = 0; child < root->array->n_children; child++) {
        const struct ArrowSchema *schema = root->schema->children[child];
        if (schema != NULL && schema->name != NULL && strcmp(schema->name, body_name) == 0) {
            return QS_OK;
        }
    }
    return qsi_fail(root->error, QS_EINVAL,
                    "no column is called \"%s\", which is to hold the bodies", body_name);
}

static qs_status open_column(const struct qsi_arrow_column *root, struct qsi_arrow_batch *batch,
                             const struct qsi_arrow_column *column, const char *body_name,
                             uint32_t *seen)
{
    size_t index = known_index(column->name, body_name);

    if (index == SIZE_MAX && is_of_delivery(column->name)) {
        return QS_OK;
    }
    if (strcmp(column->name, TIME) == 0 && index != BODY_INDEX && is_of_stream(root->schema)) {
        return QS_OK;
    }
    if (index == SIZE_MAX) {
        QS_TRY(require_body(root, body_name));
        return fail_unknown(column, body_name);
    }
    if ((*seen >> index & 1) != 0) {
        return qsi_fail(column->error, QS_EINVAL, "two columns are called \"%s\"", column->name);
    }
    QS_DCHECK(index <= BODY_INDEX && BODY_INDEX < 32);
    *seen |= (uint32_t)1 << index;
    if (index == BODY_INDEX) {
        return qsi_arrow_open_body(column, &batch->body);
    }
    return open_known(batch, &known_columns[index], column);
}

/* The struct array itself. */
static qs_status open_root(const struct qsi_arrow_column *root)
{
    const struct ArrowArray *array = root->array;
    const uint8_t *validity;
    uint64_t validity_offset, row;

    if (root->schema->release == NULL || array->release == NULL) {
        return qsi_fail(root->error, QS_EINVAL,
                        "record batch: its Arrow schema or array was released already");
    }
    if (root->schema->format == NULL || strcmp(root->schema->format, "+s") != 0) {
        return qsi_arrow_fail_type(root, "a struct");
    }
    QS_TRY(qsi_arrow_check_structure(root, 1, 1, root->schema->n_children));
    if (array->n_children > 0 && (root->schema->children == NULL || array->children == NULL)) {
        return qsi_fail(root->error, QS_EINVAL, "record batch: its children are missing");
    }
    QS_TRY(qsi_arrow_open_validity(root, &validity, &validity_offset));
    row = qsi_arrow_first_null(validity, validity_offset, root->rows);
    if (row < root->rows) {
        return qsi_fail(root->error, QS_EINVAL, "row %" PRIu64 " is null", root->rows_before + row);
    }
    return QS_OK;
}

static qs_status open_child(struct qsi_arrow_batch *batch, const struct qsi_arrow_column *root,
                            int64_t child, const char *body_name, uint32_t *seen)
{
    struct qsi_arrow_column column = *root;

    column.schema = root->schema->children[child];
    column.array = root->array->children[child];
    if (column.schema == NULL || column.array == NULL || column.schema->format == NULL) {
        return qsi_fail(root->error, QS_EINVAL, "record batch: column %" PRId64 " is missing",
                        child);
    }
    column.name = column.schema->name == NULL ? "" : column.schema->name;
    if (column.array->offset < 0 || column.array->offset > QSI_ARROW_POSITIONS_MAX) {
        return qsi_arrow_fail(&column, "offset %" PRId64 " is impossible", column.array->offset);
    }
    column.first +=
        (uint64_t)column.array->offset; /* a struct's offset applies on top of its children's */
    return open_column(root, batch, &column, body_name, seen);
}

static qs_status open_children(struct qsi_arrow_batch *batch, const struct qsi_arrow_column *root,
                               const char *body_name)
{
    uint32_t seen = 0;

    QS_TRY(open_root(root));
    batch->rows = root->rows;
    for (int64_t child = 0; child < root->array->n_children; child++) {
        QS_TRY(open_child(batch, root, child, body_name, &seen));
    }
    QS_DCHECK((seen >> BODY_INDEX & 1) == (batch->body.present ? 1 : 0));
    return batch->body.present ? QS_OK : require_body(root, body_name);
}

qs_status qsi_arrow_batch_open(struct qsi_arrow_batch *batch_out, const struct ArrowSchema *schema,
                               const struct ArrowArray *array, const char *body_name,
                               uint64_t rows_before, qsi_arrow_utc_of *utc_of, qs_error *error)
{
    struct qsi_arrow_column root = {.name = NULL,
                                    .part = "",
                                    .unit = "row",
                                    .schema = schema,
                                    .array = array,
                                    .copies = &batch_out->copies,
                                    .first = (uint64_t)array->offset,
                                    .rows = (uint64_t)array->length,
                                    .rows_before = rows_before,
                                    .utc_of = utc_of,
                                    .error = error};
    qs_status status;

    memset(batch_out, 0, sizeof *batch_out);
    status = open_children(batch_out, &root, body_name);
    if (status != QS_OK) {
        qsi_arrow_batch_close(batch_out);
        return status;
    }
    for (uint8_t property = 0; property < QSI_PROPERTY_COUNT; property++) {
        if (batch_out->text[property].present) {
            QS_DCHECK(batch_out->text_count < QSI_PROPERTY_COUNT);
            batch_out->text_present[batch_out->text_count++] = property;
        }
    }
    return QS_OK;
}
