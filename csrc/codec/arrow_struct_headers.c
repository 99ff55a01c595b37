/* Headers as a struct, as data frames store dicts: a field for each name in any row, null in rows
 * without that name.  They are converted to a map, and everything is copied. */
#include "arrow_column.h"
#include "check.h"

#include <inttypes.h>

#define FIELDS_MAX 1024

struct fields {
    struct qsi_arrow_bytes_column *columns;
    uint64_t count;
};

static qs_status open_field(const struct qsi_arrow_column *record, int64_t child,
                            struct qsi_arrow_bytes_column *bytes_out)
{
    struct qsi_arrow_column column = *record;

    column.schema = record->schema->children[child];
    column.array = record->array->children[child];
    if (column.schema == NULL || column.array == NULL || column.schema->format == NULL ||
        column.schema->name == NULL) {
        return qsi_arrow_fail(record, "field %" PRId64 " is missing", child);
    }
    if (strlen(column.schema->name) > QSI_SHORTSTR_BYTES_MAX) {
        return qsi_arrow_fail(record, "a field's name has %zu bytes, at most %d are possible",
                              strlen(column.schema->name), QSI_SHORTSTR_BYTES_MAX);
    }
    if (column.array->offset < 0 || column.array->offset > QSI_ARROW_POSITIONS_MAX) {
        return qsi_arrow_fail(record, "offset %" PRId64 " is impossible", column.array->offset);
    }
    if (strcmp(column.schema->format, "n") == 0) {
        return QS_OK; /* no row has a value */
    }
    column.name = column.schema->name;
    column.part = " of the headers";
    column.first += (uint64_t)column.array->offset;
    return qsi_arrow_open_bytes(&column, bytes_out, false);
}

static qs_status open_fields(const struct qsi_arrow_column *record, struct fields *fields_out)
{
    int64_t count = record->schema->n_children;
    uint8_t *memory = NULL;

    if (count < 0 || count > FIELDS_MAX ||
        (count > 0 && (record->schema->children == NULL || record->array->children == NULL))) {
        return qsi_arrow_fail(record, "%" PRId64 " fields, at most %d are possible", count,
                              FIELDS_MAX);
    }
    fields_out->count = (uint64_t)count;
    QS_TRY(qsi_arrow_make_copy(record, (fields_out->count + 1) * sizeof *fields_out->columns,
                               &memory));
    memset(memory, 0, (fields_out->count + 1) * sizeof *fields_out->columns);
    fields_out->columns = (struct qsi_arrow_bytes_column *)(void *)memory;
    for (int64_t child = 0; child < count; child++) {
        QS_TRY(open_field(record, child, &fields_out->columns[child]));
    }
    return QS_OK;
}

/* The value of a field in a row. */
static struct qsi_slice value_at(const struct qsi_arrow_headers_column *headers,
                                 const struct fields *fields, uint64_t field, uint64_t row)
{
    if (qsi_arrow_is_null(headers->validity, headers->validity_offset, row)) {
        return QSI_SLICE_NULL;
    }
    return qsi_arrow_bytes(&fields->columns[field], row);
}

struct sizes {
    uint64_t entries, keys, values;
};

static struct sizes measure(const struct qsi_arrow_column *record,
                            const struct qsi_arrow_headers_column *headers,
                            const struct fields *fields)
{
    struct sizes sizes = {0, 0, 0};

    for (uint64_t row = 0; row < record->rows; row++) {
        for (uint64_t field = 0; field < fields->count; field++) {
            struct qsi_slice value = value_at(headers, fields, field, row);

            if (!qsi_slice_is_null(value)) {
                sizes.entries++;
                sizes.keys += strlen(record->schema->children[field]->name);
                sizes.values += value.bytes;
            }
        }
    }
    return sizes;
}

static void put_string(struct qsi_arrow_strings *strings, struct qsi_slice text)
{
    qsi_arrow_i64 *ends = (qsi_arrow_i64 *)(uintptr_t)strings->places;
    int64_t at = ends[strings->count];

    if (text.bytes > 0) {
        memcpy((uint8_t *)(uintptr_t)strings->data + at, text.data, text.bytes);
    }
    ends[++strings->count] = at + text.bytes;
}

/* Allocates a column of the map for count strings with bytes in total. */
static qs_status make_strings(const struct qsi_arrow_column *record, uint64_t count, uint64_t bytes,
                              struct qsi_arrow_bytes_column *column_out)
{
    uint8_t *places = NULL, *data = NULL;

    QS_TRY(qsi_arrow_make_copy(record, (count + 1) * sizeof(int64_t), &places));
    QS_TRY(qsi_arrow_make_copy(record, bytes, &data));
    *(qsi_arrow_i64 *)places = 0;
    column_out->present = true;
    column_out->strings =
        (struct qsi_arrow_strings){.layout = QSI_ARROW_OFFSETS64, .places = places, .data = data};
    return QS_OK;
}

static qs_status make_map(const struct qsi_arrow_column *record, const struct fields *fields,
                          struct qsi_arrow_headers_column *headers)
{
    struct sizes sizes = measure(record, headers, fields);
    uint8_t *places = NULL;
    int32_t entries = 0;

    if (sizes.entries > INT32_MAX) {
        return qsi_arrow_fail(record, "%" PRIu64 " headers, at most %d are possible", sizes.entries,
                              INT32_MAX);
    }
    QS_TRY(make_strings(record, sizes.entries, sizes.keys, &headers->keys));
    QS_TRY(make_strings(record, sizes.entries, sizes.values, &headers->values));
    QS_TRY(qsi_arrow_make_copy(record, (record->rows + 1) * sizeof(int32_t), &places));
    headers->places = places;
    headers->first = 0;
    for (uint64_t row = 0; row < record->rows; row++) {
        ((qsi_arrow_i32 *)places)[row] = entries;
        for (uint64_t field = 0; field < fields->count; field++) {
            struct qsi_slice value = value_at(headers, fields, field, row);
            const char *name = record->schema->children[field]->name;

            if (!qsi_slice_is_null(value)) {
                put_string(&headers->keys.strings, qsi_slice_make(name, (uint32_t)strlen(name)));
                put_string(&headers->values.strings, value);
                entries++;
            }
        }
    }
    ((qsi_arrow_i32 *)places)[record->rows] = entries;
    QS_DCHECK(headers->keys.strings.count == sizes.entries);
    return QS_OK;
}

qs_status qsi_arrow_open_struct_headers(const struct qsi_arrow_column *column,
                                        struct qsi_arrow_headers_column *headers_out)
{
    struct qsi_arrow_column record = *column;
    struct fields fields = {NULL, 0};

    QS_TRY(qsi_arrow_check_structure(column, 1, 1, column->schema->n_children));
    QS_TRY(qsi_arrow_open_validity(column, &headers_out->validity, &headers_out->validity_offset));
    QS_TRY(open_fields(&record, &fields));
    headers_out->present = true;
    return make_map(&record, &fields, headers_out);
}
