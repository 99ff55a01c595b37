/* Opening a record batch: types, structure and contents are checked here, once, so that reading
 * need not check them.
 *
 * Arrays come from other libraries and may be built by hand, so everything is checked that the
 * interface allows.  Null slots may have any content, so the fast passes over whole columns only
 * find out whether a pass over single rows is needed; only that pass reports errors. */
#include "arrow_column.h"
#include "check.h"
#include "columns.h"
#include "error.h"

#include <inttypes.h>
#include <stdio.h>

/* Where a batch has the columns besides the body. */
#define PLACE(member) offsetof(struct qsi_arrow_batch, member)
static const size_t places[QSI_COLUMN_COUNT] = {
    [QSI_COLUMN_EXCHANGE] = PLACE(exchange),
    [QSI_COLUMN_ROUTING_KEY] = PLACE(routing_key),
    [QSI_COLUMN_HEADERS] = PLACE(headers),
    /* The same property in batches of a stream. */
    [QSI_COLUMN_MESSAGE_TIMESTAMP] = PLACE(timestamp),
    [QSI_COLUMN_DUE] = PLACE(due),
#define QSI_TEXT_COLUMN(id, name) [QSI_COLUMN_##id] = PLACE(text[QSI_PROPERTY_##id]),
#define QSI_NUMBER_COLUMN(id, name, ...) [QSI_COLUMN_##id] = PLACE(name),
#include "columns.def"
};

/* Returns QSI_COLUMN_COUNT for an unknown name.  If two columns have the name, returns the one that
 * is published. */
static int find_column(const char *name, const char *body_name)
{
    int found = QSI_COLUMN_COUNT;

    if (strcmp(name, body_name) == 0) {
        return QSI_COLUMN_BODY;
    }
    for (int i = 0; i < QSI_COLUMN_COUNT; i++) {
        if (i != QSI_COLUMN_BODY && strcmp(name, qsi_columns[i].name) == 0) {
            if (qsi_columns[i].published != QS_COLUMN_IGNORED) {
                return i;
            }
            found = i;
        }
    }
    return found;
}

/* Whether the batch came from a stream: its column "timestamp" is the time of publishing. */
static bool is_of_stream(const struct ArrowSchema *schema)
{
    for (int64_t child = 0; child < schema->n_children; child++) {
        const char *name = schema->children[child] == NULL ? NULL : schema->children[child]->name;

        if (name != NULL && (strcmp(name, qsi_columns[QSI_COLUMN_OFFSET].name) == 0 ||
                             strcmp(name, qsi_columns[QSI_COLUMN_MESSAGE_TIMESTAMP].name) == 0)) {
            return true;
        }
    }
    return false;
}

static qs_status fail_unknown(const struct qsi_arrow_column *column, const char *body_name)
{
    char names[QS_ERROR_TEXT_BYTES] = "";
    size_t bytes = 0;

    for (int i = 0; i < QSI_COLUMN_COUNT; i++) {
        if (places[i] != 0 && i != QSI_COLUMN_MESSAGE_TIMESTAMP) {
            bytes +=
                (size_t)snprintf(names + bytes, sizeof names - bytes, ", %s", qsi_columns[i].name);
            QS_ASSERT(bytes < sizeof names);
        }
    }
    return qsi_fail(column->error, QS_EINVAL, "unknown column \"%s\"; expected %s%s", column->name,
                    body_name, names);
}

static qs_status open_known(struct qsi_arrow_batch *batch, int index,
                            const struct qsi_arrow_column *column)
{
    const qs_column *known = &qsi_columns[index];
    void *place = (char *)batch + places[index];
    uint64_t count = (uint64_t)known->high - (uint64_t)known->low + 1;

    QS_DCHECK(places[index] > 0 && places[index] < sizeof *batch);
    if (strcmp(column->schema->format, "n") == 0) {
        return QS_OK; /* a column of the null type is like an absent one */
    }
    switch (known->published) {
    case QS_COLUMN_TEXT:
        return qsi_arrow_open_text(column, place);
    case QS_COLUMN_INTEGER:
        return qsi_arrow_open_int(column, place, known->low, count, false);
    case QS_COLUMN_TIMESTAMP:
        return qsi_arrow_open_int(column, place, known->low, count, true);
    case QS_COLUMN_INSTANT: /* an integer without a unit is ambiguous */
        return qsi_arrow_timestamp_divisor(column->schema->format) != 0
                   ? qsi_arrow_open_int(column, place, known->low, count, true)
                   : qsi_arrow_fail_type(column, "a timestamp");
    case QS_COLUMN_HEADERS:
    case QS_COLUMN_BODY:
    case QS_COLUMN_IGNORED:
        break;
    }
    return qsi_arrow_open_headers(column, place);
}

/* Reports a missing body first: a body column under another name would be reported as unknown. */
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
    int index = find_column(column->name, body_name);

    if (index == QSI_COLUMN_COUNT) {
        QS_TRY(require_body(root, body_name));
        return fail_unknown(column, body_name);
    }
    if (qsi_columns[index].published == QS_COLUMN_IGNORED ||
        (index == QSI_COLUMN_TIMESTAMP && is_of_stream(root->schema))) {
        return QS_OK;
    }
    if ((*seen >> index & 1) != 0) {
        return qsi_fail(column->error, QS_EINVAL, "two columns are called \"%s\"", column->name);
    }
    QS_DCHECK(index < QSI_COLUMN_COUNT && QSI_COLUMN_COUNT <= 32);
    *seen |= (uint32_t)1 << index;
    return index == QSI_COLUMN_BODY ? qsi_arrow_open_body(column, &batch->body)
                                    : open_known(batch, index, column);
}

/* Checks the struct array itself. */
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
    /* A struct's offset is added to the offsets of its children. */
    column.first += (uint64_t)column.array->offset;
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
    QS_DCHECK((seen >> QSI_COLUMN_BODY & 1) == (batch->body.present ? 1 : 0));
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
